"""What a runtime of a test does not do, so that each says only what it does."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from turnkeeper.messages import UIMessage
from turnkeeper.runs import (
    AgentToolMilestone,
    AgentToolRunHandle,
    AgentToolRunInfo,
    AgentToolRunInspection,
    RunStatus,
)
from turnkeeper.turns import TurnInfo


class UnbackedRuntime:
    """Runs nothing in the background, and keeps no state."""

    idempotency_key = "key"
    state: JsonValue = None

    async def set_state(self, value: JsonValue) -> None:
        """Not here."""
        raise NotImplementedError

    async def dispatch_agent_tool(self, *asked: Any, **more: Any) -> AgentToolRunHandle:
        """Not here."""
        raise NotImplementedError

    async def cancel_agent_tool(self, run_id: str, reason: str | None) -> None:
        """Not here."""
        raise NotImplementedError

    async def inspect_agent_tool_run(self, run_id: str) -> AgentToolRunInspection | None:
        """Not here."""
        raise NotImplementedError

    async def agent_tool_runs(self) -> list[AgentToolRunInfo]:
        """Not here."""
        raise NotImplementedError

    async def clear_agent_tool_runs(self, status: Sequence[RunStatus], older_than: timedelta | None) -> int:
        """Not here."""
        raise NotImplementedError

    async def wait_for_milestone(self, run_id: str, name: str, timeout: timedelta) -> AgentToolMilestone:
        """Not here."""
        raise NotImplementedError

    async def submit_message(self, message: UIMessage) -> TurnInfo:
        """Not here."""
        raise NotImplementedError
