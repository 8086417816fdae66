"""Builds the agent object that an activity runs, and lends it what it may do."""

from collections import Counter

from pydantic import JsonValue

from turnkeeper import names
from turnkeeper.agents import Agent, ToolCall
from turnkeeper.client import TurnkeeperClient
from turnkeeper.messages import UIMessage
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import AgentToolResult, Display, input_digest
from turnkeeper.steps import StepSource
from turnkeeper.turns import DispatchRunInput


class ActivityRuntime:
    """What one activity lends its agent object (see `turnkeeper.agents.AgentRuntime`)."""

    def __init__(
        self,
        client: TurnkeeperClient,
        registry: AgentRegistry,
        source: StepSource,
        idempotency_key: str,
        tool_call: ToolCall | None,
        messages: tuple[UIMessage, ...],
    ) -> None:
        """Belong to the activity that `source` describes, and whose attempts share `idempotency_key`."""
        self._client = client
        self._registry = registry
        self._source = source
        self._idempotency_key = idempotency_key
        self._dispatched: Counter[str] = Counter()
        self.tool_call = tool_call
        self.messages = messages

    @property
    def instance(self) -> str:
        """The instance's workflow id."""
        return self._source.instance

    @property
    def turn_id(self) -> str:
        """The turn that is going on."""
        return self._source.turn_id

    async def run_agent_tool(
        self,
        agent: type[Agent] | str,
        value: JsonValue,
        *,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> AgentToolResult:
        """Dispatch a run on the workflow that this activity belongs to, and wait for its end."""
        profile = self._registry.profile(agent if isinstance(agent, str) else agent.agent_type)
        request = DispatchRunInput(
            run_id=run_id or self._generated_run_id(profile.agent_type, value),
            profile=profile,
            input=value,
            input_preview=input_preview,
            parent_tool_call_id=self.tool_call.tool_call_id if self.tool_call else None,
            display_order=display_order,
            display=display,
        )
        return await self._client.runs.run_from(self._source.workflow_id, request)

    def _generated_run_id(self, agent_type: str, value: JsonValue) -> str:
        """Return an id that another attempt gives to the same work, in whatever order it dispatches."""
        work = f"{agent_type}/{input_digest(value)}"
        self._dispatched[work] += 1
        return names.generated_run_id(self._idempotency_key, work, self._dispatched[work])


class AgentObjects:
    """Makes agent objects, each for one activity."""

    def __init__(self, client: TurnkeeperClient, registry: AgentRegistry) -> None:
        """Make objects of the classes in `registry`."""
        self._client = client
        self.registry = registry

    def make(
        self,
        agent_type: str,
        source: StepSource,
        idempotency_key: str,
        *,
        tool_call: ToolCall | None = None,
        messages: tuple[UIMessage, ...] = (),
    ) -> Agent:
        """Return a fresh agent object.

        Raises:
            NotFound: this worker does not have the class.
        """
        agent = self.registry.get(agent_type)
        return agent(ActivityRuntime(self._client, self.registry, source, idempotency_key, tool_call, messages))
