"""Refuses request bodies that are too large, before they are in memory."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem

MAX_BODY_BYTES = 2 * 1024 * 1024
"""More than any request may hold; each has a smaller limit of its own."""


class _BodyTooLarge(Exception):
    pass


class BodyLimit:
    """ASGI middleware that answers 413 when a body is over `MAX_BODY_BYTES`, announced or not."""

    def __init__(self, app: ASGIApp) -> None:
        """Guard `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = 0
        responded = False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise _BodyTooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal responded
            responded = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except _BodyTooLarge:
            if not responded:
                detail = f"the request's body is over the limit of {MAX_BODY_BYTES:,} bytes"
                await problem(413, detail)(scope, receive, send)
