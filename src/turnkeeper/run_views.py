"""What the frames of an instance add up to: its turns and its tree of runs, for whoever shows them (CR rows).

    state = WatchState()
    async for _, frame in client.events("Assistant", "demo"):
        state = apply_frame(state, frame)
        show(state.turns, state.runs_by_tool_call_id, state.unbound_runs)

Everything here is pure: a state never changes, and a frame that adds nothing gives back the very same state, whether it
is read for the second time, tells of a run that nobody knows, or makes no sense.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from pydantic import TypeAdapter, ValidationError

from turnkeeper.chunks import DataChunk, UIMessageChunk
from turnkeeper.frames import (
    AgentToolEventFrame,
    EntryFrame,
    EventFrame,
    Frame,
    GapFrame,
    MessageFrame,
    ResyncFrame,
    RunAborted,
    RunChunk,
    RunError,
    RunFinished,
    RunInterrupted,
    RunStarted,
    SnapshotFrame,
    TurnAborted,
    TurnChunk,
    TurnError,
    TurnEventFrame,
    TurnFinished,
    TurnStarted,
)
from turnkeeper.runs import END_STATUSES, AgentToolMilestone, AgentToolProgress, AgentToolRunInfo
from turnkeeper.streamed_parts import MILESTONE
from turnkeeper.turns import TURN_END_STATUSES, TurnInfo
from turnkeeper.watch_state import RunView, Sequences, TurnView, WatchState

PROGRESS = "data-agent-progress"
"""The type of the chunks that tell of progress (PR-06)."""

FINAL_STATUSES = END_STATUSES - {"interrupted"}
"""How a run has ended for good (CR-14 as decided)."""

_FRAME: TypeAdapter[Frame] = TypeAdapter(Frame)
_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)


def read_frame(data: object) -> Frame | None:
    """Return the frame in an event's data, or None if it is none that this release knows (CR-17)."""
    try:
        return _FRAME.validate_json(data) if isinstance(data, str | bytes) else _FRAME.validate_python(data)
    except ValidationError:
        return None


def apply_frame(state: WatchState, frame: Frame) -> WatchState:
    """Return the state with what a frame tells; the very same if it tells nothing new."""
    match frame:
        case ResyncFrame(reason="too-slow"):
            return state  # What follows goes on from the last frame.
        case ResyncFrame():
            return WatchState() if state != WatchState() else state
        case SnapshotFrame():
            return _with_snapshot(state, frame)
        case _:
            seen = state.seen.get(frame.source, Sequences())
            if seen.holds(frame.sequence):
                return state
            told = _with_event(state, frame)
            if told is state:
                return state
            return replace(told, seen={**state.seen, frame.source: seen.plus(frame.sequence)})


def _with_event(state: WatchState, frame: EntryFrame) -> WatchState:
    match frame:
        case GapFrame(lost=lost):
            return replace(state, lost=state.lost + lost)
        case MessageFrame() | EventFrame():
            return state
        case AgentToolEventFrame():
            run = _next_run(state.runs_by_id.get(frame.event.run_id), frame)
            return state if run is None else replace(state, runs_by_id={**state.runs_by_id, run.run_id: run})
        case TurnEventFrame():
            turn = _next_turn(state.turns_by_id.get(frame.event.turn_id), frame)
            return state if turn is None else replace(state, turns_by_id={**state.turns_by_id, turn.turn_id: turn})
        case _:
            assert_never(frame)


def _next_run(run: RunView | None, frame: AgentToolEventFrame) -> RunView | None:
    """Return how a run stands after a frame, or None if the frame is to be ignored."""
    event = frame.event
    if isinstance(event, RunStarted):
        return _started_run(run, frame, event)
    if run is None:
        return None  # CR-10
    if isinstance(event, RunChunk):
        return _run_with_chunk(run, frame, event.body)
    return None if run.status in FINAL_STATUSES else _ended_run(run, frame.at, event)  # CR-14


def _ended_run(run: RunView, at: datetime, event: RunFinished | RunError | RunAborted | RunInterrupted) -> RunView:
    """Return a run as it ended, with nothing of an earlier end (CR-15)."""
    ended = replace(run, ended_at=at, summary=None, error=None, reason=None, child_still_running=None)
    match event:
        case RunFinished(summary=summary):
            return replace(ended, status="completed", summary=summary)
        case RunError(error=error):
            return replace(ended, status="error", error=error, is_refused=bool(event.refused))
        case RunAborted(reason=why):
            return replace(ended, status="aborted", error=why)
        case RunInterrupted(error=error, reason=reason, child_still_running=goes_on):
            return replace(ended, status="interrupted", error=error, reason=reason, child_still_running=goes_on)
        case _:
            assert_never(event)


def _started_run(run: RunView | None, frame: AgentToolEventFrame, event: RunStarted) -> RunView | None:
    if run is not None and run.is_refused:
        run = None  # DI-15: what was refused may be dispatched again, and begins anew.
    if run is not None and not run.is_open:
        return None  # CR-11
    return replace(
        run or RunView(run_id=event.run_id, agent_type=event.agent_type),
        agent_type=event.agent_type,
        status="running",
        order=event.order,
        parent_tool_call_id=frame.parent_tool_call_id or event.parent_tool_call_id or None,
        input_preview=event.input_preview,
        display=event.display,
        started_at=frame.at,
    )


def _run_with_chunk(run: RunView, frame: AgentToolEventFrame, body: str) -> RunView | None:
    chunk = _read_chunk(body)
    if chunk is None:
        return None  # CR-16
    if isinstance(chunk, DataChunk) and chunk.type == PROGRESS:
        return _run_with_progress(run, frame, chunk)
    streamed = run.streamed.add(chunk, frame.step, frame.attempt)
    if streamed is None:
        return None
    run = replace(run, streamed=streamed)
    if isinstance(chunk, DataChunk) and chunk.type == MILESTONE:
        return _run_with_milestone(run, frame, chunk)
    return run


def _run_with_progress(run: RunView, frame: AgentToolEventFrame, chunk: DataChunk) -> RunView | None:
    """Take a report, which replaces the one before as a whole (CR-06)."""
    try:
        progress = AgentToolProgress.model_validate({"at": frame.at, **_fields(chunk)})
    except ValidationError:
        return None
    # By the run's own count and not by the clock: the next report may come from another machine.
    if frame.sequence < run.progress_sequence:
        return run
    return replace(run, progress=progress, progress_sequence=frame.sequence)


def _run_with_milestone(run: RunView, frame: AgentToolEventFrame, chunk: DataChunk) -> RunView:
    """Take a milestone, once, and show it as the latest progress unless there is a later one (CR-07, CR-08)."""
    fields = {"at": frame.at, **_fields(chunk)}
    try:
        milestone = AgentToolMilestone.model_validate(fields)
        reported = AgentToolProgress.model_validate({**fields, "milestone": milestone.name, "data": None})
    except ValidationError:
        return run
    if any(known.sequence == milestone.sequence for known in run.milestones):
        return run
    milestones = sorted([*run.milestones, milestone], key=lambda known: known.sequence)
    run = replace(run, milestones=tuple(milestones))
    # By when it was reported: it comes by way of the run's workflow, and a later report may have overtaken it.
    if run.progress is not None and reported.at < run.progress.at:
        return run
    update = {name: value for name, value in dict(reported).items() if value is not None}
    progress = reported if run.progress is None else run.progress.model_copy(update=update)
    return replace(run, progress=progress, progress_sequence=max(frame.sequence, run.progress_sequence))


def _next_turn(turn: TurnView | None, frame: TurnEventFrame) -> TurnView | None:
    """Return how a turn stands after a frame, or None if the frame is to be ignored."""
    event = frame.event
    if isinstance(event, TurnStarted):
        known = turn or TurnView(turn_id=event.turn_id, message_id=event.message_id)
        return replace(known, status="running", started_at=frame.at) if known.is_open else None
    if turn is None:
        return None
    if isinstance(event, TurnChunk):
        chunk = _read_chunk(event.body)
        streamed = None if chunk is None else turn.streamed.add(chunk, frame.step, frame.attempt)
        return None if streamed is None else replace(turn, streamed=streamed)
    if not turn.is_open:
        return None
    match event:
        case TurnFinished():
            return replace(turn, status="completed", ended_at=frame.at)
        case TurnError(error=error):
            return replace(turn, status="error", error=error, ended_at=frame.at)
        case TurnAborted(reason=why):
            return replace(turn, status="aborted", error=why, ended_at=frame.at)
        case _:
            assert_never(event)


def _with_snapshot(state: WatchState, frame: SnapshotFrame) -> WatchState:
    """Take what Temporal knows and the frames did not tell: runs and turns that are new, and ends."""
    runs = {info.run_id: _told_run(state.runs_by_id.get(info.run_id), info) for info in frame.runs}
    turns = {info.turn_id: _told_turn(state.turns_by_id.get(info.turn_id), info) for info in frame.turns}
    is_known = all(state.runs_by_id.get(key) is run for key, run in runs.items())
    if is_known and all(state.turns_by_id.get(key) is turn for key, turn in turns.items()):
        return state
    return replace(state, runs_by_id={**state.runs_by_id, **runs}, turns_by_id={**state.turns_by_id, **turns})


def _told_run(run: RunView | None, info: AgentToolRunInfo) -> RunView:
    if run is not None and (info.status not in END_STATUSES or run.status in {info.status, *FINAL_STATUSES}):
        return run
    known = run or RunView(
        run_id=info.run_id,
        agent_type=info.agent_type,
        order=info.display_order,
        parent_tool_call_id=info.parent_tool_call_id or None,
        input_preview=info.input_preview,
        display=info.display,
        started_at=info.started_at,
    )
    return replace(
        known,
        status=info.status,
        summary=info.summary,
        error=info.error,
        reason=info.reason,
        child_still_running=info.child_still_running,
        ended_at=info.completed_at,
    )


def _told_turn(turn: TurnView | None, info: TurnInfo) -> TurnView:
    if turn is not None and (info.status not in TURN_END_STATUSES or not turn.is_open):
        return turn
    known = turn or TurnView(turn_id=info.turn_id, message_id=info.message_id, started_at=info.started_at)
    return replace(known, status=info.status, error=info.error, ended_at=info.completed_at)


def _read_chunk(body: str) -> UIMessageChunk | None:
    try:
        return _CHUNK.validate_json(body)
    except ValidationError:
        return None


def _fields(chunk: DataChunk) -> dict[str, Any]:
    return chunk.data if isinstance(chunk.data, dict) else {}
