"""The live events of an instance and of its whole tree of runs, as server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Query

from api.dependencies import EventsDependency, Instance, InstanceDependency
from api.event_reader import EventReader
from api.sse import HEARTBEAT, HEARTBEAT_INTERVAL, EventStream, json_event
from turnkeeper import names
from turnkeeper.errors import NotFound, Unavailable
from turnkeeper.event_log.entries import Entry, EntryKind
from turnkeeper.event_log.feed import FellBehind
from turnkeeper.frames import END_KINDS, ResyncFrame, SnapshotFrame

router = APIRouter(prefix="/agents/{agent}/{name}/events", tags=["events"])

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The last id that was received; what follows it comes.")
]

After = Annotated[str | None, Query(description="Like Last-Event-ID, which counts more, for a first request.")]
RunFilter = Annotated[str | None, Query(description="The path of a run: only its events and those of its runs.")]
KindFilter = Annotated[tuple[EntryKind, ...], Query(description="Only events of these kinds.")]


@dataclass(frozen=True)
class _Reading:
    """What one reader asked for, settled before the answer's headers go out."""

    instance: Instance
    events: EventReader
    after: int
    newest: int
    """The last id that the log held when the reader came; what is not after it is replayed."""
    resync: Literal["too-old", "unknown"] | None
    is_incomplete: bool
    """Whether the log no longer holds the beginning that the reader should get."""
    run: str | None
    """The workflow id of the run that the reader wants to see, with the runs below it."""
    kinds: frozenset[EntryKind]
    is_over: bool
    """Whether the run had ended when the reader came, so that nothing comes after `newest`."""

    def wants(self, entry: Entry) -> bool:
        """Tell whether the reader is to get an entry."""
        if self.kinds and entry.kind not in self.kinds:
            return False
        return self.run is None or entry.source == self.run or entry.source.startswith(f"{self.run}/")

    def ends_with(self, entry: Entry) -> bool:
        """Tell whether an entry is the last that the reader waits for: the end of its run."""
        is_end = entry.source == self.run and entry.kind == "run" and entry.body.get("kind") in END_KINDS
        return is_end or (self.is_over and entry.id >= self.newest)


async def _settled(
    instance: InstanceDependency,
    events: EventsDependency,
    last_event_id: LastEventId = None,
    after: After = None,
    run: RunFilter = None,
    kind: KindFilter = (),
) -> _Reading:
    """Check what a reader asks for, so that errors still have a status of their own."""
    run_id = _run_workflow_id(instance, run) if run is not None else None
    is_over = run_id is not None and await _has_ended(instance, run_id)
    # Asked after that, so that a run which is over has told everything.
    bounds = await events.bounds(instance.session_id)
    given = last_event_id or after
    position, resync = _position(given, bounds.oldest, bounds.newest)
    reading = _Reading(
        instance=instance,
        events=events,
        after=position,
        newest=bounds.newest,
        resync=resync,
        is_incomplete=position < bounds.oldest - 1,
        run=run_id,
        kinds=frozenset(kind),
        is_over=is_over,
    )
    if reading.is_over and given is not None and resync is None and not await _holds_more(reading):
        raise HTTPException(204)  # Which keeps an EventSource from asking again.
    return reading


@router.get("", response_class=EventStream, responses={204: {"description": "The run has ended."}})
async def events(reading: Annotated[_Reading, Depends(_settled)]) -> EventStream:
    """Stream what happens in an instance and its tree of runs, from the last id that the reader has.

    Each event's data is a frame (`turnkeeper.frames`), its id the cursor to resume from. The stream goes on for ever;
    with `run`, until that run has ended.
    """
    return EventStream(_stream(reading))


async def _stream(reading: _Reading) -> AsyncGenerator[bytes, None]:
    if reading.resync is not None:
        yield json_event(ResyncFrame(reason=reading.resync).model_dump_json())
    if reading.is_incomplete and (snapshot := await _snapshot(reading)) is not None:
        yield json_event(snapshot.model_dump_json())
    if reading.is_over and not await _holds_more(reading):
        return
    try:
        async with aclosing(_batches(reading)) as batches:
            async for entries in batches:
                events = [await reading.events.event(e, is_replay=e.id <= reading.newest) for e in entries]
                yield b"".join(events) or HEARTBEAT
    except FellBehind:
        yield json_event(ResyncFrame(reason="too-slow").model_dump_json())
    except Unavailable:
        return  # The client comes back with its last id.


async def _batches(reading: _Reading) -> AsyncGenerator[list[Entry], None]:
    """Yield what a reader wants, until the end of the run that it asked for; nothing to keep the stream alive."""
    was_idle_after_end = False
    batches = reading.events.follow(reading.instance.session_id, reading.after, HEARTBEAT_INTERVAL)
    async with aclosing(batches):
        async for entries in batches:
            end = next((place for place, entry in enumerate(entries, 1) if reading.ends_with(entry)), None)
            wanted = [entry for entry in entries[:end] if reading.wants(entry)]
            if wanted or not entries:
                yield wanted
            if end is not None or was_idle_after_end:
                return
            # The log may have lost the end; twice, because it may be a moment behind.
            was_idle_after_end = not entries and await _is_over_by_now(reading)


async def _is_over_by_now(reading: _Reading) -> bool:
    return reading.run is not None and await _has_ended(reading.instance, reading.run)


def _position(given: str | None, oldest: int, newest: int) -> tuple[int, Literal["too-old", "unknown"] | None]:
    """Return where a reader begins, and why it is not where it asked."""
    if given is None:
        return 0, None
    if not given.isascii() or not given.isdigit() or len(given) > 18 or int(given) > newest:
        return 0, "unknown"
    if 0 < int(given) < oldest - 1:
        return 0, "too-old"
    return int(given), None


def _run_workflow_id(instance: Instance, path: str) -> str:
    if names.parse_run_path(path) is None:
        raise NotFound(f"{path!r} is no path of runs")
    return names.run_workflow_id(instance.session_id, path)


async def _has_ended(instance: Instance, run: str) -> bool:
    """Tell whether a run has ended.

    Raises:
        NotFound: there is none (DG-03).
    """
    return (await instance.client.requests.describe(run)).close_time is not None


async def _holds_more(reading: _Reading) -> bool:
    """Tell whether the log holds anything that a reader wants and does not have."""
    after = reading.after
    while page := await reading.events.read(reading.instance.session_id, after):
        if any(reading.wants(entry) for entry in page):
            return True
        after = page[-1].id
    return False


async def _snapshot(reading: _Reading) -> SnapshotFrame | None:
    """Return how what the reader watches stands, or None if it does not exist or nobody can say."""
    instance = reading.instance
    try:
        snapshot = await instance.client.snapshot(instance.agent, instance.name)
        runs = await instance.client.runs.registered(instance.session_id)
    except (NotFound, Unavailable):
        return None
    if reading.run is not None:
        own = [row for row in runs if names.run_workflow_id(instance.session_id, row.run_id) == reading.run]
        return SnapshotFrame(runs=tuple(own), turns=())
    return SnapshotFrame(runs=tuple(runs), turns=snapshot.turns)
