"""AgentSession: one agent instance, which takes one turn after the other until it is destroyed."""

import asyncio
from collections import deque
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception

from turnkeeper import names
from turnkeeper.dispatches import (
    CancelRunInput,
    ClearRunsInput,
    Delivery,
    DispatchRunInput,
    DispatchRunResult,
    RunFinished,
    RunReported,
)
from turnkeeper.errors import RollingOver
from turnkeeper.events import Event
from turnkeeper.messages import UIMessage
from turnkeeper.outcomes import cancel_reason, failure_text
from turnkeeper.runs import AgentToolRunInfo
from turnkeeper.search_attributes import instance_attributes
from turnkeeper.steps import PublishInput
from turnkeeper.turns import (
    TURN_END_STATUSES,
    CancelTurnInput,
    ClearMessagesInput,
    InstanceState,
    MessagesInput,
    MessagesPage,
    QueuedDelivery,
    QueuedNotice,
    QueuedTurn,
    QueuedWork,
    SessionInput,
    SessionSnapshot,
    SetStateInput,
    SubmitInput,
    TranscriptRef,
    TurnInfo,
    TurnInput,
    TurnResult,
    TurnStatus,
)
from workflows import options
from workflows.deliveries import Deliveries
from workflows.message_pages import MessageLog
from workflows.progress_hooks import ProgressHooks
from workflows.publishing import PublishingWorkflow, publish
from workflows.run_starts import Dispatcher
from workflows.run_watch import RunWatcher
from workflows.session_runs import SessionRuns, shown_info
from workflows.stopped_turns import context_of, end_of_turn, publish_turn_end, read_stopped_turn
from workflows.turn_ledger import TurnLedger, message_digest

REMEMBERED_REQUESTS = 200
"""Requests whose ids a session remembers, for one that comes twice around a continue-as-new."""

CLEARED = "the conversation was cleared"


@workflow.defn(name=names.AGENT_SESSION)
class AgentSession(PublishingWorkflow):
    """Holds an instance's transcript, its registry of runs and its inbox.

    The inbox is worked off strictly first in, first out, one piece of work at a time.
    """

    @workflow.init
    def __init__(self, session: SessionInput) -> None:
        """Begin a session, or go on with it after a continue-as-new."""
        self._id = workflow.info().workflow_id
        self._profile = session.profile
        self._log = MessageLog(session.messages)
        self._revision = session.revision
        self._state = session.state
        self._context = session.context
        self._seen_requests = deque(session.seen_requests, maxlen=REMEMBERED_REQUESTS)
        self._inbox = deque(session.queue)
        self._turns = TurnLedger(session.turns, session.turns_submitted)
        self._runs = SessionRuns(self._id, lambda: self._profile, self._queue_delivery, session.runs)
        self._watcher = RunWatcher(self._id, self._runs, session.reconcile_at)
        self._deliveries = Deliveries(
            self._id, self._runs.registry, self._runs.dispatcher, self._submit_notice, self._narrate
        )
        self._progress_hooks = ProgressHooks(self._find_reporting, session.reports, self._is_long)
        self._active: workflow.ChildWorkflowHandle[Any, TurnResult] | None = None
        self._turn_revision = session.revision
        self._is_at_work = False
        self._cancel_reasons: dict[str, str] = {}

    @workflow.run
    async def run(self, session: SessionInput) -> None:
        """Work off the inbox, and start anew with it when the history has grown long, until cancelled."""
        try:
            await self._serve()
        except asyncio.CancelledError:
            reason = cancel_reason(workflow.cancellation_reason())
            for turn in self._turns.latest:
                if turn.status not in TURN_END_STATUSES:
                    self._turns.end(turn.turn_id, "aborted", reason, workflow.now())
            raise

    async def _serve(self) -> None:
        watching = asyncio.create_task(self._watcher.watch())
        self._progress_hooks.resume()
        while True:
            # Nothing is begun once the history is long, or there might always be a handler that has not finished.
            await workflow.wait_condition(
                lambda: watching.done() or (not self._is_acting() if self._is_long() else bool(self._inbox))
            )
            if watching.done():
                watching.result()  # It never ends but by a bug, and nobody would be told of anything any more.
            if self._is_long():
                watching.cancel()
                workflow.continue_as_new(self._continuation())
            self._is_at_work = True
            await self._work_off(self._inbox.popleft())
            self._is_at_work = False
            if workflow.cancellation_reason() is not None:
                # It came when a piece of work was about to end, which kept it to itself.
                raise asyncio.CancelledError

    async def _work_off(self, work: QueuedWork) -> None:
        if isinstance(work, QueuedTurn):
            await self._take_turn(work)
        elif isinstance(work, QueuedDelivery):
            await self._deliveries.deliver(work.path, work.slot)
            self._watcher.wake()
        else:
            await self._deliveries.notice(work)

    @workflow.update(name=names.SUBMIT)
    def submit(self, request: SubmitInput) -> TurnInfo:
        """Queue a message for a turn; the same submission id again is the same turn."""
        self._profile = request.profile
        known = self._turns.find(request.submission_id)
        if known is not None:
            return known
        info = self._turns.add(
            request.submission_id, message_digest(request.message), request.message.id, workflow.now()
        )
        self._inbox.append(QueuedTurn(turn_id=info.turn_id, message=request.message, profile=request.profile))
        return info

    @submit.validator
    def _check_submission(self, request: SubmitInput) -> None:
        self._turns.check(request.submission_id, message_digest(request.message))

    @workflow.update(name=names.CANCEL_TURN)
    def cancel_turn(self, request: CancelTurnInput) -> TurnInfo:
        """Stop a turn, or keep a queued one from starting; without effect on one that has ended."""
        return self._stop_turn(self._turns.get(request.turn_id), request.reason or "cancelled")

    @cancel_turn.validator
    def _check_turn(self, request: CancelTurnInput) -> None:
        self._turns.get(request.turn_id)

    @workflow.update(name=names.DISPATCH_RUN)
    async def dispatch_run(self, request: DispatchRunInput) -> DispatchRunResult:
        """Start an agent-tool run for somebody outside; answers once it has started."""
        self._watcher.wake()  # The run's budget counts from now, however long its start hook takes.
        return await self._runs.dispatch(request)

    @dispatch_run.validator
    def _check_dispatch(self, request: DispatchRunInput) -> None:
        self._check_is_staying()
        self._runs.registry.find(request)

    @workflow.update(name=names.CANCEL_RUN)
    async def cancel_run(self, request: CancelRunInput) -> bool:
        """Cancel a run that this session watches; answers whether it was open (CX-12, CX-14)."""
        return await self._runs.cancel(request.run_id, request.reason)

    @cancel_run.validator
    def _check_cancel(self, request: CancelRunInput) -> None:
        self._check_is_staying()

    @workflow.update(name=names.CLEAR_RUNS)
    async def clear_runs(self, request: ClearRunsInput) -> int:
        """Remove runs from the registry; those that go on are cancelled first (CL-02 to CL-06)."""
        return await self._runs.clear(request)

    @clear_runs.validator
    def _check_clear(self, request: ClearRunsInput) -> None:
        self._check_is_staying()

    @workflow.update(name=names.CLEAR_MESSAGES)
    def clear_messages(self, request: ClearMessagesInput) -> None:
        """Begin the conversation anew: what waits for its turn is aborted, and the turn that goes on as well."""
        if not self._is_new(request.request_id):
            return
        self._log.clear()
        self._context = None
        self._revision += 1
        for turn in self._turns.latest:
            if turn.status not in TURN_END_STATUSES:
                self._stop_turn(turn, CLEARED)
        self._inbox = deque(work for work in self._inbox if not isinstance(work, QueuedNotice))
        self._deliveries.cancel_waiting()
        event = Event(type="message:clear")
        publish(PublishInput(source=self._id, events=(event,), occasion=f"/clear-{self._revision}"))

    @workflow.update(name=names.SET_STATE)
    def set_state(self, request: SetStateInput) -> None:
        """Replace the instance's state."""
        if self._is_new(request.request_id):
            self._state = InstanceState(value=request.value, is_set=True)

    @workflow.query(name=names.STATE)
    def state(self) -> InstanceState:
        """Return the instance's state."""
        return self._state

    @workflow.signal(name=names.RUN_REPORTED)
    def run_reported(self, reported: RunReported) -> None:
        """Note a run's report: a sign of life, and perhaps a milestone that somebody wants to hear of."""
        if self._runs.is_first_report(reported.path):
            self._watcher.wake()  # Later ones only put off what it waits for.
        notice = self._runs.note_report(reported, workflow.now())
        if notice is not None:
            self._inbox.append(notice)
        self._progress_hooks.offer(reported)

    @workflow.signal(name=names.RUN_FINISHED)
    def run_finished(self, finished: RunFinished) -> None:
        """Note a run's last word, once."""
        self._runs.end(finished.path, finished.result, finished.at, is_told=True)

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
        return self._log.page(request.after, revision=self._revision)

    @workflow.query(name=names.TURN)
    def turn(self, turn_id: str) -> TurnInfo | None:
        """Return one turn, or None if it is unknown or too old to be remembered."""
        return self._turns.lookup(turn_id)

    @workflow.query(name=names.RUNS)
    def runs(self) -> list[AgentToolRunInfo]:
        """Return the registry, oldest first; a turn that is going on keeps its own runs until it ends."""
        return [shown_info(record) for record in self._runs.registry.records]

    def _stop_turn(self, info: TurnInfo, reason: str) -> TurnInfo:
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

    def _is_new(self, request_id: str) -> bool:
        """Tell whether a request has not been carried out yet; one may come twice around a continue-as-new."""
        if request_id in self._seen_requests:
            return False
        self._seen_requests.append(request_id)
        return True

    async def _take_turn(self, work: QueuedTurn) -> None:
        self._turns.start(work.turn_id, workflow.now())
        self._log.append(work.message)
        self._turn_revision = self._revision
        status, error = await self._run_turn(work)
        self._turns.end(work.turn_id, status, error, workflow.now())
        self._active = None
        self._cancel_reasons.pop(work.turn_id, None)
        self._watcher.wake()  # Its runs have rows here now, which may be kept for a time only.

    async def _run_turn(self, work: QueuedTurn) -> tuple[TurnStatus, str | None]:
        status: TurnStatus
        try:
            self._active = await self._start_turn(work)
            if work.turn_id in self._cancel_reasons:
                self._active.cancel(self._cancel_reasons[work.turn_id])
            self._add(await end_of_turn(self._active))
        except ChildWorkflowError as failure:
            if workflow.cancellation_reason() is not None:
                # The session itself is cancelled, and has taken its turn along.
                raise asyncio.CancelledError from failure
            stopped = await read_stopped_turn(self._id, work.turn_id)
            self._add(stopped)
            if is_cancelled_exception(failure):
                status, error = "aborted", self._cancel_reasons.get(work.turn_id, "cancelled")
            else:
                status, error = "error", failure_text(failure)
            publish_turn_end(self._id, work.turn_id, status, error)
            return status, error
        except WorkflowAlreadyStartedError:
            return "error", f"The turn id {work.turn_id} was used by an earlier session of this name. Send it again."
        return "completed", None

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
                context=self._context,
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
        if self._turn_revision == self._revision:
            self._context = context_of(result, len(self._log)) or self._context
            if result.message is not None:
                self._log.append(result.message)
        self._runs.registry.take_over(result.runs, workflow.now())

    def _queue_delivery(self, path: str, delivery: Delivery) -> None:
        self._watcher.note_end(path, delivery.slot)
        self._inbox.append(QueuedDelivery(path=path, slot=delivery.slot))

    def _submit_notice(self, message: UIMessage) -> None:
        """Queue a message of ours for a turn; the same message id again is the same message (NT-02)."""
        if self._turns.find(message.id) is None:
            info = self._turns.add(message.id, message_digest(message), message.id, workflow.now())
            self._inbox.append(QueuedTurn(turn_id=info.turn_id, message=message, profile=self._profile))

    def _narrate(self, message: UIMessage) -> None:
        """Add a message of the assistant's outside a turn."""
        self._log.append(message)
        publish(PublishInput(source=self._id, message=message))

    def _find_reporting(self, reported: RunReported) -> tuple[Dispatcher, AgentToolRunInfo] | None:
        info = self._runs.registry.find_info(reported.path)
        return None if info is None else (self._runs.dispatcher(reported.path), info)

    def _transcript(self) -> TranscriptRef:
        info = workflow.info()
        return TranscriptRef(
            workflow_id=self._id,
            first_temporal_run_id=info.first_execution_run_id,
            revision=self._revision,
            length=len(self._log),
        )

    def _is_long(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    def _check_is_staying(self) -> None:
        """Have the sender of an update whose handler waits for something try again after a continue-as-new.

        A turn or hook that goes on puts that off anyway, and may be what sends the update.
        """
        if self._is_long() and not (self._is_at_work or self._progress_hooks.is_busy):
            raise RollingOver("this session is about to continue as new; send the update again")

    def _is_acting(self) -> bool:
        is_busy = self._progress_hooks.is_busy or self._watcher.is_busy or self.untold > 0
        return is_busy or not workflow.all_handlers_finished()

    def _continuation(self) -> SessionInput:
        return SessionInput(
            profile=self._profile,
            turns_submitted=self._turns.submitted,
            messages=self._log.messages,
            revision=self._revision,
            state=self._state,
            context=self._context,
            seen_requests=tuple(self._seen_requests),
            queue=tuple(self._inbox),
            turns=self._turns.records,
            runs=self._runs.registry.records,
            reports=self._progress_hooks.waiting,
            reconcile_at=self._watcher.reconcile_at,
        )
