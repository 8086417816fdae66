"""The agent-tool runs that a session dispatched itself: they outlive its continue-as-new and report by signal."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError

from turnkeeper import names
from turnkeeper.outcomes import error_result, failure_text
from turnkeeper.runs import AgentToolResult
from turnkeeper.turns import DispatchRunInput, RunFinished, RunRecord
from workflows.run_registry import RunRegistry
from workflows.run_starts import Dispatcher, call_hook, start_run


class SessionRuns:
    """Starts runs, and notes their ends as they are signalled."""

    def __init__(self, dispatcher: Dispatcher, records: tuple[RunRecord, ...]) -> None:
        """Begin with the rows from before a continue-as-new."""
        self._dispatcher = dispatcher
        self.registry = RunRegistry(records)

    async def dispatch(self, request: DispatchRunInput) -> AgentToolResult | None:
        """Start a run, or meet the one that already has this id.

        Returns:
            None once the run has started; its result when it was refused, failed to start, or had already ended.
        """
        if self.registry.find(request) is None:
            cap = self._dispatcher.profile.max_concurrent_agent_tools
            refusal = self.registry.admit(request, depth=1, cap=cap, now=workflow.now())
            if refusal is not None:
                return refusal
            await self._start(request)
        await workflow.wait_condition(lambda: not self.registry.is_starting(request.run_id))
        return self.registry.result(request.run_id)

    def end(self, finished: RunFinished) -> bool:
        """Note a run's last word; returns whether it was news."""
        if not self.registry.is_open(finished.result.run_id):
            return False
        self.registry.mark_ended(finished.result, finished.at)
        return True

    async def cancel(self, run_id: str, reason: str) -> None:
        """Ask a run of this session's to stop; without effect when it is unknown or has ended."""
        if not self.registry.is_open(run_id):
            return
        run = workflow.get_external_workflow_handle(names.run_workflow_id(self._dispatcher.instance, run_id))
        try:
            await run.cancel(reason=reason)
        except ApplicationError as error:
            workflow.logger.info("run %s could not be cancelled: %s", run_id, error)

    async def _start(self, request: DispatchRunInput) -> None:
        try:
            if "on_agent_tool_start" in self._dispatcher.profile.hooks:
                info = self.registry.info(request.run_id).model_dump(mode="json")
                await call_hook(self._dispatcher, "on_agent_tool_start", info)
            await start_run(self._dispatcher, request, awaited=False)
            self.registry.mark_running(request.run_id)
        except WorkflowAlreadyStartedError:
            # A turn of this instance dispatched it, and keeps its row. Whoever asked follows it by its id.
            self.registry.forget(request.run_id)
        except FailureError as error:
            result = error_result(request.run_id, request.profile.agent_type, failure_text(error))
            self.registry.mark_ended(result, workflow.now())
