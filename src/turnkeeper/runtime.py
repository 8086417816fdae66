"""What an agent object is given while it works: the call that it carries out, and what it may do."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from turnkeeper.dispatches import DetachedOptions
from turnkeeper.messages import UIMessage
from turnkeeper.progress import ReportOutcome
from turnkeeper.runs import (
    AgentToolMilestone,
    AgentToolResult,
    AgentToolRunHandle,
    AgentToolRunInfo,
    AgentToolRunInspection,
    Display,
    RunStatus,
)
from turnkeeper.turns import TurnInfo
from turnkeeper.wire import WireModel

if TYPE_CHECKING:
    from turnkeeper.agents import Agent


class ToolCall(WireModel):
    """The tool call that is being carried out."""

    tool_call_id: str
    idempotency_key: str
    """The same at every attempt of this call, and of no other call: pass it on to what you call."""
    attempt: int
    """1 at first, more when a worker was lost and the tool is idempotent."""


class AgentToolInputRequest(WireModel):
    """What a run was asked for, for `format_agent_tool_input`."""

    run_id: str
    agent_type: str


class AgentRuntime(Protocol):
    """What a worker lends an agent object while it runs."""

    @property
    def instance(self) -> str:
        """The instance's workflow id."""

    @property
    def turn_id(self) -> str:
        """The turn that is going on."""

    @property
    def idempotency_key(self) -> str:
        """The same at every attempt of the call that is being carried out, and of no other."""

    @property
    def tool_call(self) -> ToolCall | None:
        """The tool call that is being carried out, if any."""

    @property
    def messages(self) -> tuple[UIMessage, ...]:
        """The conversation, where it is read."""

    async def run_agent_tool(
        self,
        agent: "type[Agent] | str",
        value: JsonValue,
        *,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> AgentToolResult:
        """Dispatch a run and wait for its end."""

    async def dispatch_agent_tool(
        self,
        agent: "type[Agent] | str",
        value: JsonValue,
        options: DetachedOptions,
        *,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> AgentToolRunHandle:
        """Dispatch a run that nobody awaits."""

    async def cancel_agent_tool(self, run_id: str, reason: str | None) -> None:
        """Cancel a run of the instance."""

    async def inspect_agent_tool_run(self, run_id: str) -> AgentToolRunInspection | None:
        """Return what a run of the instance says of itself."""

    async def agent_tool_runs(self) -> list[AgentToolRunInfo]:
        """Return the instance's registry."""

    async def clear_agent_tool_runs(self, status: Sequence[RunStatus], older_than: timedelta | None) -> int:
        """Remove runs from the instance's registry."""

    async def wait_for_milestone(self, run_id: str, name: str, timeout: timedelta) -> AgentToolMilestone:
        """Wait until a run of the instance reaches a milestone."""

    async def submit_message(self, message: UIMessage) -> TurnInfo:
        """Queue a message for a turn of the instance."""

    @property
    def state(self) -> JsonValue:
        """The instance's state when this object was made, or when it was last set through it."""

    async def set_state(self, value: JsonValue) -> None:
        """Replace the instance's state."""

    async def report_progress(
        self,
        *,
        fraction: float | None,
        message: str | None,
        phase: str | None,
        milestone: str | None,
        data: JsonValue,
        persist: bool,
    ) -> ReportOutcome:
        """Report how far the run is that this object works for."""
