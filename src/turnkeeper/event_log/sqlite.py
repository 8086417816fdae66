"""The embedded backend: one SQLite file that the API and several workers on one machine share."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from turnkeeper.event_log.entries import PAGE, Bounds, Entry, NewEntry

POLL_INTERVAL = timedelta(milliseconds=10)
"""How often a process that has followers looks whether the file has changed."""

LOCK_PATIENCE = timedelta(seconds=5)
"""How long a write waits for another process's write."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    log TEXT NOT NULL, id INTEGER NOT NULL, at REAL NOT NULL, source TEXT NOT NULL, seq INTEGER NOT NULL,
    key TEXT NOT NULL, kind TEXT NOT NULL, step INTEGER, attempt INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (log, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS entries_by_key ON entries (log, key);
CREATE INDEX IF NOT EXISTS entries_by_source ON entries (log, source, id);
CREATE INDEX IF NOT EXISTS entries_by_age ON entries (at);
CREATE TABLE IF NOT EXISTS heads (
    log TEXT NOT NULL, source TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (log, source)
);
"""
# `heads` remembers the last id of a log (source "") and the last seq of each source, so that trimming ends no count.

_NEXT = """
INSERT INTO heads (log, source, last) VALUES (?, ?, ?)
ON CONFLICT (log, source) DO UPDATE SET last = last + 1 RETURNING last
"""
_READ = """
SELECT id, at, source, seq, key, kind, step, attempt, body FROM entries
WHERE log = :log AND id > :after AND (:source IS NULL OR source = :source) ORDER BY id LIMIT :limit
"""

ResultT = TypeVar("ResultT")


class SQLiteEventLog:
    """See `EventLog`."""

    def __init__(self, path: Path) -> None:
        """Use a file, which is made if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two connections, because SQLite tells a connection only of what others changed. Each has a thread of its own.
        self._writer = _Connection(path)
        self._reader = _Connection(path)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open a file off the event loop."""
        return await asyncio.to_thread(cls, path)

    async def append(self, entries: Sequence[NewEntry]) -> None:
        """See `EventLog.append`."""
        await self._writer.transact(lambda connection: _insert(connection, entries))

    async def read(self, log: str, after: int = 0, limit: int = PAGE, source: str | None = None) -> list[Entry]:
        """See `EventLog.read`."""
        asked = {"log": log, "after": after, "source": source, "limit": limit}
        return await self._reader.run(lambda connection: [_entry(row) for row in connection.execute(_READ, asked)])

    async def wait(self, positions: Mapping[str, int], patience: timedelta) -> dict[str, list[Entry]]:
        """See `EventLog.wait`."""
        deadline = time.monotonic() + patience.total_seconds()
        while True:
            version = await self._reader.run(_version)
            news = {log: entries for log, after in positions.items() if (entries := await self.read(log, after))}
            if news:
                return news
            while await self._reader.run(_version) == version:
                if time.monotonic() >= deadline:
                    return {}
                await asyncio.sleep(POLL_INTERVAL.total_seconds())

    async def bounds(self, log: str) -> Bounds:
        """See `EventLog.bounds`."""
        return await self._reader.run(lambda connection: _bounds(connection, log))

    async def delete(self, log: str) -> None:
        """See `EventLog.delete`."""

        def forget(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM entries WHERE log = ?", (log,))
            connection.execute("DELETE FROM heads WHERE log = ?", (log,))

        await self._writer.transact(forget)

    async def trim(self, before: datetime) -> None:
        """See `EventLog.trim`."""
        await self._writer.transact(
            lambda connection: connection.execute("DELETE FROM entries WHERE at < ?", (before.timestamp(),))
        )

    async def close(self) -> None:
        """See `EventLog.close`."""
        await self._reader.close()
        await self._writer.close()


class _Connection:
    """A connection with its thread."""

    def __init__(self, path: Path) -> None:
        # Transactions are begun explicitly, so that a write takes the lock before it reads what it counts from.
        self._connection = sqlite3.connect(
            path, isolation_level=None, timeout=LOCK_PATIENCE.total_seconds(), check_same_thread=False
        )
        _write_ahead(self._connection)
        self._connection.execute("PRAGMA synchronous = normal")
        self._connection.executescript(_SCHEMA)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="event-log")

    async def run(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Do some work in the connection's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)

    async def transact(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        """Do some work, all of it or nothing."""

        def transact(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                work(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

        await self.run(transact)

    async def close(self) -> None:
        """Close it, when what was begun is done."""
        await self.run(sqlite3.Connection.close)
        self._thread.shutdown(wait=False)


def _write_ahead(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = wal")
        except sqlite3.OperationalError:
            # Another process makes the file at this moment; for this one lock SQLite itself does not wait.
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_INTERVAL.total_seconds())
        else:
            return


def _insert(connection: sqlite3.Connection, entries: Sequence[NewEntry]) -> None:
    for entry in entries:
        known = connection.execute("SELECT 1 FROM entries WHERE log = ? AND key = ?", (entry.log, entry.key))
        if known.fetchone():
            continue
        [(number,)] = connection.execute(_NEXT, (entry.log, "", 1)).fetchall()
        [(seq,)] = connection.execute(_NEXT, (entry.log, entry.source, 0)).fetchall()
        connection.execute(
            "INSERT INTO entries (log, id, at, source, seq, key, kind, step, attempt, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.log,
                number,
                entry.at.timestamp(),
                entry.source,
                seq,
                entry.key,
                entry.kind,
                entry.step,
                entry.attempt,
                json.dumps(entry.body, ensure_ascii=False, separators=(",", ":")),
            ),
        )


def _entry(row: tuple[Any, ...]) -> Entry:
    number, at, source, seq, key, kind, step, attempt, body = row
    # Only this file writes these rows, so they need no checking; that is most of the cost of reading one.
    return Entry.model_construct(
        id=number,
        at=datetime.fromtimestamp(at, UTC),
        source=source,
        seq=seq,
        key=key,
        kind=kind,
        step=step,
        attempt=attempt,
        body=json.loads(body),
    )


def _bounds(connection: sqlite3.Connection, log: str) -> Bounds:
    [(oldest, newest)] = connection.execute(
        "SELECT (SELECT min(id) FROM entries WHERE log = :log),"
        " (SELECT last FROM heads WHERE log = :log AND source = '')",
        {"log": log},
    ).fetchall()
    return Bounds((newest or 0) + 1 if oldest is None else oldest, newest or 0)


def _version(connection: sqlite3.Connection) -> int:
    [(version,)] = connection.execute("PRAGMA data_version").fetchall()
    return int(version)
