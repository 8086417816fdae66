"""A receiver of webhooks on loopback, whose answers a test decides."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from served import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

WEBHOOK_SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@dataclass
class Received:
    """One post."""

    headers: dict[str, str]
    body: str


@dataclass
class Receiver:
    """Keeps what it was sent."""

    url: str = ""
    posts: list[Received] = field(default_factory=list)
    answer: Callable[[int], Response] = lambda number: Response(status_code=204)
    """Gives the answer to the post of a number, from 1."""
    holds: asyncio.Event | None = None
    """Set to let posts go on."""

    async def take(self, request: Request) -> Response:
        """Take a post."""
        self.posts.append(Received(dict(request.headers), (await request.body()).decode()))
        number = len(self.posts)
        if self.holds is not None:
            await self.holds.wait()
        return self.answer(number)


@asynccontextmanager
async def webhook_receiver() -> AsyncIterator[Receiver]:
    """Listen on a free port."""
    receiver = Receiver()
    app = Starlette(routes=[Route("/hook", receiver.take, methods=["POST"])])
    async with served(app) as url:
        receiver.url = f"{url}/hook"
        yield receiver
