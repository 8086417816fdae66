"""The agent-tool runs that a session dispatched itself: they outlive its continue-as-new and report by signal."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError, WorkflowAlreadyStartedError

from turnkeeper import names
from turnkeeper.outcomes import error_result, failure_text, result_from_failure
from turnkeeper.runs import AgentToolResult
from turnkeeper.turns import DispatchRunInput, RunRecord
from workflows.publishing import publish_end, publish_refusal
from workflows.run_registry import RunRegistry
from workflows.run_starts import Dispatcher, announce_start, start_run


class SessionRuns:
    """Starts runs, and notes their ends."""

    def __init__(
        self,
        dispatcher: Callable[[], Dispatcher],
        on_end: Callable[[AgentToolResult, bool], None],
        records: tuple[RunRecord, ...],
    ) -> None:
        """Begin with the rows from before a continue-as-new.

        Args:
            dispatcher: gives the session as a dispatcher, with its agent as it is known by now.
            on_end: is called once for each run that ends, with whether it could not tell so itself.
            records: the rows.
        """
        self._dispatcher = dispatcher
        self._on_end = on_end
        self.registry = RunRegistry(records)

    async def dispatch(self, request: DispatchRunInput) -> AgentToolResult | None:
        """Start a run, or meet the one that already has this id.

        Returns:
            None once the run has started; its result when it was refused, failed to start, or had already ended.
        """
        if self.registry.find(request) is None:
            cap = self._dispatcher().profile.max_concurrent_agent_tools
            refusal = self.registry.admit(request, depth=1, cap=cap, now=workflow.now())
            if refusal is not None:
                await publish_refusal(self._workflow_id(request), request, refusal)
                return refusal
            await self._start(request)
        await workflow.wait_condition(lambda: not self.registry.is_starting(request.run_id))
        return self.registry.result(request.run_id)

    def end(self, result: AgentToolResult, at: datetime, *, is_silent: bool = False) -> None:
        """Note how a run ended, once."""
        if self.registry.is_open(result.run_id):
            self.registry.mark_ended(result, at)
            self._on_end(result, is_silent)

    def _workflow_id(self, request: DispatchRunInput) -> str:
        return names.run_workflow_id(self._dispatcher().instance, request.run_id)

    async def _start(self, request: DispatchRunInput) -> None:
        try:
            await announce_start(self._dispatcher(), self.registry.info(request.run_id))
            child = await start_run(self._dispatcher(), request, awaited=False)
            child.add_done_callback(lambda ended: self._note_silent_end(request, ended))
            self.registry.mark_running(request.run_id)
        except WorkflowAlreadyStartedError:
            # A turn of this instance dispatched it, and keeps its row. Whoever asked follows it by its id.
            self.registry.forget(request.run_id)
        except FailureError as error:
            result = error_result(request.run_id, request.profile.agent_type, failure_text(error))
            await publish_end(self._workflow_id(request), request, result)
            self.end(result, workflow.now())

    def _note_silent_end(self, request: DispatchRunInput, child: asyncio.Task[AgentToolResult]) -> None:
        """Note the end of a run that could not report it, such as one that an operator terminated.

        A run signals before it closes, so that a row which is still open by then has had no signal.
        """
        error = None if child.cancelled() else child.exception()
        if isinstance(error, ChildWorkflowError):
            run_id, agent_type = request.run_id, request.profile.agent_type
            result = result_from_failure(error.cause, run_id=run_id, agent_type=agent_type)
            self.end(result, workflow.now(), is_silent=True)
