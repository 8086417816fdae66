"""What every reader of live events in this process shares: the log, its one poll, and the frames that were made."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from datetime import timedelta

from api.sse import json_event
from turnkeeper.errors import TurnkeeperError, Unavailable
from turnkeeper.event_log.entries import PAGE, Bounds, Entry, EventLog
from turnkeeper.event_log.feed import EventFeed
from turnkeeper.event_log.framing import Framing

REMEMBERED_BYTES = 32 * 1024 * 1024
"""Frames that are kept as text, so that many readers of one log cost one encoding of each."""


class EventReader:
    """Reads the live log for the routes."""

    def __init__(self, log: EventLog) -> None:
        """Read `log`."""
        self._log = log
        self._feed = EventFeed(log)
        self._framing = Framing(log)
        self._frames: OrderedDict[tuple[str, int, str, bool], bytes] = OrderedDict()
        self._size = 0

    async def bounds(self, log: str) -> Bounds:
        """See `EventLog.bounds`.

        Raises:
            Unavailable: the log does not answer.
        """
        with _answering():
            return await self._log.bounds(log)

    async def read(self, log: str, after: int = 0, limit: int = PAGE, source: str | None = None) -> list[Entry]:
        """See `EventLog.read`.

        Raises:
            Unavailable: the log does not answer.
        """
        with _answering():
            return await self._log.read(log, after, limit, source)

    async def follow(self, log: str, after: int, idle: timedelta) -> AsyncGenerator[list[Entry], None]:
        """See `EventFeed.follow`.

        Raises:
            FellBehind: as there.
            Unavailable: the log does not answer.
        """
        async with aclosing(self._feed.follow(log, after, idle)) as batches:
            with _answering():
                async for entries in batches:
                    yield entries

    async def event(self, entry: Entry, *, is_replay: bool) -> bytes:
        """Return an entry's frame as a server-sent event."""
        # The key as well, for a log that was lost gives its ids anew.
        key = (entry.log, entry.id, entry.key, is_replay)
        known = self._frames.get(key)
        if known is None:
            frame = await self._framing.frame(entry, is_replay=is_replay)
            known = json_event(frame.model_dump_json(), entry.id)
            self._frames[key] = known
            self._size += len(known)
            while self._size > REMEMBERED_BYTES:
                self._size -= len(self._frames.popitem(last=False)[1])
        return known

    async def close(self) -> None:
        """Stop following."""
        await self._feed.close()


@contextmanager
def _answering() -> Iterator[None]:
    """Turn whatever a backend raises into what the routes know."""
    try:
        yield
    except TurnkeeperError:
        raise
    except Exception as error:
        raise Unavailable(f"the live log does not answer: {error}") from error
