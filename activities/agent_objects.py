"""Builds the agent object that an activity runs, and lends it what it may do."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from pydantic import JsonValue
from temporalio import activity

from activities.failures import agents_known_here
from activities.progress_reports import ProgressReporter
from turnkeeper import names
from turnkeeper.agents import Agent
from turnkeeper.client import TurnkeeperClient
from turnkeeper.dispatches import DetachedOptions, DispatchRunInput, RunOwner
from turnkeeper.errors import InvalidRequest, NotFound
from turnkeeper.messages import UIMessage
from turnkeeper.progress import ReportOutcome, checked_report
from turnkeeper.registry import AgentRegistry
from turnkeeper.run_client import RunPath
from turnkeeper.runs import (
    AgentToolMilestone,
    AgentToolResult,
    AgentToolRunHandle,
    AgentToolRunInfo,
    AgentToolRunInspection,
    Display,
    RunStatus,
    input_digest,
)
from turnkeeper.runtime import ToolCall
from turnkeeper.steps import StepSource
from turnkeeper.turns import Report, TurnInfo


class ActivityRuntime:
    """What one activity lends its agent object (see `turnkeeper.agents.AgentRuntime`)."""

    def __init__(
        self,
        client: TurnkeeperClient,
        registry: AgentRegistry,
        reporter: ProgressReporter,
        agent_type: str,
        source: StepSource,
        idempotency_key: str,
        tool_call: ToolCall | None,
        messages: tuple[UIMessage, ...],
        state: JsonValue,
    ) -> None:
        """Belong to the activity that `source` describes, and whose attempts share `idempotency_key`."""
        self._client = client
        self._registry = registry
        self._reporter = reporter
        self._agent_type = agent_type
        self._source = source
        self.idempotency_key = idempotency_key
        self._dispatched: Counter[str] = Counter()
        self.tool_call = tool_call
        self.messages = messages
        self.state = state

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
        request = self._request(agent, value, run_id, input_preview, display_order, display)
        windows = self._registry.profile(self._agent_type).reattach
        return await self._client.runs.run_from(self._source.workflow_id, request, windows)

    def _request(
        self,
        agent: type[Agent] | str,
        value: JsonValue,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> DispatchRunInput:
        profile = self._registry.profile(agent if isinstance(agent, str) else agent.agent_type)
        return DispatchRunInput(
            run_id=run_id or self._generated_run_id(profile.agent_type, value),
            profile=profile,
            input=value,
            input_preview=input_preview,
            parent_tool_call_id=self.tool_call.tool_call_id if self.tool_call else None,
            display_order=display_order,
            display=display,
        )

    async def dispatch_agent_tool(
        self,
        agent: type[Agent] | str,
        value: JsonValue,
        options: DetachedOptions,
        *,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> AgentToolRunHandle:
        """Dispatch a run on the session of the root instance, which watches it from then on."""
        request = self._request(agent, value, run_id, input_preview, display_order, display)
        return await self._client.runs.dispatch_detached(
            self._session_id,
            request.model_copy(update={"detached": options, "owner": self._owner()}),
        )

    async def cancel_agent_tool(self, run_id: str, reason: str | None) -> None:
        """Cancel a run of the instance; without effect on one that is unknown."""
        with suppress(NotFound):
            await self._client.runs.cancel(self._session_id, self._path(run_id), reason)

    async def inspect_agent_tool_run(self, run_id: str) -> AgentToolRunInspection | None:
        """Return what a run of the instance says of itself."""
        try:
            return await self._client.runs.inspect(self._session_id, self._path(run_id))
        except NotFound:
            return None

    async def agent_tool_runs(self) -> list[AgentToolRunInfo]:
        """Return the instance's registry."""
        return await self._client.runs.registered(self._session_id, self._path())

    async def clear_agent_tool_runs(self, status: Sequence[RunStatus], older_than: timedelta | None) -> int:
        """Remove runs from the instance's registry."""
        return await self._client.runs.clear(self._session_id, self._path(), status, older_than)

    async def wait_for_milestone(self, run_id: str, name: str, timeout: timedelta) -> AgentToolMilestone:
        """Wait until a run of the instance reaches a milestone."""
        return await self._client.runs.wait_for_milestone(self._session_id, self._path(run_id), name, timeout)

    async def submit_message(self, message: UIMessage) -> TurnInfo:
        """Queue a message for a turn of the instance."""
        if self._owner() is not None:
            raise InvalidRequest("a run is one turn and takes no further messages; submit to the instance above it")
        agent_type, name = names.agent_and_name_of(self._session_id)
        return await self._client.submit(agent_type, name, message, submission_id=message.id)

    async def set_state(self, value: JsonValue) -> None:
        """Replace the instance's state."""
        if self._owner() is not None:
            raise InvalidRequest("a run is one turn and keeps no state; set that of the instance above it")
        if self._registry.get(self._agent_type).initial_state is None:
            raise InvalidRequest(f"{self._agent_type} has no state; declare `initial_state` in its class")
        agent_type, name = names.agent_and_name_of(self._session_id)
        await self._client.set_state(agent_type, name, value)
        self.state = value

    @property
    def _session_id(self) -> str:
        return names.root_instance(self.instance)

    def _owner(self) -> RunOwner | None:
        """Return the run that this activity works for, or None for the root instance itself."""
        if names.run_path_of(self.instance) is None:
            return None
        return RunOwner(instance=self.instance, profile=self._registry.profile(self._agent_type))

    def _path(self, *run_ids: str) -> RunPath:
        above = names.run_path_of(self.instance)
        return (*(names.parse_run_path(above) or () if above else ()), *run_ids)

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
        """Report for the run that this activity belongs to."""
        fields = checked_report(fraction, message, phase, milestone, data)
        run = self._source.workflow_id
        if names.run_path_of(run) is None:
            activity.logger.warning("report_progress has no effect in a turn of its own: only runs report progress")
            return "inactive"
        report = Report(report_id=uuid4().hex, at=datetime.now(UTC), **fields)
        return await self._reporter.report(run, report, persist=persist, silence_budget=self._source.silence_budget)

    def _generated_run_id(self, agent_type: str, value: JsonValue) -> str:
        """Return an id that another attempt gives to the same work, in whatever order it dispatches."""
        work = f"{agent_type}/{input_digest(value)}"
        self._dispatched[work] += 1
        return names.generated_run_id(self.idempotency_key, work, self._dispatched[work])


class AgentObjects:
    """Makes agent objects, each for one activity."""

    def __init__(self, client: TurnkeeperClient, registry: AgentRegistry, reporter: ProgressReporter) -> None:
        """Make objects of the classes in `registry`, which report through `reporter`."""
        self._client = client
        self._reporter = reporter
        self.registry = registry

    @asynccontextmanager
    async def lend(
        self,
        agent_type: str,
        source: StepSource,
        idempotency_key: str,
        *,
        tool_call: ToolCall | None = None,
        messages: tuple[UIMessage, ...] = (),
    ) -> AsyncIterator[Agent]:
        """Lend a fresh agent object; when it is given back, what it reported is on its way.

        Raises:
            ApplicationError: this worker does not have the class.
        """
        with agents_known_here():
            agent = self.registry.get(agent_type)
        runtime = ActivityRuntime(
            self._client,
            self.registry,
            self._reporter,
            agent_type,
            source,
            idempotency_key,
            tool_call,
            messages,
            await self._state(agent, source.instance),
        )
        try:
            yield agent(runtime)
        finally:
            await self._reporter.settle(source.workflow_id)

    async def _state(self, agent: type[Agent], instance: str) -> JsonValue:
        if agent.initial_state is None or names.run_path_of(instance) is not None:
            return agent.initial_state
        return await self._client.state(*names.agent_and_name_of(instance))
