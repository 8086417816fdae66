"""Frames: what a reader of an instance's events gets, in the shape that `agent-tool-event` clients know (EV rows).

A frame of a run is an `agent-tool-event`, one of a turn a `turn-event`. The log stores the events; a frame is an event
with where it stands: its source, and its sequence, which grows by one in each source and is the same live and replayed.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue

from turnkeeper.events import Event
from turnkeeper.messages import UIMessage
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, Display, InterruptedReason, generic_error
from turnkeeper.turns import TurnInfo
from turnkeeper.wire import WireModel


class RunStarted(WireModel):
    """A run was dispatched (EV-02)."""

    kind: Literal["started"] = "started"
    run_id: str
    """The run's path below its root instance: `a`, or `a/runs/b` for a run of a run."""
    agent_type: str
    input_preview: JsonValue = None
    order: int = 0
    display: Display | None = None
    parent_tool_call_id: str | None = None
    """The tool call that dispatched it; frames carry it on their envelope (EV-01)."""


class RunChunk(WireModel):
    """A run streamed, reported progress or reached a milestone (EV-03, EV-08)."""

    kind: Literal["chunk"] = "chunk"
    run_id: str
    body: str
    """One `UIMessageChunk` as JSON text."""


class RunFinished(WireModel):
    """A run completed (EV-04)."""

    kind: Literal["finished"] = "finished"
    run_id: str
    summary: str = ""


class RunError(WireModel):
    """A run failed (EV-05)."""

    kind: Literal["error"] = "error"
    run_id: str
    error: str
    refused: Literal[True] | None = None
    """Whether it was not admitted and never began; it may be dispatched again, and then begins anew (DI-15)."""


class RunAborted(WireModel):
    """A run was cancelled (EV-06)."""

    kind: Literal["aborted"] = "aborted"
    run_id: str
    reason: str | None = None


class RunInterrupted(WireModel):
    """A run was given up (EV-07); it may still end otherwise."""

    kind: Literal["interrupted"] = "interrupted"
    run_id: str
    error: str
    reason: InterruptedReason | None = None
    child_still_running: bool | None = None


RunEvent = Annotated[
    RunStarted | RunChunk | RunFinished | RunError | RunAborted | RunInterrupted, Field(discriminator="kind")
]


class TurnStarted(WireModel):
    """A turn began."""

    kind: Literal["started"] = "started"
    turn_id: str
    message_id: str
    """The id of the assistant message that it writes."""


class TurnChunk(WireModel):
    """A turn streamed."""

    kind: Literal["chunk"] = "chunk"
    turn_id: str
    body: str
    """One `UIMessageChunk` as JSON text."""


class TurnFinished(WireModel):
    """A turn completed."""

    kind: Literal["finished"] = "finished"
    turn_id: str


class TurnError(WireModel):
    """A turn failed."""

    kind: Literal["error"] = "error"
    turn_id: str
    error: str


class TurnAborted(WireModel):
    """A turn was cancelled."""

    kind: Literal["aborted"] = "aborted"
    turn_id: str
    reason: str | None = None


TurnEvent = Annotated[TurnStarted | TurnChunk | TurnFinished | TurnError | TurnAborted, Field(discriminator="kind")]

END_KINDS = frozenset({"finished", "error", "aborted"})
"""The events after which a turn or run never changes; `interrupted` is not one of them."""


class _Frame(WireModel):
    source: str
    """The workflow id of the turn or run."""
    sequence: int
    """Grows by one in a source, from 0; the same however often it is read."""
    at: AwareDatetime
    step: int | None = None
    """The model step that streamed a chunk; none for a tool's output, which belongs to no attempt."""
    attempt: int | None = None
    """Which attempt of the step streamed it, if not the first: it supersedes what earlier attempts streamed."""
    replay: Literal[True] | None = None
    """Whether it was in the log before its reader came (EV-10)."""


class AgentToolEventFrame(_Frame):
    """Something happened to a run (EV-01)."""

    type: Literal["agent-tool-event"] = "agent-tool-event"
    parent_tool_call_id: str | None = None
    event: RunEvent


class TurnEventFrame(_Frame):
    """Something happened to a turn."""

    type: Literal["turn-event"] = "turn-event"
    event: TurnEvent


class GapFrame(_Frame):
    """Entries were lost while the event log did not answer; what they told of is in Temporal."""

    type: Literal["gap"] = "gap"
    lost: int


class MessageFrame(_Frame):
    """A message became part of the conversation outside a turn, such as a notice of a milestone."""

    type: Literal["message"] = "message"
    message: UIMessage


class EventFrame(_Frame):
    """A diagnostic event."""

    type: Literal["event"] = "event"
    event: Event


class SnapshotFrame(WireModel):
    """How an instance stands by Temporal, for a reader whose log does not go back to the beginning."""

    type: Literal["snapshot"] = "snapshot"
    runs: tuple[AgentToolRunInfo, ...]
    turns: tuple[TurnInfo, ...]


class ResyncFrame(WireModel):
    """The reader's last id is of no use here, and what follows begins anew; or the reader is too slow, and resumes."""

    type: Literal["resync"] = "resync"
    reason: Literal["too-old", "unknown", "too-slow"]


EntryFrame = AgentToolEventFrame | TurnEventFrame | MessageFrame | EventFrame | GapFrame
"""What an entry of the log becomes."""

Frame = Annotated[EntryFrame | SnapshotFrame | ResyncFrame, Field(discriminator="type")]
"""Anything that a reader of an instance's events gets."""


def end_event(run_path: str, result: AgentToolResult) -> RunFinished | RunError | RunAborted | RunInterrupted:
    """Return the event that tells how a run ended (CR-15)."""
    match result.status:
        case "completed":
            return RunFinished(run_id=run_path, summary=result.summary or "")
        case "aborted":
            return RunAborted(run_id=run_path, reason=result.error)
        case "error":
            return RunError(run_id=run_path, error=result.error or generic_error("error"))
        case "interrupted":
            return RunInterrupted(
                run_id=run_path,
                error=result.error or generic_error("interrupted"),
                reason=result.reason,
                child_still_running=result.child_still_running,
            )
