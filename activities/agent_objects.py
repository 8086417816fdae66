"""Builds the agent object that an activity runs, and lends it what it may do."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

from pydantic import JsonValue
from temporalio import activity

from activities.failures import agents_known_here
from activities.progress_reports import ProgressReporter
from turnkeeper import names
from turnkeeper.agents import Agent, ToolCall
from turnkeeper.client import TurnkeeperClient
from turnkeeper.messages import UIMessage
from turnkeeper.progress import ReportOutcome, checked_report
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import AgentToolResult, Display, input_digest
from turnkeeper.steps import StepSource
from turnkeeper.turns import DispatchRunInput, Report


class ActivityRuntime:
    """What one activity lends its agent object (see `turnkeeper.agents.AgentRuntime`)."""

    def __init__(
        self,
        client: TurnkeeperClient,
        registry: AgentRegistry,
        reporter: ProgressReporter,
        source: StepSource,
        idempotency_key: str,
        tool_call: ToolCall | None,
        messages: tuple[UIMessage, ...],
    ) -> None:
        """Belong to the activity that `source` describes, and whose attempts share `idempotency_key`."""
        self._client = client
        self._registry = registry
        self._reporter = reporter
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
        return await self._reporter.report(run, report, persist=persist)

    def _generated_run_id(self, agent_type: str, value: JsonValue) -> str:
        """Return an id that another attempt gives to the same work, in whatever order it dispatches."""
        work = f"{agent_type}/{input_digest(value)}"
        self._dispatched[work] += 1
        return names.generated_run_id(self._idempotency_key, work, self._dispatched[work])


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
            self._client, self.registry, self._reporter, source, idempotency_key, tool_call, messages
        )
        try:
            yield agent(runtime)
        finally:
            await self._reporter.settle(source.workflow_id)
