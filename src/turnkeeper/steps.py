"""What crosses an activity's edge: a model step and the dispatch of its tool calls, a tool call, a hook call."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from turnkeeper.dispatches import AgentProfile, DetachedOptions, DispatchRunInput, ReattachWindows
from turnkeeper.events import Event
from turnkeeper.frames import RunEvent, TurnEvent
from turnkeeper.messages import ToolPart, UIMessage
from turnkeeper.runs import AgentToolMilestone, AgentToolResult, Display
from turnkeeper.turns import Compaction, ContextState, Report, TranscriptRef
from turnkeeper.wire import WireModel


class StepSource(WireModel):
    """Where in a tree of turns and runs an activity belongs."""

    workflow_id: str
    """The turn or run."""
    instance: str
    """The instance whose turn it is: a session's workflow id, or the run's own."""
    turn_id: str
    step: int = 0
    silence_budget: timedelta | None = None
    """How long the run may be silent before it is given up, so that its reports are passed on often enough (BU-03)."""


class CallModelInput(WireModel):
    """Asks for one model step."""

    agent_type: str
    source: StepSource
    transcript: tuple[TranscriptRef, ...]
    """The conversation, in pieces that are read one after the other."""
    message_id: str
    """The id that the step's message gets."""
    context: ContextState | None = None
    is_last: bool = False
    """Whether the turn or run is to finish with this step: the model may call no tool."""


class FunctionToolDispatch(WireModel):
    """Carry the call out by an activity."""

    kind: Literal["function"] = "function"
    timeout: timedelta
    attempts: Annotated[int, Field(ge=1)] = 1
    """More than one only for a tool that is declared idempotent."""


class AgentToolDispatch(WireModel):
    """Carry the call out by an agent-tool run."""

    kind: Literal["agent"] = "agent"
    profile: AgentProfile
    input: JsonValue = None
    input_preview: JsonValue = None
    display: Display | None = None
    detached: DetachedOptions | None = None
    checks_output: bool = False
    """Whether the tool declares an output type, which the parent's class checks (RF-08 to RF-10)."""


class RefusedDispatch(WireModel):
    """Carry nothing out: the call itself is wrong, and the model is told how."""

    kind: Literal["refused"] = "refused"
    error: str


Dispatch = Annotated[FunctionToolDispatch | AgentToolDispatch | RefusedDispatch, Field(discriminator="kind")]


class Usage(WireModel):
    """Tokens that a step took."""

    input_tokens: int = 0
    output_tokens: int = 0


class StepResult(WireModel):
    """One model step: the message, and how each of its tool calls is to be carried out."""

    message: UIMessage
    dispatches: tuple[Dispatch, ...] = ()
    """One for each open tool call of the message, in order."""
    usage: Usage = Usage()
    model: str | None = None
    """The model that answered."""
    compaction: Compaction | None = None
    """How the conversation had to be shortened for this step, if it had to be."""


class CallToolInput(WireModel):
    """Asks for one function tool call."""

    agent_type: str
    source: StepSource
    tool_name: str
    tool_call_id: str
    idempotency_key: str
    """The same at every attempt of this call, and of no other call."""
    arguments: JsonValue = None


class ToolResult(WireModel):
    """What a tool call gave: an output, or an error for the model to read."""

    output: JsonValue = None
    error: str | None = None

    def settle(self, call: ToolPart) -> ToolPart:
        """Return a tool call with this as its result."""
        if self.error is not None:
            return call.model_copy(update={"state": "output-error", "error_text": self.error})
        return call.model_copy(update={"state": "output-available", "output": self.output})


class CallHookInput(WireModel):
    """Asks for one call of an author's hook."""

    agent_type: str
    source: StepSource
    hook: str
    idempotency_key: str
    """The same at every attempt of this call, and of no other call."""
    only_before: str | None = None
    """A workflow id: the hook is not called when that workflow exists already."""
    is_callback: bool = False
    """Whether it is a method of the author's own, named at a dispatch, instead of a hook."""
    arguments: tuple[JsonValue, ...] = ()
    transcript: tuple[TranscriptRef, ...] = ()
    """The conversation, for the hooks that look back on one."""


class HookResult(WireModel):
    """What a hook returned, as JSON."""

    value: JsonValue = None


class CheckOutputInput(WireModel):
    """Asks the parent's class whether a run's output is of the type that its agent tool declares."""

    agent_type: str
    tool_name: str
    output: JsonValue = None


class SettledStep(WireModel):
    """A step whose calls all have their results."""

    step: int
    calls: tuple[ToolPart, ...] = ()


class ReachedMilestone(WireModel):
    """A milestone with the report that reached it."""

    milestone: AgentToolMilestone
    report: Report


class PublishInput(WireModel):
    """What a turn or run has to tell the live log, in order: how its last step ended, milestones, its own course."""

    source: str
    """The workflow id of the turn or run."""
    settled: SettledStep | None = None
    milestones: tuple[ReachedMilestone, ...] = ()
    runs: tuple[RunEvent, ...] = ()
    occasion: str = ""
    """Tells this beginning and end apart from others of the same run: a refused one may be dispatched again (DI-15)."""
    turn: TurnEvent | None = None
    message: UIMessage | None = None
    """What was said outside a turn."""
    events: tuple[Event, ...] = ()


class AttachRunInput(WireModel):
    """Asks to follow a run that another execution of this instance started."""

    workflow_id: str
    run_id: str
    agent_type: str
    input_digest: str
    windows: ReattachWindows | None = None


class InspectRunsInput(WireModel):
    """Asks whether runs have ended without anybody's knowing."""

    workflow_ids: tuple[str, ...]


class InspectRunsResult(WireModel):
    """How each run ended, in the order asked; None for one that goes on, or of which nothing is known yet (IC-01)."""

    results: tuple[AgentToolResult | None, ...]


class DispatchDetachedInput(WireModel):
    """Asks a session to start a detached run for one of its turns or runs."""

    session_id: str
    request: DispatchRunInput


class AttachRunResult(WireModel):
    """How such a run ended, or that it cannot be the one that was asked for."""

    result: AgentToolResult | None = None
    conflict: str | None = None
    """Why the run is not the one that was asked for: other agent type or other input (DI-16)."""
