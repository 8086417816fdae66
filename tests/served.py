"""Serves the application on a real socket, as its users have it; server-sent events need one."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

Json = dict[str, Any]


@asynccontextmanager
async def served(app: Starlette, port: int = 0) -> AsyncIterator[str]:
    """Serve `app` on loopback, on a free port unless one is given; gives its address."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="critical", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:
        if serving.done():
            await serving
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


@dataclass(frozen=True)
class Received:
    """A server-sent event as it arrived."""

    id: int | None
    data: str

    @property
    def json(self) -> Json:
        """The data of an event that holds JSON."""
        value: Json = json.loads(self.data)
        return value


async def received(answer: httpx.Response) -> AsyncIterator[Received]:
    """Yield the events of a stream."""
    event_id, data = None, []
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif line.startswith("id: "):
            event_id = int(line.removeprefix("id: "))
        elif not line and data:
            yield Received(event_id, "\n".join(data))
            event_id, data = None, []
