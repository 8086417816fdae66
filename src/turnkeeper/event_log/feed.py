"""Follows logs for any number of readers in a process, with one poll for all of them."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import takewhile

from turnkeeper.errors import TurnkeeperError
from turnkeeper.event_log.entries import Entry, EventLog

BUFFERED_ENTRIES = 2_000
"""How many of a log's newest entries are kept for its followers; one that falls further behind has to resume."""

WAIT_PATIENCE = timedelta(seconds=5)
"""How long one poll lasts when nothing happens."""

RETRY_PAUSE = timedelta(seconds=1)
"""How long a log that failed is left alone."""


class FellBehind(TurnkeeperError):
    """A reader was too slow for the buffer; it goes on from the last id that it has."""


class EventFeed:
    """The followers of a process."""

    def __init__(self, log: EventLog) -> None:
        """Follow logs of `log`."""
        self._log = log
        self._tails: dict[str, _Tail] = {}
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    async def follow(self, log: str, after: int, idle: timedelta | None = None) -> AsyncGenerator[list[Entry], None]:
        """Yield what comes after an id, for ever: first what the log holds already, then what is appended.

        Args:
            log: the log.
            after: the id.
            idle: yield nothing, an empty list, whenever nothing came for so long.

        Raises:
            FellBehind: the reader had caught up and then let the buffer run full, or the log began anew.
        """
        with self._tail(log) as tail:
            if tail.newest is None:
                tail.begin((await self._log.bounds(log)).newest)
                self._wake_poller()
            is_live = False
            while True:
                fresh, entries = tail.fresh, tail.after(after)
                if entries is None and is_live:
                    raise FellBehind("too slow: resume after the last id")
                if entries is None:
                    entries = await self._log.read(log, after)
                    # Nothing there means that what lies between was trimmed.
                    after = after if entries else tail.base
                elif entries:
                    is_live = True
                elif not await _is_set(fresh, idle):
                    yield []
                if entries:
                    yield entries
                    after = entries[-1].id

    async def close(self) -> None:
        """Stop polling."""
        if self._poller is not None:
            self._poller.cancel()
            with suppress(asyncio.CancelledError):
                await self._poller

    @contextmanager
    def _tail(self, log: str) -> Iterator["_Tail"]:
        tail = self._tails.setdefault(log, _Tail())
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers and self._tails.get(log) is tail:
                del self._tails[log]

    def _wake_poller(self) -> None:
        self._changed.set()
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while tails := {log: tail for log, tail in self._tails.items() if tail.newest is not None}:
            self._changed.clear()
            try:
                news = await self._news({log: tail.newest or 0 for log, tail in tails.items()})
            except Exception:
                # Readers see nothing new until the log is back.
                await asyncio.sleep(RETRY_PAUSE.total_seconds())
                continue
            for log, entries in news.items():
                # Not to the tail of followers who came meanwhile, which begins elsewhere.
                tails[log].add(entries)
            if news == {} and not self._changed.is_set():
                await self._end_restarted(tails)

    async def _end_restarted(self, tails: dict[str, "_Tail"]) -> None:
        """End the tails of logs whose ids began anew: one that was deleted, or whose server forgot it."""
        for log, tail in tails.items():
            with suppress(Exception):
                if (await self._log.bounds(log)).newest < (tail.newest or 0):
                    tail.end()
                    if self._tails.get(log) is tail:
                        del self._tails[log]

    async def _news(self, positions: dict[str, int]) -> dict[str, list[Entry]]:
        """Return what a poll finds; nothing if it is ended because somebody follows another log."""
        waiting = asyncio.ensure_future(self._log.wait(positions, WAIT_PATIENCE))
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([waiting, changing], return_when=asyncio.FIRST_COMPLETED)
            # What a poll that is ended would have found is found by the next.
            return waiting.result() if waiting.done() else {}
        finally:
            waiting.cancel()
            changing.cancel()
            await asyncio.gather(waiting, changing, return_exceptions=True)


async def _is_set(event: asyncio.Event, patience: timedelta | None) -> bool:
    """Wait for an event, and tell whether it came in time."""
    try:
        async with asyncio.timeout(None if patience is None else patience.total_seconds()):
            await event.wait()
    except TimeoutError:
        return False
    return True


class _Tail:
    """The newest entries of one log."""

    def __init__(self) -> None:
        self.followers = 0
        self.base = 0
        """Entries after this id are in the buffer."""
        self.newest: int | None = None
        self.fresh = asyncio.Event()
        """Is set, and replaced, when entries are added."""
        self.has_ended = False
        self._entries: deque[Entry] = deque()

    def begin(self, newest: int) -> None:
        if self.newest is None:
            self.base = self.newest = newest

    def add(self, entries: list[Entry]) -> None:
        self._entries.extend(entries)
        self.newest = entries[-1].id
        while len(self._entries) > BUFFERED_ENTRIES:
            self.base = self._entries.popleft().id
        self.fresh.set()
        self.fresh = asyncio.Event()

    def end(self) -> None:
        self.has_ended = True
        self.fresh.set()

    def after(self, position: int) -> list[Entry] | None:
        """Return the entries after an id, or None if they are not all here.

        Raises:
            FellBehind: the log began anew, so that the id means something else.
        """
        if self.has_ended:
            raise FellBehind("the log began anew: resume, and be told so")
        if position < self.base:
            return None
        # From the end, because most readers want just the last.
        found = list(takewhile(lambda entry: entry.id > position, reversed(self._entries)))
        found.reverse()
        return found
