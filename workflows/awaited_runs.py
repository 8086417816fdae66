"""The agent-tool runs that a turn or run waits for."""

import asyncio
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput, RunRecord, RunReported
from turnkeeper.errors import Conflict
from turnkeeper.outcomes import error_result, failure_text, is_own_failure, result_from_failure
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.turns import WrapUpInput
from workflows.progress_hooks import ProgressHooks
from workflows.publishing import publish_end, publish_refusal
from workflows.run_registry import RunRegistry
from workflows.run_starts import Dispatcher, announce_end, announce_start, attach_run, request_cancel, start_run

CLOSING = "What would await this run is ending, so it was not started."


class AwaitedRuns:
    """The agent-tool runs that a turn or run waits for: it starts them, and they end with it.

    Each run has two tasks: one that follows it to its result, which is what a cancel cancels, and one around it that
    announces the end, which a cancel must not cut off.
    """

    def __init__(self, dispatcher: Dispatcher, records: tuple[RunRecord, ...], open_elsewhere: int) -> None:
        """Begin with the rows from before a continue-as-new."""
        self.dispatcher = dispatcher
        self.registry = RunRegistry(records, open_elsewhere)
        self.progress_hooks = ProgressHooks(self._find_reporting)
        self._carriers: dict[str, asyncio.Task[AgentToolResult]] = {}
        self._followers: dict[str, asyncio.Task[AgentToolResult]] = {}
        self._joined: set[str] = set()
        self._told: set[str] = set()
        """The runs that told the live log of their end themselves."""
        self._cancel_reasons: dict[str, str] = {}
        self._is_closing = False

    def _find_reporting(self, reported: RunReported) -> tuple[Dispatcher, AgentToolRunInfo] | None:
        info = self.registry.find_info(reported.run_id)
        return None if info is None else (self.dispatcher, info)

    async def dispatch(self, request: DispatchRunInput) -> AgentToolResult | None:
        """Start a run, or meet the one that already has this id.

        Returns:
            None once the run has started; its result when it was refused, failed to start, or had already ended.

        Raises:
            Conflict: the id is taken by another run (DI-16).
        """
        if self.registry.find(request) is None:
            if self._is_closing:
                return error_result(request.run_id, request.profile.agent_type, CLOSING)
            refusal = self.registry.admit(
                request,
                depth=self.dispatcher.depth + 1,
                cap=self.dispatcher.profile.max_concurrent_agent_tools,
                now=workflow.now(),
            )
            if refusal is not None:
                publish_refusal(self._workflow_id(request), request, refusal)
                return refusal
            self._carriers[request.run_id] = asyncio.create_task(self._carry_to_end(request))
        await workflow.wait_condition(lambda: not self.registry.is_starting(request.run_id))
        return self.registry.result(request.run_id)

    def is_joined(self, run_id: str) -> bool:
        """Tell whether somebody else had dispatched a run."""
        return run_id in self._joined

    async def run_to_end(self, request: DispatchRunInput) -> AgentToolResult:
        """Start a run and wait for its end; the same id again is the same run."""
        try:
            result = await self.dispatch(request)
        except Conflict as conflict:
            return error_result(request.run_id, request.profile.agent_type, str(conflict))
        carrier = self._carriers.get(request.run_id)
        if carrier is not None:
            # Whoever cancels a run gives it a reason (`cancel`); a cancelled wait has none.
            return await asyncio.shield(carrier)
        if result is not None and result.status != "completed":
            return result
        # It ended before this workflow continued as new, and a registry keeps no outputs.
        return await attach_run(self.dispatcher, request)

    def cancel(self, run_id: str, reason: str) -> bool:
        """Cancel one run, and tell whether it was open; without effect on one that has ended (CX-12)."""
        follower = self._followers.get(run_id)
        if follower is None or follower.done():
            return False
        self._cancel_reasons[run_id] = reason
        follower.cancel(reason)
        return True

    async def wrap_up(self, asked: WrapUpInput) -> None:
        """Ask every run that goes on to finish with what it has; one that has just ended needs no asking."""
        for run_id, follower in list(self._followers.items()):
            if follower.done():
                continue
            run = workflow.get_external_workflow_handle(names.run_workflow_id(self.dispatcher.instance, run_id))
            with suppress(ApplicationError):
                await run.signal(names.WRAP_UP, asked)

    async def close(self, reason: str) -> None:
        """Admit no further run, cancel those that are open, and wait until their ends are announced."""
        self._is_closing = True
        # A carrier that was made in this very activation has no follower yet.
        await asyncio.sleep(0)
        for run_id in self._followers:
            self.cancel(run_id, reason)
        await workflow.wait_condition(lambda: all(carrier.done() for carrier in self._carriers.values()))
        await self.progress_hooks.close()

    async def _carry_to_end(self, request: DispatchRunInput) -> AgentToolResult:
        """Take one run from its registry row to its end, and have that announced."""
        run_id = request.run_id
        follower = asyncio.create_task(self._follow(request))
        self._followers[run_id] = follower
        try:
            result = await follower
        except asyncio.CancelledError:
            # Cancelled before it took its first step.
            result = self._aborted(request)
        if run_id not in self._joined:
            if run_id not in self._told:
                publish_end(self._workflow_id(request), request, result)
            await announce_end(self.dispatcher, self.registry.info(run_id), result)
        self.registry.mark_ended(run_id, result, workflow.now())
        return result

    async def _follow(self, request: DispatchRunInput) -> AgentToolResult:
        run_id, agent_type = request.run_id, request.profile.agent_type
        try:
            await announce_start(self.dispatcher, self.registry.info(run_id))
            try:
                return await self._follow_child(request)
            except WorkflowAlreadyStartedError:
                return await self._join(request)
        except ChildWorkflowError as error:
            reason = self._cancel_reasons.get(run_id)
            return result_from_failure(error.cause, run_id=run_id, agent_type=agent_type, reason=reason)
        except (FailureError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                return self._aborted(request)
            # DI-18: whatever keeps a run from starting is its result, and frees its slot.
            return error_result(run_id, agent_type, failure_text(error))

    async def _follow_child(self, request: DispatchRunInput) -> AgentToolResult:
        child = await start_run(self.dispatcher, request, awaited=True)
        self.registry.mark_running(request.run_id)
        try:
            result = await child
        except ChildWorkflowError as error:
            if is_own_failure(error.cause):
                self._told.add(request.run_id)
            raise
        self._told.add(request.run_id)
        return result

    def _workflow_id(self, request: DispatchRunInput) -> str:
        return names.run_workflow_id(self.dispatcher.instance, request.run_id)

    async def _join(self, request: DispatchRunInput) -> AgentToolResult:
        """Wait for a run of this instance that somebody else dispatched under the same id (DI-09).

        A cancel reaches it like one that was dispatched here (DI-10 as decided); hooks heard of it before (DI-05).
        """
        self._joined.add(request.run_id)
        self.registry.mark_running(request.run_id)
        try:
            return await attach_run(self.dispatcher, request)
        except (ActivityError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                reason = self._cancel_reasons.get(request.run_id, "cancelled")
                await request_cancel(self._workflow_id(request), reason)
            raise

    def _aborted(self, request: DispatchRunInput) -> AgentToolResult:
        return AgentToolResult(
            run_id=request.run_id,
            agent_type=request.profile.agent_type,
            status="aborted",
            error=self._cancel_reasons.get(request.run_id, "cancelled"),
        )
