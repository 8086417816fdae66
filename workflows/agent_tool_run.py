"""AgentToolRun: one agent-tool run, from its input to its outcome."""

import asyncio
from datetime import datetime

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from turnkeeper import names
from turnkeeper.dispatches import RunFinished, RunReported
from turnkeeper.errors import RUN_FAILED
from turnkeeper.frames import RunEvent, end_event
from turnkeeper.messages import UIMessage, last_assistant_text, user_message
from turnkeeper.outcomes import cancel_reason, error_result, failure_from_result, failure_text
from turnkeeper.runs import AgentToolProgress, AgentToolResult, AgentToolRunInspection, default_summary, input_text
from turnkeeper.search_attributes import outcome_update
from turnkeeper.steps import PublishInput
from turnkeeper.turns import LoopState, ReportInput, ReportState, RunInput
from workflows.loop import ModelToolLoop, stop_reason
from workflows.publishing import publish_own_course, run_started
from workflows.run_reports import RunReports
from workflows.run_starts import call_hook


@workflow.defn(name=names.AGENT_TOOL_RUN)
class AgentToolRun(ModelToolLoop):
    """Works on an input as an agent of its own, and ends as its outcome says.

    Completed with the result, Failed with the result in the failure's details, or Canceled.
    """

    @workflow.init
    def __init__(self, run: RunInput) -> None:
        """Begin the run, or go on with it after a continue-as-new."""
        super().__init__(
            instance=workflow.info().workflow_id,
            turn_id=names.RUN_TURN,
            profile=run.profile,
            depth=run.depth,
            base=None,
            open_elsewhere=0,
            state=run.state,
            silence_budget=run.silence_budget,
        )
        self._input = run
        forward = self._forward_progress if run.forwards_progress else None
        self._reports = RunReports(workflow.info().workflow_id, run.state.reports if run.state else None, forward)
        self._result: AgentToolResult | None = None
        self._completed_at: datetime | None = None

    @workflow.run
    async def run(self, run: RunInput) -> AgentToolResult:
        """Do the work, tell whoever watches, and end.

        Raises:
            ApplicationError: of type `RunFailed`, when the run ended in an error.
            CancelledError: it was cancelled.
        """
        self._result = await self._work()
        self._completed_at = workflow.now()
        workflow.upsert_search_attributes([outcome_update(self._result.status)])
        await self._report_end(self._result)
        if self._result.status == "completed":
            return self._result
        if self._result.status == "aborted":
            raise asyncio.CancelledError
        raise failure_from_result(self._result)

    @workflow.signal(name=names.REPORT)
    def report(self, told: ReportInput) -> None:
        """Take reports of the run's own code; what comes after its end is nobody's (PR-16)."""
        if self._result is None:
            self._reports.take(told)

    @workflow.query(name=names.INSPECT)
    def inspect(self) -> AgentToolRunInspection:
        """Return how the run stands (IC-02)."""
        result = self._result
        return AgentToolRunInspection(
            run_id=self._input.run_id,
            agent_type=self._profile.agent_type,
            status="running" if result is None or result.status == "interrupted" else result.status,
            output=result.output if result else None,
            summary=result.summary if result else None,
            error=result.error if result else None,
            started_at=self._started_at,
            completed_at=self._completed_at,
            steps=self._steps,
            progress=self._reports.progress,
            milestones=tuple(self._reports.milestones) or None,
        )

    async def _work(self) -> AgentToolResult:
        try:
            result = await self._outcome()
            await self._runs.close(stop_reason())
            return result
        except (FailureError, asyncio.CancelledError) as error:
            result = self._aborted() if is_cancelled_exception(error) else self._error(failure_text(error))
            await self._runs.close(stop_reason())
            return result

    async def _outcome(self) -> AgentToolResult:
        if self._input.state is None:
            self._publish(run_started(workflow.info().workflow_id, self._input))
        if not len(self._log):
            self._log.append(await self._first_message())
        end = await self._take_steps()
        if end.error is not None:
            partial = last_assistant_text(self._log.messages) or None
            return self._error(end.error).model_copy(update={"summary": partial})
        return await self._completed()

    async def _first_message(self) -> UIMessage:
        if "format_agent_tool_input" not in self._profile.hooks:
            return user_message(f"agent-tool-{self._input.run_id}-input", input_text(self._input.input))
        request: JsonValue = {"runId": self._input.run_id, "agentType": self._profile.agent_type}
        written = await call_hook(self._runs.dispatcher, "format_agent_tool_input", self._input.input, request)
        try:
            return UIMessage.model_validate(written)
        except ValidationError as error:
            text = f"{self._profile.agent_type}.format_agent_tool_input returned no message."
            raise ApplicationError(text, type=RUN_FAILED, non_retryable=True) from error

    async def _completed(self) -> AgentToolResult:
        run_id = self._input.run_id
        output = await self._ask_hook("get_agent_tool_output", run_id)
        summary = await self._ask_hook("get_agent_tool_summary", run_id, output)
        if summary is None:
            summary = default_summary(last_assistant_text(self._log.messages), output)
        return AgentToolResult(
            run_id=run_id, agent_type=self._profile.agent_type, status="completed", output=output, summary=str(summary)
        )

    async def _ask_hook(self, hook: str, *arguments: JsonValue) -> JsonValue:
        """Return what a hook that looks back on the run says, or None if the class does not override it."""
        if hook not in self._profile.hooks:
            return None
        return await call_hook(self._runs.dispatcher, hook, *arguments, transcript=self._transcript())

    def _error(self, text: str) -> AgentToolResult:
        return error_result(self._input.run_id, self._profile.agent_type, text)

    def _aborted(self) -> AgentToolResult:
        reason = cancel_reason(workflow.cancellation_reason())
        return self._error(reason).model_copy(update={"status": "aborted"})

    async def _report_end(self, result: AgentToolResult) -> None:
        """Tell the live log and the session that watches this run, if one does."""
        report = asyncio.create_task(self._tell_end(result))
        try:
            await asyncio.shield(report)
        except asyncio.CancelledError:
            await report  # A cancel that comes this late changes nothing any more.

    async def _tell_end(self, result: AgentToolResult) -> None:
        await workflow.wait_condition(lambda: self._reports.is_published)
        self._publish(end_event(self._path(), result))
        await self.all_told()
        await workflow.wait_condition(lambda: self._reports.is_drained)
        if self._input.reports_to is None:
            return
        session = workflow.get_external_workflow_handle(self._input.reports_to)
        brief = result.model_copy(update={"output": None})
        try:
            await session.signal(names.RUN_FINISHED, RunFinished(path=self._path(), result=brief, at=workflow.now()))
        except ApplicationError as error:
            # A session that is gone is no reason to fail (field case 7).
            workflow.logger.warning("the end of run %s could not be reported: %s", self._input.run_id, error)

    def _publish(self, event: RunEvent) -> None:
        source = workflow.info().workflow_id
        publish_own_course(PublishInput(source=source, settled=self._settled(), runs=(event,)))

    def _path(self) -> str:
        return names.run_path_of(workflow.info().workflow_id) or self._input.run_id

    async def _forward_progress(self, progress: AgentToolProgress) -> None:
        """Tell the dispatcher's agent; one that is gone is no reason to fail."""
        dispatcher = workflow.get_external_workflow_handle(self._input.dispatcher)
        try:
            await dispatcher.signal(
                names.RUN_REPORTED, RunReported(path=self._path(), run_id=self._input.run_id, progress=progress)
            )
        except ApplicationError as error:
            workflow.logger.warning("progress of run %s could not be reported: %s", self._input.run_id, error)

    def _report_state(self) -> ReportState:
        return self._reports.state

    def _is_quiet(self) -> bool:
        return super()._is_quiet() and self._reports.is_drained

    def _continue_as_new(self, state: LoopState) -> None:
        workflow.continue_as_new(self._input.model_copy(update={"state": state}))
