"""What crosses a workflow's edge: inputs, results, and the states that continue-as-new carries."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue

from turnkeeper.dispatches import AgentProfile, RunRecord, RunReported
from turnkeeper.messages import UIMessage
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress, Display
from turnkeeper.wire import Name, WireModel

TurnStatus = Literal["queued", "running", "completed", "error", "aborted"]
TURN_END_STATUSES: frozenset[str] = frozenset({"completed", "error", "aborted"})

MAX_MESSAGE_BYTES = 256 * 1024
"""The largest message that a session accepts, as JSON."""

MAX_INPUT_BYTES = 1024 * 1024
"""The largest input of an agent-tool run, as JSON."""

MAX_STATE_BYTES = 256 * 1024
"""The largest state that an instance keeps, as JSON."""

MAX_OPEN_RUNS = 500
"""How many runs one turn, run or session may have open, whatever its agent's cap; Temporal allows 2,000 children."""

MAX_CALLS = 200
"""How many tool calls of one step are carried out; Temporal allows 2,000 activities under way."""

MAX_DEPTH = 5
"""How many runs may be nested inside each other (field case 24)."""


class TranscriptRef(WireModel):
    """Where an activity reads a conversation, so that none travels in its input."""

    workflow_id: str
    first_temporal_run_id: str
    """Names the execution chain: stable over continue-as-new, different after a restart under the same id."""
    revision: int = 0
    """Grows whenever the first `length` messages change; part of the key they are cached under."""
    length: int


class MessagesInput(WireModel):
    """Which messages a reader asks for."""

    after: Annotated[int, Field(ge=0)] = 0
    """How many messages, from the first, the reader already has."""


class MessagesPage(WireModel):
    """Some messages in order, as many as one page holds."""

    messages: tuple[UIMessage, ...]
    total: int
    """How many messages there are in all."""
    revision: int = 0


class SubmitInput(WireModel):
    """A message for an instance, which becomes a turn."""

    submission_id: Name
    """The sender's: the same id again is the same submission."""
    message: UIMessage
    profile: AgentProfile


class TurnInfo(WireModel):
    """A turn as its session knows it."""

    turn_id: str
    submission_id: str
    message_id: str
    status: TurnStatus
    submitted_at: AwareDatetime
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    error: str | None = None


class CancelTurnInput(WireModel):
    """Which turn to stop, and why."""

    turn_id: str
    reason: str | None = None


class SteerInput(WireModel):
    """A message into a turn or run that goes on, for the model to read before its next step."""

    message_id: str
    """The sender's: the same id again is the same message."""
    text: str


class WrapUpInput(WireModel):
    """Asks a turn or run to finish with what it has."""

    reason: str | None = None


class GuidanceState(WireModel):
    """What was said into a loop, between two of its steps."""

    waiting: tuple[SteerInput, ...] = ()
    """Not yet put before the model."""
    seen: tuple[str, ...] = ()
    """The ids of all that was said."""
    is_wrapping_up: bool = False


class ClearMessagesInput(WireModel):
    """Asks to begin the conversation anew."""

    request_id: str
    """The sender's: the same id again is the same request, and clears nothing that came after."""


class SetStateInput(WireModel):
    """Replaces an instance's state."""

    request_id: str
    """The sender's: the same id again is the same request."""
    value: JsonValue = None


class InstanceState(WireModel):
    """What an instance remembers beside its conversation."""

    value: JsonValue = None
    is_set: bool = False
    """Whether it was ever set; until then its agent's `initial_state` counts."""


class SessionSnapshot(WireModel):
    """How an instance stands."""

    agent_type: str
    name: str
    active_turn_id: str | None = None
    queued_turns: int
    turns_submitted: int = 0
    """How many turns were ever submitted, which is the last turn's id."""
    messages: int
    turns: tuple[TurnInfo, ...]
    """The latest turns, oldest first."""


class QueuedTurn(WireModel):
    """A submission that waits to become the next turn."""

    kind: Literal["turn"] = "turn"
    turn_id: str
    message: UIMessage
    profile: AgentProfile


class QueuedDelivery(WireModel):
    """The end of a run that the session watched, on its way to the agent's hook and callback."""

    kind: Literal["delivery"] = "delivery"
    path: str
    """The run's path below the session."""
    slot: Literal["finish", "give_up"]


class QueuedNotice(WireModel):
    """A milestone of a run that the session watched, on its way into the conversation."""

    kind: Literal["notice"] = "notice"
    path: str
    milestone: str
    data: JsonValue = None


QueuedWork = Annotated[QueuedTurn | QueuedDelivery | QueuedNotice, Field(discriminator="kind")]


class TurnRecord(WireModel):
    """A turn with what its session needs to recognise its submission."""

    info: TurnInfo
    digest: str
    """A fingerprint of the message."""


class Compaction(WireModel):
    """Stands for the beginning of a conversation that is too long for its model."""

    summary: str
    replaces: Annotated[int, Field(ge=0)]
    """How many messages, from the first, the model is not shown any more."""


class ContextState(WireModel):
    """How full a model's context is, and what was done about it."""

    compaction: Compaction | None = None
    tokens: int = 0
    """What the last step took, input and output, as the provider counts."""


class SessionInput(WireModel):
    """Starts, or continues, an instance's session."""

    profile: AgentProfile
    """The instance's agent as its first caller knew it; each submission brings a newer one."""
    turns_submitted: int = 0
    messages: tuple[UIMessage, ...] = ()
    queue: tuple[QueuedWork, ...] = ()
    reports: tuple[RunReported, ...] = ()
    """On their way to `on_progress`."""
    revision: int = 0
    """How often the messages were cleared."""
    state: InstanceState = InstanceState()
    context: ContextState | None = None
    seen_requests: tuple[str, ...] = ()
    """The ids of the latest requests that must not be carried out twice."""
    turns: tuple[TurnRecord, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    reconcile_at: AwareDatetime | None = None
    """When the runs that go on are looked up next."""


class TurnInput(WireModel):
    """Starts one turn of an instance."""

    instance: str
    """The session's workflow id."""
    turn_id: str
    profile: AgentProfile
    transcript: TranscriptRef
    """The conversation up to and with the message that the turn answers."""
    context: ContextState | None = None
    open_runs: int = 0
    """Runs of the instance that were going on when the turn started; they hold slots of its cap (CC-05)."""
    state: "LoopState | None" = None


class TurnResult(WireModel):
    """What a turn adds to its session."""

    message: UIMessage | None = None
    """The assistant message; None when the turn was stopped before it wrote anything."""
    runs: tuple[RunRecord, ...] = ()
    context: ContextState | None = None
    """How full the model's context was left."""


class Report(WireModel):
    """What a run's code reports of how far it is."""

    report_id: str
    """The same id again is the same report."""
    at: AwareDatetime
    milestone: str | None = None
    """Names a milestone, which is kept; without, the report replaces the one before."""
    fraction: float | None = None
    message: str | None = None
    phase: str | None = None
    data: JsonValue = None


class ReportInput(WireModel):
    """Reports of a run's code, in order."""

    reports: tuple[Report, ...]


class ReportState(WireModel):
    """What a run remembers of its reports."""

    progress: AgentToolProgress | None = None
    milestones: tuple[AgentToolMilestone, ...] = ()
    seen: tuple[str, ...] = ()
    """The ids of the latest milestones' reports, for a signal that comes twice around a continue-as-new."""


class RunInput(WireModel):
    """Starts one agent-tool run."""

    run_id: str
    profile: AgentProfile
    dispatcher: str
    """The workflow id of the turn, run or session that dispatched it."""
    depth: int
    input: JsonValue = None
    input_preview: JsonValue = None
    """What its `started` frame shows, if not the beginning of the input."""
    parent_tool_call_id: str | None = None
    display_order: int = 0
    display: Display | None = None
    forwards_progress: bool = False
    """Whether the dispatcher's agent wants to hear of the run's reports."""
    silence_budget: timedelta | None = None
    """How long it may be silent before it is given up; None if it may be for ever."""
    reports_to: str | None = None
    """The session to signal at the end; None when the dispatcher awaits the run as its child."""
    state: "LoopState | None" = None


class LoopState(WireModel):
    """A model-tool loop between two steps."""

    messages: tuple[UIMessage, ...] = ()
    """What the loop added so far: one message a step, for a run after its input message."""
    steps: int = 0
    runs: tuple[RunRecord, ...] = ()
    reports: ReportState | None = None
    """Of a run; a turn reports to nobody."""
    guidance: GuidanceState | None = None
    context: ContextState | None = None
    refused_steps: int | None = None
    """How many steps in a row had no call that could be carried out."""
    started_at: AwareDatetime


TurnInput.model_rebuild()
RunInput.model_rebuild()
