"""Appends from the background, so that a slow or dead log holds nobody up."""

import asyncio
import logging
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from turnkeeper.event_log.entries import EventLog, NewEntry

FLUSH_PATIENCE = timedelta(seconds=1)
"""How long anybody waits for entries to be in the log."""

APPEND_PATIENCE = timedelta(seconds=10)
"""How long one append may take before it counts as failed."""

RETRY_PAUSE = timedelta(seconds=1)
"""The pause after an append that failed."""

BATCH = 500
"""Entries that one append takes at most."""

QUEUED_ENTRIES = 10_000
"""Entries that wait for a log that does not answer; further ones are lost to the live view, and it says so."""

logger = logging.getLogger("turnkeeper.event_log")


class EventWriter:
    """Takes entries without waiting, and appends them in order, in batches."""

    def __init__(self, log: EventLog) -> None:
        """Append to `log`."""
        self._log = log
        self._queue: deque[NewEntry] = deque()
        self._lost: Counter[str] = Counter()
        self._added = 0
        """Entries that were ever queued."""
        self._settled = 0
        """How many of them are in the log, or given up."""
        self._is_failing = False
        self._moved = asyncio.Event()
        """Is set, and replaced, when an append ends or the log is found to fail."""
        self._appender: asyncio.Task[None] | None = None

    def add(self, *entries: NewEntry) -> None:
        """Take entries; never waits and never fails."""
        for entry in entries:
            if len(self._queue) < QUEUED_ENTRIES:
                self._enqueue(entry)
            else:
                self._lost[entry.source] += 1
        if self._queue and (self._appender is None or self._appender.done()):
            self._appender = asyncio.create_task(self._append_all())

    async def flush(self) -> None:
        """Wait until what was added is in the log; not for a log that fails, and never beyond `FLUSH_PATIENCE`."""
        last = self._added
        try:
            async with asyncio.timeout(FLUSH_PATIENCE.total_seconds()):
                while self._settled < last and not self._is_failing:
                    await self._moved.wait()
        except TimeoutError as error:
            # One wait is enough: until the log has answered, it fails.
            self._note_failure(error)

    async def close(self) -> None:
        """Give what was added a last chance."""
        await self.flush()
        if self._appender is not None:
            self._appender.cancel()
            await asyncio.wait([self._appender])

    def _enqueue(self, entry: NewEntry) -> None:
        self._queue.append(entry)
        self._added += 1

    async def _append_all(self) -> None:
        size = BATCH
        while self._queue:
            batch = [self._queue[place] for place in range(min(size, len(self._queue)))]
            try:
                async with asyncio.timeout(APPEND_PATIENCE.total_seconds()):
                    await self._log.append(batch)
            except ValueError as error:
                # One of them cannot be stored, because of half a surrogate pair for example. It would be in the way of
                # all others for ever, so they go singly until it is found.
                if len(batch) > 1:
                    size = 1
                    continue
                self._give_up(batch[0], error)
                size = BATCH
            except Exception as error:
                self._note_failure(error)
                await asyncio.sleep(RETRY_PAUSE.total_seconds())
                continue
            for _ in batch:
                self._queue.popleft()
            self._note_success(len(batch))

    def _give_up(self, entry: NewEntry, error: ValueError) -> None:
        # Without the error's text, which quotes what was to be stored.
        logger.error("the entry %s is lost to live views: it cannot be stored (%s)", entry.key, type(error).__name__)
        if entry.kind != "gap":
            self._lost[entry.source] += 1

    def _note_failure(self, error: Exception) -> None:
        if not self._is_failing:
            logger.error("the event log failed, and live views stand still until it is back: %r", error)
        self._is_failing = True
        self._wake()

    def _note_success(self, count: int) -> None:
        if self._is_failing:
            logger.warning("the event log is back; lost to live views: %d entries", self._lost.total())
        self._is_failing = False
        self._settled += count
        for source, lost in self._lost.items():
            # Said where it was lost, by an entry of its own.
            self._enqueue(
                NewEntry(
                    source=source,
                    key=f"{source}#gap/{uuid4().hex}",
                    kind="gap",
                    body={"type": "gap", "lost": lost},
                    at=datetime.now(UTC),
                )
            )
        self._lost.clear()
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
