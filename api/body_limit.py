"""Refuses request bodies that are too large, before they are in memory."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 2 * 1024 * 1024
"""More than any request may hold; each has a smaller limit of its own."""


class BodyLimit:
    """ASGI middleware that lets no body over `MAX_BODY_BYTES` through, whatever length was announced."""

    def __init__(self, app: ASGIApp) -> None:
        """Guard `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; reading a body that is too large raises the HTTP error 413 where it is read."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the request's body is over the limit of {MAX_BODY_BYTES:,} bytes")
            return message

        await self._app(scope, counted if scope["type"] == "http" else receive, send)
