"""The stores that the event log's tests run on, one for each backend."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue
from redis_server import RedisServer

from turnkeeper.event_log.entries import PAGE, Bounds, Entry, EventLog, NewEntry
from turnkeeper.event_log.redis import RedisEventLog
from turnkeeper.event_log.sqlite import SQLiteEventLog

LOG = "default/Desk/main"
OTHER_LOG = "default/Desk/other"
SOURCE = f"{LOG}/turns/1"
OTHER_SOURCE = f"{OTHER_LOG}/turns/1"


def new_entry(key: str | int, source: str = SOURCE, *, at: datetime | None = None, body: JsonValue = None) -> NewEntry:
    """Return something to append, whose body says `{"value": body}`."""
    return NewEntry(source=source, key=str(key), kind="chunk", body={"value": body}, at=at or datetime.now(UTC))


def new_entries(count: int, source: str = SOURCE, *, first: int = 1) -> list[NewEntry]:
    """Return entries to append whose keys are the ids that they will have in an empty log."""
    return [new_entry(number, source) for number in range(first, first + count)]


async def read_until(log: EventLog, name: str, count: int) -> list[Entry]:
    """Return the first entries of a log as soon as there are so many; fails when that takes too long."""
    found: list[Entry] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            news = await log.wait({name: found[-1].id if found else 0}, timedelta(seconds=1))
            found += news.get(name, [])
    return found


class EventStore(Protocol):
    """A store that lasts longer than the logs which are opened on it."""

    def open(self) -> EventLog:
        """Open a log of its own connections, as another process does."""

    def pause(self) -> None:
        """Let nothing that is appended be answered."""

    def resume(self) -> None:
        """Let it go on."""


class SQLiteStore:
    """A file."""

    def __init__(self, path: Path) -> None:
        """Use a path."""
        self.path = path
        self._blocker: sqlite3.Connection | None = None

    def open(self) -> EventLog:
        """See `EventStore.open`."""
        return SQLiteEventLog(self.path)

    def pause(self) -> None:
        """Lock the file."""
        self._blocker = sqlite3.connect(self.path, isolation_level=None)
        self._blocker.execute("BEGIN IMMEDIATE")

    def resume(self) -> None:
        """Unlock it, if it is locked."""
        if self._blocker is not None:
            self._blocker.close()
            self._blocker = None


class RedisStore:
    """A server."""

    def __init__(self, server: RedisServer) -> None:
        """Use a server that runs."""
        self._server = server
        self.pause = server.pause
        self.resume = server.resume

    def open(self) -> EventLog:
        """See `EventStore.open`."""
        return RedisEventLog(self._server.url)


class WatchedLog:
    """A real log that counts what is asked of it, and lets nothing through while a gate is closed."""

    def __init__(self, log: EventLog) -> None:
        """Ask `log`."""
        self._log = log
        self.calls: Counter[str] = Counter()
        self.positions: Mapping[str, int] = {}
        """Of the last `wait`."""
        self._gates: dict[str, asyncio.Event] = {}
        self._arrived: dict[str, asyncio.Event] = {}
        self._called = asyncio.Condition()

    def close_gate(self, method: str) -> None:
        """Hold back the answers of a method."""
        self._gates[method] = asyncio.Event()
        self._arrived[method] = asyncio.Event()

    def open_gate(self, method: str) -> None:
        """Let the answers through."""
        self._gates.pop(method).set()

    async def arrived(self, method: str) -> None:
        """Wait until a call of the method stands at its gate."""
        await self._arrived[method].wait()

    async def called(self, method: str, times: int) -> None:
        """Wait until a method was called so often."""
        async with self._called:
            await self._called.wait_for(lambda: self.calls[method] >= times)

    async def append(self, entries: Sequence[NewEntry]) -> None:
        """See `EventLog.append`."""
        await self._log.append(entries)
        await self._pass("append")

    async def read(self, log: str, after: int = 0, limit: int = PAGE, source: str | None = None) -> list[Entry]:
        """See `EventLog.read`."""
        found = await self._log.read(log, after, limit, source)
        await self._pass("read")
        return found

    async def wait(self, positions: Mapping[str, int], patience: timedelta) -> dict[str, list[Entry]]:
        """See `EventLog.wait`; held back before it looks or after it found something."""
        self.positions = positions
        await self._pass("wait")
        found = await self._log.wait(positions, patience)
        await self._pass("wait answer")
        return found

    async def bounds(self, log: str) -> Bounds:
        """See `EventLog.bounds`."""
        await self._pass("bounds")
        return await self._log.bounds(log)

    async def delete(self, log: str) -> None:
        """See `EventLog.delete`."""
        await self._log.delete(log)

    async def trim(self, before: datetime) -> None:
        """See `EventLog.trim`."""
        await self._log.trim(before)

    async def close(self) -> None:
        """See `EventLog.close`."""
        await self._log.close()

    async def _pass(self, method: str) -> None:
        async with self._called:
            self.calls[method] += 1
            self._called.notify_all()
        if method in self._gates:
            self._arrived[method].set()
            await self._gates[method].wait()
