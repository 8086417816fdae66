"""Server-sent events as our readers send them.

FastAPI's own generator endpoints hand each event through two queues and three tasks, which 500 readers of one feed do
not bear; what goes out here is made once for all of them and sent as it is.
"""

from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta

from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

HEARTBEAT_INTERVAL = timedelta(seconds=10)
"""How often a comment goes out while nothing happens, so that no proxy takes the stream for dead (field case 29)."""

HEARTBEAT = KEEPALIVE_COMMENT

DONE = format_sse_event(data_str="[DONE]")
"""The end mark of the AI SDK's streams."""

_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})
"""What some clients take for line breaks although server-sent events know only CR and LF (field case 29)."""


def json_event(text: str, event_id: int | None = None) -> bytes:
    """Return an event whose data is JSON text, which holds line breaks nowhere but in strings, escaped."""
    return format_sse_event(data_str=text.translate(_LINE_ENDS), id=None if event_id is None else str(event_id))


class EventStream(StreamingResponse):
    """The response that sends events, with headers against buffering and caching (field case 29)."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None, status_code: int = 200
    ) -> None:
        """Send `events`, with further `headers`; FastAPI looks for a default status here."""
        super().__init__(
            events, status_code, {"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})}
        )
