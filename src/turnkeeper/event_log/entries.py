"""What an event log holds, and what every backend does."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from pydantic import AwareDatetime, JsonValue

from turnkeeper.names import root_instance
from turnkeeper.wire import WireModel

EntryKind = Literal["turn", "run", "chunk", "progress", "milestone", "message", "event", "gap"]
"""What an entry tells of: the course of a turn or run, a `UIMessageChunk`, a report, or entries that were lost."""

PAGE = 500
"""Entries that one read returns at most, unless it asks for fewer."""


class NewEntry(WireModel):
    """Something to append."""

    source: str
    """The workflow id of the turn or run that it is about; its first three segments name the log."""
    key: str
    """Unique in the log: appending the same key again adds nothing."""
    kind: EntryKind
    body: dict[str, JsonValue]
    at: AwareDatetime
    """When it happened, by the clock of whoever noticed; order is by id, never by this."""
    step: int | None = None
    """The model step that streamed it, if one did."""
    attempt: int = 1
    """Which attempt of that step streamed it; a later attempt supersedes an earlier one's chunks."""

    @property
    def log(self) -> str:
        """The log that it belongs to: one for each root instance and its whole tree of runs."""
        return root_instance(self.source)


class Entry(NewEntry):
    """Something that was appended."""

    id: int
    """Grows by one in a log, from 1."""
    seq: int
    """Grows by one in a source, from 0."""


class Bounds(NamedTuple):
    """Which ids a log holds."""

    oldest: int
    """The first id that can still be read; one more than `newest` when there is none."""
    newest: int
    """The last id that was ever given; 0 when there is none."""


class EventLog(Protocol):
    """An append-only log for each root instance; the backends prove the same suite (`tests/event_log`)."""

    async def append(self, entries: Sequence[NewEntry]) -> None:
        """Append entries in order, each at most once by its key; all of them or, on an error, none."""

    async def read(self, log: str, after: int = 0, limit: int = PAGE, source: str | None = None) -> list[Entry]:
        """Return entries after an id, in order; only those of one source if it is given."""

    async def wait(self, positions: Mapping[str, int], patience: timedelta) -> dict[str, list[Entry]]:
        """Return what came after each log's id, as soon as there is anything, or nothing after `patience`."""

    async def bounds(self, log: str) -> Bounds:
        """Return which ids a log holds."""

    async def delete(self, log: str) -> None:
        """Forget a log; its ids begin anew."""

    async def trim(self, before: datetime) -> None:
        """Forget entries that happened before a time, but not necessarily what is behind a younger one; ids go on."""

    async def close(self) -> None:
        """Let go of connections."""
