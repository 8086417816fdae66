"""What a Temporal workflow of an author's own sends to Turnkeeper's workers (`turnkeeper.workflow`)."""

from pydantic import JsonValue

from turnkeeper.detached import DetachedRequest
from turnkeeper.runs import AgentToolResult, AgentToolRunHandle, Display
from turnkeeper.wire import Name, WireModel


class AuthorDispatchInput(WireModel):
    """Asks to start a run for a Temporal workflow of an author's own."""

    agent: str
    """The agent type that is to run."""
    instance: tuple[Name, Name]
    """The agent type and the name of the instance whose run it is."""
    run_id: Name
    input: JsonValue = None
    input_preview: JsonValue = None
    display: Display | None = None
    detached: DetachedRequest | None = None


class AuthorDispatchResult(WireModel):
    """Where such a run is."""

    workflow_id: str
    input_digest: str
    joined: bool = False
    """Whether somebody else had dispatched it."""
    handle: AgentToolRunHandle | None = None
    """Of a detached one."""
    result: AgentToolResult | None = None
    """How it ended, if it was refused or had ended in another way than completed."""


class CancelAuthorRunInput(WireModel):
    """Asks to cancel such a run, whose wait was cancelled."""

    instance: tuple[Name, Name]
    run_id: Name
    reason: str
