"""What crosses a workflow's edge: inputs, results, and the states that continue-as-new carries."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue

from turnkeeper.messages import UIMessage
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress, AgentToolResult, AgentToolRunInfo, Display
from turnkeeper.wire import Name, WireModel

TurnStatus = Literal["queued", "running", "completed", "error", "aborted"]
TURN_END_STATUSES: frozenset[str] = frozenset({"completed", "error", "aborted"})

MAX_MESSAGE_BYTES = 256 * 1024
"""The largest message that a session accepts, as JSON."""

MAX_INPUT_BYTES = 1024 * 1024
"""The largest input of an agent-tool run, as JSON."""

MAX_OPEN_RUNS = 500
"""How many runs one turn, run or session may have open, whatever its agent's cap; Temporal allows 2,000 children."""

MAX_CALLS = 200
"""How many tool calls of one step are carried out; Temporal allows 2,000 activities under way."""

MAX_DEPTH = 5
"""How many runs may be nested inside each other (field case 24)."""


class AgentProfile(WireModel):
    """What a workflow must know of an agent class; fixed when a turn or run starts.

    Workflows never see the class. Whoever submits a turn or dispatches a run knows it and sends this along.
    """

    agent_type: str
    task_queue: str | None = None
    """Where the agent's activities run, if not on the workflows' own task queue."""
    model: str | None = None
    """For summaries in the Temporal UI; the model that is called is the class's business."""
    max_steps: Annotated[int, Field(ge=1)] = 20
    max_concurrent_agent_tools: Annotated[int, Field(ge=0)] | None = None
    hooks: tuple[str, ...] = ()
    """The hooks that the class overrides; the others cost nothing."""


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
    """The end of a run that the session watched, on its way to `on_agent_tool_finish`."""

    kind: Literal["delivery"] = "delivery"
    result: AgentToolResult
    profile: AgentProfile
    """The agent whose hook is called."""
    is_silent: bool = False
    """Whether the run could not tell the live log of its end itself."""


QueuedWork = Annotated[QueuedTurn | QueuedDelivery, Field(discriminator="kind")]


class TurnRecord(WireModel):
    """A turn with what its session needs to recognise its submission."""

    info: TurnInfo
    digest: str
    """A fingerprint of the message."""


class RunRecord(WireModel):
    """A registry row with what only its workflow needs."""

    info: AgentToolRunInfo
    input_digest: str
    result: AgentToolResult | None = None
    refused: bool = False
    """Whether it never started; a refused run id may be dispatched again (DI-15)."""


class SessionInput(WireModel):
    """Starts, or continues, an instance's session."""

    profile: AgentProfile
    """The instance's agent as its first caller knew it; each submission brings a newer one."""
    turns_submitted: int = 0
    messages: tuple[UIMessage, ...] = ()
    queue: tuple[QueuedWork, ...] = ()
    reports: "tuple[RunReported, ...]" = ()
    """On their way to `on_progress`."""
    turns: tuple[TurnRecord, ...] = ()
    runs: tuple[RunRecord, ...] = ()


class TurnInput(WireModel):
    """Starts one turn of an instance."""

    instance: str
    """The session's workflow id."""
    turn_id: str
    profile: AgentProfile
    transcript: TranscriptRef
    """The conversation up to and with the message that the turn answers."""
    open_runs: int = 0
    """Runs of the instance that were going on when the turn started; they hold slots of its cap (CC-05)."""
    state: "LoopState | None" = None


class TurnResult(WireModel):
    """What a turn adds to its session."""

    message: UIMessage | None = None
    """The assistant message; None when the turn was stopped before it wrote anything."""
    runs: tuple[RunRecord, ...] = ()


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


class RunReported(WireModel):
    """A run's report to the workflow that dispatched it, for the agent's `on_progress`."""

    run_id: str
    progress: AgentToolProgress


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
    started_at: AwareDatetime


class DispatchRunInput(WireModel):
    """Asks a turn, run or session to start an agent-tool run."""

    run_id: Name
    profile: AgentProfile
    """The agent that is to run."""
    input: JsonValue = None
    input_preview: JsonValue = None
    parent_tool_call_id: str | None = None
    display_order: int = 0
    display: Display | None = None


class DispatchRunResult(WireModel):
    """Says that a run was dispatched, or why not."""

    run_id: str
    workflow_id: str
    result: AgentToolResult | None = None
    """How it ended, when it already has: refused, or dispatched before (DI-05)."""
    refused: bool = False
    """Whether it was not admitted and never started."""


class CancelRunInput(WireModel):
    """Which run to cancel, and why."""

    run_id: str
    reason: str | None = None


class RunFinished(WireModel):
    """A run's last word to the session that watches it."""

    result: AgentToolResult
    at: AwareDatetime


TurnInput.model_rebuild()
RunInput.model_rebuild()
SessionInput.model_rebuild()
