"""What travels when a run is dispatched, and what whoever dispatched it keeps of it."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue

from turnkeeper.names import run_path_of
from turnkeeper.runs import AgentToolProgress, AgentToolResult, AgentToolRunInfo, Display, RunStatus
from turnkeeper.wire import Name, WireModel

DEFAULT_NO_PROGRESS_TIMEOUT = timedelta(minutes=2)
"""How long a run that a call has joined may be silent before the call gives it up, and lets it go on (RC-06)."""


class ReattachWindows(WireModel):
    """How long a call that joins a run of somebody else's waits for it."""

    no_progress: timedelta | None = None
    """How long it may be silent; None for as long as it likes (RC-10), 0 to take only what has ended (RC-11)."""
    max_window: timedelta | None = None
    """How long it may take in all; then it is cancelled (RC-07). None for no such limit."""


USUAL_WINDOWS = ReattachWindows(no_progress=DEFAULT_NO_PROGRESS_TIMEOUT)


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
    run_retention: timedelta | None = None
    """How long an instance keeps rows of runs that have ended and been told of; None for ever."""
    reattach: ReattachWindows | None = None
    """How long a call that joins a run of somebody else's waits for it, if not as long as usual."""
    hooks: tuple[str, ...] = ()
    """The hooks that the class overrides; the others cost nothing."""


class DetachedOptions(WireModel):
    """How a detached run is watched, and who is told of its end."""

    on_finish: str | None = None
    """The name of a method of the dispatching agent."""
    max_budget: timedelta | None = None
    """None for a run that may take as long as it takes: one that somebody outside asked for and may await."""
    no_progress_budget: timedelta | None = None
    """None for no such budget."""
    notify_source: str | None = None
    """The source of a message to the dispatching agent at the end; None for no message."""
    milestones: tuple[str, ...] = ()
    milestone_mode: Literal["narrate", "react"] = "narrate"
    webhook: str | None = None
    """Where the end is posted for people outside."""


class RunOwner(WireModel):
    """The run whose own detached run it is; the session of the root instance watches it (`AgentSession`)."""

    instance: str
    """The run's workflow id."""
    profile: AgentProfile
    """Its agent, whose hooks and callbacks hear of it."""


def run_path(owner: RunOwner | None, run_id: str) -> str:
    """Return the path of a run below its session, given whose it is."""
    above = None if owner is None else run_path_of(owner.instance)
    return run_id if above is None else f"{above}/runs/{run_id}"


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
    detached: DetachedOptions | None = None
    owner: RunOwner | None = None
    """None for a run of the instance that is asked."""

    @property
    def path(self) -> str:
        """The run's path below the workflow that is asked, under which its registry knows it."""
        return run_path(self.owner, self.run_id)


class DispatchRunResult(WireModel):
    """Says that a run was dispatched, or why not."""

    run_id: str
    workflow_id: str
    result: AgentToolResult | None = None
    """How it ended, when it already has: refused, or dispatched before (DI-05)."""
    refused: bool = False
    """Whether it was not admitted and never started."""
    joined: bool = False
    """Whether somebody else had dispatched it; the caller follows it within its agent's windows (DI-09)."""
    status: RunStatus | None = None
    """How its row stands, if it has one here."""


class CancelRunInput(WireModel):
    """Which run to cancel, and why."""

    run_id: str
    reason: str | None = None


class ClearRunsInput(WireModel):
    """Which runs to remove from a registry."""

    owner: str | None = None
    """The path of the run whose own runs are meant; None for the instance's."""
    status: tuple[RunStatus, ...] = ()
    """Any if empty."""
    older_than: timedelta | None = None
    """By their start (CL-04)."""


class RunFinished(WireModel):
    """A run's last word to the session that watches it."""

    path: str
    """The run's path below the session."""
    result: AgentToolResult
    at: AwareDatetime


class RunReported(WireModel):
    """A run's report to the workflow that dispatched it, for the agent's `on_progress`."""

    path: str
    """The run's path below its root instance."""
    run_id: str
    progress: AgentToolProgress


class Posting(WireModel):
    """How far the posting of a run's end to its webhook has come."""

    attempts: int = 0
    due_at: AwareDatetime | None = None
    """When it is tried again, after a failure."""
    outcome: Literal["delivered", "dead"] | None = None
    error: str | None = None


class Delivery(WireModel):
    """One telling of a run's end: the global hook, then the callback or the notice (DV-01)."""

    slot: Literal["finish", "give_up"]
    result: AgentToolResult
    is_hook_done: bool = False
    """Whether `on_agent_tool_finish` has been called, which happens once however often the rest is tried (DV-08)."""
    outcome: Literal["delivered", "cancelled"] | None = None
    """None while it is still to be made; cancelled when the conversation was cleared before (DV-14 as decided)."""
    attempts: int = 0
    due_at: AwareDatetime | None = None
    """When it is tried again, after a failure."""
    error: str | None = None
    at: AwareDatetime
    """When the session heard of the end, or gave up."""
    posting: Posting | None = None
    """Where a webhook is to hear of it as well."""


class RunWatch(WireModel):
    """What a session knows of a run that it watches, beside its row."""

    options: DetachedOptions
    owner: RunOwner | None = None
    deadline: AwareDatetime | None = None
    last_signal_at: AwareDatetime | None = None
    """When the run last reported, by the session's clock; the no-progress budget counts from here (BU-02)."""
    noticed: tuple[str, ...] = ()
    """The milestones that the conversation has heard of (OM-06)."""
    deliveries: tuple[Delivery, ...] = ()
    """At most one for each slot."""


class RunRecord(WireModel):
    """A registry row with what only its workflow needs."""

    info: AgentToolRunInfo
    input_digest: str
    result: AgentToolResult | None = None
    refused: bool = False
    """Whether it never started; a refused run id may be dispatched again (DI-15)."""
    watch: RunWatch | None = None
    """Of a run that a session watches."""

    @property
    def path(self) -> str:
        """The run's path below the workflow that keeps the record."""
        return run_path(self.watch.owner if self.watch else None, self.info.run_id)
