"""The agent-tool runs that a turn or run waits for."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from turnkeeper.errors import Conflict
from turnkeeper.outcomes import error_result, failure_text, result_from_failure
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.turns import DispatchRunInput, RunRecord
from workflows.run_registry import RunRegistry
from workflows.run_starts import Dispatcher, announce_end, attach_run, call_hook, cancel_run, start_run


class AwaitedRuns:
    """The agent-tool runs that a turn or run waits for: it starts them, and they end with it."""

    def __init__(self, dispatcher: Dispatcher, records: tuple[RunRecord, ...], open_elsewhere: int) -> None:
        """Begin with the rows from before a continue-as-new."""
        self.dispatcher = dispatcher
        self.registry = RunRegistry(records, open_elsewhere)
        self._tasks: dict[str, asyncio.Task[AgentToolResult]] = {}
        self._cancel_reasons: dict[str, str] = {}

    async def dispatch(self, request: DispatchRunInput) -> AgentToolResult | None:
        """Start a run, or meet the one that already has this id.

        Returns:
            None once the run has started; its result when it was refused, failed to start, or had already ended.

        Raises:
            Conflict: the id is taken by another run (DI-16).
        """
        known = self.registry.find(request)
        if known is None:
            refusal = self.registry.admit(
                request,
                depth=self.dispatcher.depth + 1,
                cap=self.dispatcher.profile.max_concurrent_agent_tools,
                now=workflow.now(),
            )
            if refusal is not None:
                return refusal
            self._tasks[request.run_id] = asyncio.create_task(self._carry(request))
        await workflow.wait_condition(lambda: not self.registry.is_starting(request.run_id))
        return self.registry.result(request.run_id)

    async def run_to_end(self, request: DispatchRunInput) -> AgentToolResult:
        """Start a run and wait for its end; the same id again is the same run."""
        try:
            await self.dispatch(request)
        except Conflict as conflict:
            return error_result(request.run_id, request.profile.agent_type, str(conflict))
        refusal = self.registry.result(request.run_id)
        if refusal is not None and self.registry.is_refused(request.run_id):
            return refusal
        task = self._tasks.get(request.run_id)
        if task is None:
            # It ended before this workflow continued as new, and a registry keeps no outputs.
            return await attach_run(self.dispatcher.instance, request)
        # Whoever cancels a run gives it a reason (`cancel`); a cancelled wait has none.
        return await asyncio.shield(task)

    def cancel(self, run_id: str, reason: str) -> None:
        """Cancel one run; without effect when it has ended (CX-12)."""
        task = self._tasks.get(run_id)
        if task is not None and not task.done():
            self._cancel_reasons[run_id] = reason
            task.cancel(reason)

    async def cancel_all(self, reason: str) -> None:
        """Cancel every run that is still open, and wait for their ends."""
        for run_id in self._tasks:
            self.cancel(run_id, reason)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _carry(self, request: DispatchRunInput) -> AgentToolResult:
        """Take one run from its registry row to its end."""
        result = await self._result_of(request)
        await self._announce_end(result)
        self.registry.mark_ended(result, workflow.now())
        return result

    async def _result_of(self, request: DispatchRunInput) -> AgentToolResult:
        run_id, agent_type = request.run_id, request.profile.agent_type
        try:
            await self._announce_start(self.registry.info(run_id))
            try:
                return await self._follow_child(request)
            except WorkflowAlreadyStartedError:
                return await self._follow_foreign(request)
        except ChildWorkflowError as error:
            return result_from_failure(
                error.cause, run_id=run_id, agent_type=agent_type, reason=self._cancel_reasons.get(run_id)
            )
        except (FailureError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                return result_from_failure(
                    CancelledError(), run_id=run_id, agent_type=agent_type, reason=self._cancel_reasons.get(run_id)
                )
            # DI-18: whatever keeps a run from starting is its result, and frees its slot.
            return error_result(run_id, agent_type, failure_text(error))

    async def _follow_child(self, request: DispatchRunInput) -> AgentToolResult:
        child = await start_run(self.dispatcher, request, awaited=True)
        self.registry.mark_running(request.run_id)
        return await child

    async def _follow_foreign(self, request: DispatchRunInput) -> AgentToolResult:
        """Wait for a run of this instance that somebody else dispatched under the same id (DI-09).

        A cancel reaches it like one that was dispatched here (DI-10 as decided).
        """
        self.registry.mark_running(request.run_id)
        try:
            return await attach_run(self.dispatcher.instance, request)
        except (ActivityError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                reason = self._cancel_reasons.get(request.run_id, "cancelled")
                await cancel_run(self.dispatcher.instance, request.run_id, reason)
            raise

    async def _announce_start(self, info: AgentToolRunInfo) -> None:
        if "on_agent_tool_start" in self.dispatcher.profile.hooks:
            await call_hook(self.dispatcher, "on_agent_tool_start", info.model_dump(mode="json"))

    async def _announce_end(self, result: AgentToolResult) -> None:
        await announce_end(self.dispatcher, self.registry.info(result.run_id), result)
