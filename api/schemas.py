"""What the HTTP API takes and gives, where it is not a model of the centre."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Discriminator, Field, JsonValue, StringConstraints, Tag

from turnkeeper.messages import FilePart, TextPart, UIMessage
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress, AgentToolRunInfo, Display
from turnkeeper.turns import TurnStatus
from turnkeeper.wire import Name, WireModel

NonBlank = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class RequestModel(WireModel, extra="forbid"):
    """A request's body: an unknown field is an error, because it is a typing mistake more often than not."""


class UserMessage(RequestModel):
    """A user message in parts."""

    id: Name | None = None
    parts: Annotated[
        list[Annotated[TextPart | FilePart, Field(discriminator="type")]], Field(min_length=1, max_length=100)
    ]
    metadata: dict[str, JsonValue] | None = None


def _message_form(message: object) -> str:
    return "parts" if isinstance(message, dict | UserMessage) else "text"


class SubmitTurn(RequestModel):
    """A message for an agent instance."""

    message: Annotated[
        Annotated[NonBlank, Tag("text")] | Annotated[UserMessage, Tag("parts")], Discriminator(_message_form)
    ]
    """Text, or a message in parts."""


class Cancel(RequestModel):
    """Why something is to stop."""

    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=1_000)] | None = None


class Steer(RequestModel):
    """A message into something that goes on."""

    message: Annotated[str, StringConstraints(min_length=1)]


class DetachedRun(RequestModel):
    """How a run that nobody awaits is watched, and who is told of its end."""

    on_finish: str | None = None
    """The name of a method of the instance's agent."""
    max_budget_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    no_progress_budget_seconds: Annotated[float, Field(ge=0)] | None = None
    """0 for no such budget."""
    notify: bool | Name = False
    """Whether the end becomes a message to the instance, on which its model takes a turn; a text is its source."""
    on_milestones: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """Milestones of which the conversation hears."""
    milestone_mode: Literal["narrate", "react"] = "narrate"
    webhook: Annotated[str, Field(max_length=2_048)] | None = None
    """An http(s) URL to which the end is posted, signed."""


class DispatchRun(RequestModel):
    """An agent-tool run to start."""

    agent: Name
    """The agent type that is to run."""
    input: JsonValue
    run_id: Name | None = None
    """The same id again is the same run; a random one if not given."""
    input_preview: JsonValue = None
    parent_tool_call_id: str | None = None
    display_order: int = 0
    display: Display | None = None
    detached: bool | DetachedRun = False
    """Whether the instance watches it as its own background run; its agent's defaults for `true`."""


class Cleared(WireModel):
    """How many runs were removed."""

    cleared: int


class MilestoneView(AgentToolMilestone):
    """A milestone of a run."""

    run_id: str


class TurnView(WireModel):
    """A turn."""

    turn_id: str
    status: TurnStatus
    url: str
    workflow_id: str
    """Its id in the Temporal UI."""
    submission_id: str | None = None
    message_id: str | None = None
    submitted_at: AwareDatetime | None = None
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    error: str | None = None
    message: UIMessage | None = None
    """What the assistant wrote, as far as it has come; only where one turn is asked for."""
    hint: str | None = None
    """What the reader should know about this answer."""


class RunView(AgentToolRunInfo):
    """A run: its registry row, and what it says of itself."""

    url: str
    workflow_id: str
    """Its id in the Temporal UI."""
    output: JsonValue = None
    steps: int = 0
    """Model steps taken so far."""
    progress: AgentToolProgress | None = None
    milestones: tuple[AgentToolMilestone, ...] | None = None
    hint: str | None = None


class InstanceView(WireModel):
    """An agent instance."""

    agent: str
    name: str
    workflow_id: str
    active_turn_id: str | None = None
    queued_turns: int
    messages: int


class Health(WireModel):
    """Whether this process, or the whole system, can serve."""

    status: Literal["ok", "no worker", "no Temporal"]
    detail: str | None = None
