"""AgentSession: one agent instance, which takes one turn after the other until it is destroyed."""

import asyncio
from collections import deque
from hashlib import blake2b
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception

from activities.run_watch import RunWatchActivities
from turnkeeper import names
from turnkeeper.errors import RollingOver
from turnkeeper.frames import TurnAborted, TurnError, end_event
from turnkeeper.messages import UIMessage, close_open_calls
from turnkeeper.outcomes import failure_text
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.search_attributes import instance_attributes
from turnkeeper.steps import PublishInput
from turnkeeper.turns import (
    CancelTurnInput,
    DispatchRunInput,
    DispatchRunResult,
    MessagesInput,
    MessagesPage,
    QueuedDelivery,
    QueuedTurn,
    RunFinished,
    RunReported,
    SessionInput,
    SessionSnapshot,
    SubmitInput,
    TranscriptRef,
    TurnInfo,
    TurnInput,
    TurnResult,
    TurnStatus,
)
from workflows import options
from workflows.message_pages import MessageLog
from workflows.progress_hooks import ProgressHooks
from workflows.publishing import publish
from workflows.run_starts import Dispatcher, announce_end
from workflows.session_runs import SessionRuns
from workflows.turn_ledger import TurnLedger


@workflow.defn(name=names.AGENT_SESSION)
class AgentSession:
    """Holds an instance's transcript, its registry of runs and its inbox.

    The inbox is worked off strictly first in, first out, one piece of work at a time.
    """

    @workflow.init
    def __init__(self, session: SessionInput) -> None:
        """Begin a session, or go on with it after a continue-as-new."""
        self._id = workflow.info().workflow_id
        self._profile = session.profile
        self._log = MessageLog(session.messages)
        self._inbox = deque(session.queue)
        self._turns = TurnLedger(session.turns, session.turns_submitted)
        self._runs = SessionRuns(self._dispatcher, self._queue_delivery, session.runs)
        self._progress_hooks = ProgressHooks(
            self._dispatcher, self._runs.registry.find_info, session.reports, self._is_long
        )
        self._active: workflow.ChildWorkflowHandle[Any, TurnResult] | None = None
        self._cancel_reasons: dict[str, str] = {}

    @workflow.run
    async def run(self, session: SessionInput) -> None:
        """Work off the inbox, and start anew with it when the history has grown long."""
        self._progress_hooks.resume()
        while True:
            await workflow.wait_condition(lambda: bool(self._inbox) or self._may_roll_over())
            if self._may_roll_over():
                workflow.continue_as_new(self._continuation())
            work = self._inbox.popleft()
            if isinstance(work, QueuedTurn):
                await self._take_turn(work)
            else:
                await self._deliver(work)
            if workflow.cancellation_reason() is not None:
                # It came when a piece of work was about to end, which kept it to itself.
                raise asyncio.CancelledError

    @workflow.update(name=names.SUBMIT)
    def submit(self, request: SubmitInput) -> TurnInfo:
        """Queue a message for a turn; the same submission id again is the same turn."""
        self._profile = request.profile
        known = self._turns.find(request.submission_id)
        if known is not None:
            return known
        info = self._turns.add(request.submission_id, _digest(request.message), request.message.id, workflow.now())
        self._inbox.append(QueuedTurn(turn_id=info.turn_id, message=request.message, profile=request.profile))
        return info

    @submit.validator
    def _check_submission(self, request: SubmitInput) -> None:
        self._turns.check(request.submission_id, _digest(request.message))

    @workflow.update(name=names.CANCEL_TURN)
    def cancel_turn(self, request: CancelTurnInput) -> TurnInfo:
        """Stop a turn, or keep a queued one from starting; without effect on one that has ended."""
        info = self._turns.get(request.turn_id)
        reason = request.reason or "cancelled"
        if info.status == "queued":
            self._inbox = deque(
                work for work in self._inbox if not (isinstance(work, QueuedTurn) and work.turn_id == info.turn_id)
            )
            return self._turns.end(info.turn_id, "aborted", reason, workflow.now())
        if info.status == "running":
            self._cancel_reasons[info.turn_id] = reason
            if self._active is not None:
                self._active.cancel(reason)
        return info

    @cancel_turn.validator
    def _check_turn(self, request: CancelTurnInput) -> None:
        self._turns.get(request.turn_id)

    @workflow.update(name=names.DISPATCH_RUN)
    async def dispatch_run(self, request: DispatchRunInput) -> DispatchRunResult:
        """Start an agent-tool run for somebody outside; answers once it has started."""
        workflow_id = names.run_workflow_id(self._id, request.run_id)
        result = await self._runs.dispatch(request)
        refused = self._runs.registry.is_refused(request.run_id)
        return DispatchRunResult(run_id=request.run_id, workflow_id=workflow_id, result=result, refused=refused)

    @dispatch_run.validator
    def _check_dispatch(self, request: DispatchRunInput) -> None:
        if self._is_long():
            # Its handler waits for a start hook, and would put the continue-as-new off; the client tries again.
            raise RollingOver("this session is about to continue as new; send the update again")
        self._runs.registry.find(request)

    @workflow.signal(name=names.RUN_REPORTED)
    def run_reported(self, reported: RunReported) -> None:
        """Have `on_progress` hear of a run's report."""
        self._progress_hooks.offer(reported)

    @workflow.signal(name=names.RUN_FINISHED)
    def run_finished(self, finished: RunFinished) -> None:
        """Note a run's last word, once."""
        self._runs.end(finished.result, finished.at)

    @workflow.query(name=names.SNAPSHOT)
    def snapshot(self) -> SessionSnapshot:
        """Return how the instance stands."""
        agent_type, name = names.agent_and_name_of(self._id)
        return SessionSnapshot(
            agent_type=agent_type,
            name=name,
            active_turn_id=self._turns.active_turn_id,
            turns_submitted=self._turns.submitted,
            queued_turns=sum(isinstance(work, QueuedTurn) for work in self._inbox),
            messages=len(self._log),
            turns=self._turns.latest,
        )

    @workflow.query(name=names.MESSAGES)
    def messages(self, request: MessagesInput) -> MessagesPage:
        """Return a page of the transcript."""
        return self._log.page(request.after)

    @workflow.query(name=names.TURN)
    def turn(self, turn_id: str) -> TurnInfo | None:
        """Return one turn, or None if it is unknown or too old to be remembered."""
        return self._turns.lookup(turn_id)

    @workflow.query(name=names.RUNS)
    def runs(self) -> list[AgentToolRunInfo]:
        """Return the registry, oldest first; a turn that is going on keeps its own runs until it ends."""
        return [record.info for record in self._runs.registry.records]

    async def _take_turn(self, work: QueuedTurn) -> None:
        self._turns.start(work.turn_id, workflow.now())
        self._log.append(work.message)
        status, error = await self._run_turn(work)
        self._turns.end(work.turn_id, status, error, workflow.now())
        self._active = None
        self._cancel_reasons.pop(work.turn_id, None)

    async def _run_turn(self, work: QueuedTurn) -> tuple[TurnStatus, str | None]:
        status: TurnStatus
        try:
            self._active = await self._start_turn(work)
            if work.turn_id in self._cancel_reasons:
                self._active.cancel(self._cancel_reasons[work.turn_id])
            self._add(await self._active)
        except ChildWorkflowError as failure:
            if workflow.cancellation_reason() is not None:
                # The session itself is cancelled, and has taken its turn along.
                raise asyncio.CancelledError from failure
            stopped = await self._read_stopped(work.turn_id)
            self._add(stopped)
            if is_cancelled_exception(failure):
                status, error = "aborted", self._cancel_reasons.get(work.turn_id, "cancelled")
            else:
                status, error = "error", failure_text(failure)
            await self._publish_end(work.turn_id, status, error)
            return status, error
        except WorkflowAlreadyStartedError:
            return "error", f"The turn id {work.turn_id} was used by an earlier session of this name. Send it again."
        return "completed", None

    async def _publish_end(self, turn_id: str, status: TurnStatus, error: str) -> None:
        """Tell the live log of a turn's end, in case that the turn was terminated before it could."""
        event = (
            TurnAborted(turn_id=turn_id, reason=error)
            if status == "aborted"
            else TurnError(turn_id=turn_id, error=error)
        )
        await publish(PublishInput(source=names.turn_workflow_id(self._id, turn_id), turn=event))

    async def _start_turn(self, work: QueuedTurn) -> workflow.ChildWorkflowHandle[Any, TurnResult]:
        agent_type = work.profile.agent_type
        child: workflow.ChildWorkflowHandle[Any, TurnResult] = await workflow.start_child_workflow(
            names.AGENT_TURN,
            TurnInput(
                instance=self._id,
                turn_id=work.turn_id,
                profile=work.profile,
                transcript=self._transcript(),
                open_runs=self._runs.registry.open_count,
            ),
            result_type=TurnResult,
            **options.awaited_child(
                names.turn_workflow_id(self._id, work.turn_id),
                instance_attributes(self._id, agent_type),
                f"{agent_type}: turn {work.turn_id}",
            ),
        )
        return child

    def _add(self, result: TurnResult) -> None:
        if result.message is not None:
            self._log.append(result.message)
        self._runs.registry.take_over(result.runs, workflow.now())

    async def _read_stopped(self, turn_id: str) -> TurnResult:
        """Return what a turn had written when it failed or was stopped, with its open calls closed."""
        try:
            result = await workflow.execute_activity_method(
                RunWatchActivities.read_stopped_turn,
                names.turn_workflow_id(self._id, turn_id),
                **options.transcript_read(turn_id),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.error("turn %s left nothing that can be read: %s", turn_id, failure_text(error))
            return TurnResult(message=None)
        if result.message is None:
            return result
        closed = close_open_calls(result.message, "The call was stopped: the turn ended.")
        return result.model_copy(update={"message": closed})

    def _queue_delivery(self, result: AgentToolResult, is_silent: bool) -> None:
        self._inbox.append(QueuedDelivery(result=result, profile=self._profile, is_silent=is_silent))

    async def _deliver(self, work: QueuedDelivery) -> None:
        if work.is_silent:
            source = names.run_workflow_id(self._id, work.result.run_id)
            event = end_event(work.result.run_id, work.result)
            await publish(PublishInput(source=source, runs=(event,)))
        await announce_end(self._dispatcher(), self._runs.registry.info(work.result.run_id), work.result)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self._id, self._id, turn_id=names.RUN_TURN, profile=self._profile, depth=0)

    def _transcript(self) -> TranscriptRef:
        info = workflow.info()
        return TranscriptRef(
            workflow_id=self._id, first_temporal_run_id=info.first_execution_run_id, length=len(self._log)
        )

    def _is_long(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    def _may_roll_over(self) -> bool:
        return self._is_long() and workflow.all_handlers_finished() and not self._progress_hooks.is_busy

    def _continuation(self) -> SessionInput:
        return SessionInput(
            profile=self._profile,
            turns_submitted=self._turns.submitted,
            messages=self._log.messages,
            queue=tuple(self._inbox),
            turns=self._turns.records,
            runs=self._runs.registry.records,
            reports=self._progress_hooks.waiting,
        )


def _digest(message: UIMessage) -> str:
    """Return a fingerprint of what a message says; its id may differ between two tries."""
    content = message.model_copy(update={"id": ""}).model_dump_json()
    return blake2b(content.encode(), digest_size=16).hexdigest()
