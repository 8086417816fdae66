"""The agent-tool runs that a session watches: those dispatched to it, and the detached ones of its whole tree."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError, WorkflowAlreadyStartedError

from turnkeeper import names
from turnkeeper.dispatches import (
    AgentProfile,
    ClearRunsInput,
    Delivery,
    DetachedOptions,
    DispatchRunInput,
    DispatchRunResult,
    Posting,
    RunRecord,
    RunReported,
    RunWatch,
)
from turnkeeper.events import Event
from turnkeeper.frames import end_event
from turnkeeper.outcomes import error_result, failure_text, result_from_failure
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, DeliveryInfo, InterruptedReason
from turnkeeper.steps import PublishInput
from turnkeeper.turns import QueuedNotice
from workflows.publishing import publish, publish_end, publish_refusal
from workflows.run_registry import OPEN_STATUSES, RunRegistry
from workflows.run_starts import Dispatcher, announce_start, request_cancel, start_run

CANCELLED_BY_PARENT = "The run was cancelled by its parent."
"""The error of a run whose cancel gave no reason (CX-14)."""

MANY_DETACHED_RUNS = 50
"""Detached runs of a session's tree that go on at once, from which each further one raises an event (OE-35)."""

GIVE_UP_TEXTS: dict[InterruptedReason, str] = {
    "budget-exceeded": "The run was given up: it took longer than its budget.",
    "no-progress": "The run was given up: it reported nothing for longer than its budget.",
}


class SessionRuns:
    """Starts runs, notes how they stand, and has their ends delivered."""

    def __init__(
        self,
        session_id: str,
        profile: Callable[[], AgentProfile],
        deliver: Callable[[str, Delivery], None],
        records: tuple[RunRecord, ...],
    ) -> None:
        """Begin with the rows from before a continue-as-new.

        Args:
            session_id: the session's workflow id.
            profile: gives the session's agent as it is known by now.
            deliver: takes what is to be delivered of a run, given its path.
            records: the rows.
        """
        self._session_id = session_id
        self._profile = profile
        self._deliver = deliver
        self.registry = RunRegistry(records)

    def dispatcher(self, path: str) -> Dispatcher:
        """Return whose run a run is: the session's own, or that of one of its runs."""
        record = self.registry.record(path)
        owner = record.watch.owner if record is not None and record.watch is not None else None
        if owner is None:
            return Dispatcher(self._session_id, self._session_id, names.RUN_TURN, self._profile(), depth=0)
        depth = owner.instance.count("/runs/")
        return Dispatcher(self._session_id, owner.instance, names.RUN_TURN, owner.profile, depth)

    async def dispatch(self, request: DispatchRunInput) -> DispatchRunResult:
        """Start a run, or meet the one that already has this id; answers once it is recorded and has started."""
        path = request.path
        if self.registry.find(request) is None:
            watch = _watch(request, workflow.now())
            profile = self._profile() if request.owner is None else request.owner.profile
            refusal = self.registry.admit(
                request,
                depth=1 if request.owner is None else request.owner.instance.count("/runs/") + 1,
                cap=profile.max_concurrent_agent_tools,
                now=workflow.now(),
                watch=watch,
            )
            if refusal is None:
                self._warn_of_many(path)
                await self._start(request)
            else:
                publish_refusal(self._workflow_id(path), request, refusal)
        await workflow.wait_condition(lambda: not self.registry.is_starting(path))
        info = self.registry.find_info(path)
        return DispatchRunResult(
            run_id=request.run_id,
            workflow_id=self._workflow_id(path),
            result=self.registry.result(path),
            refused=self.registry.is_refused(path),
            joined=info is None,
            status=info.status if info else None,
        )

    def end(self, path: str, result: AgentToolResult, at: datetime, *, is_told: bool = False) -> None:
        """Note how a run ended, once, and have it delivered; the live log is told unless the run did that itself."""
        record = self.registry.record(path)
        if record is None or record.info.status in ("completed", "error", "aborted"):
            return
        if record.info.status == "interrupted" and result.status == "aborted":
            # Its teardown worked, of which the give-up has told already (DV-22 as decided).
            self.registry.mark_torn_down(path)
            return
        self.registry.mark_ended(path, result, at)
        if not is_told:
            self._publish_end(path, result)
        self._add_delivery(path, "finish", result)

    def _publish_end(self, path: str, result: AgentToolResult) -> None:
        publish(PublishInput(source=self._workflow_id(path), runs=(end_event(path, result),)))

    def retry(self, path: str, delivery: Delivery) -> None:
        """Have a delivery tried again."""
        self.registry.update_delivery(path, delivery.slot, due_at=None)
        self._deliver(path, delivery)

    async def give_up(self, path: str, reason: InterruptedReason) -> None:
        """Stop waiting for a run, and ask it to stop (BU-01, BU-02, BU-08)."""
        info = self.registry.info(path)
        given_up = AgentToolResult(
            run_id=info.run_id,
            agent_type=info.agent_type,
            status="interrupted",
            error=GIVE_UP_TEXTS[reason],
            reason=reason,
            child_still_running=True,
        )
        # Noted first: that the cancel has ended the run may be heard before that it was sent.
        self.registry.mark_ended(path, given_up, workflow.now())
        is_torn_down = await request_cancel(self._workflow_id(path), GIVE_UP_TEXTS[reason])
        # One that had not begun will not (`_start`).
        if is_torn_down or info.status == "starting":
            self.registry.mark_torn_down(path)
        record = self.registry.record(path)
        if record is not None and record.info.status == "interrupted" and record.result is not None:
            self._publish_end(path, record.result)
            self._add_delivery(path, "give_up", record.result)

    async def cancel(self, path: str, reason: str | None) -> bool:
        """Cancel a run, and tell whether it was open; it is aborted whether or not it can be reached (CX-14, CX-16)."""
        info = self.registry.find_info(path)
        if info is None or info.status in ("completed", "error", "aborted"):
            return False
        text = reason or CANCELLED_BY_PARENT
        await request_cancel(self._workflow_id(path), text)
        result = AgentToolResult(run_id=info.run_id, agent_type=info.agent_type, status="aborted", error=text)
        if info.status == "interrupted":
            self.registry.mark_ended(path, result, workflow.now())
            self._publish_end(path, result)
            self._add_delivery(path, "finish", result)
        else:
            self.end(path, result, workflow.now())
        return True

    def expires_at(self, record: RunRecord) -> datetime | None:
        """Return when a row is to be forgotten: some time after its run has ended and been told of (CL-01)."""
        retention = self.dispatcher(record.path).profile.run_retention
        ended_at = record.info.completed_at
        if retention is None or ended_at is None or is_unsettled(record):
            return None
        return ended_at + retention

    def is_first_report(self, path: str) -> bool:
        """Tell whether a run has not reported before."""
        record = self.registry.record(path)
        return record is not None and record.watch is not None and record.watch.last_signal_at is None

    def note_report(self, reported: RunReported, now: datetime) -> QueuedNotice | None:
        """Note a sign of life, and return what the conversation is to hear of, once for each milestone (OM-06)."""
        record = self.registry.record(reported.path)
        if record is None or record.watch is None:
            return None
        self.registry.update_watch(reported.path, last_signal_at=now)
        name = reported.progress.milestone
        watch = record.watch
        if name is None or name not in watch.options.milestones or name in watch.noticed or watch.owner is not None:
            return None
        self.registry.update_watch(reported.path, noticed=(*watch.noticed, name))
        return QueuedNotice(path=reported.path, milestone=name, data=reported.progress.data)

    async def clear(self, request: ClearRunsInput) -> int:
        """Remove rows, having cancelled the runs that go on; nothing is delivered of them any more (CL-09)."""
        now = workflow.now()
        meant = [record for record in self.registry.records if _is_meant(record, request, now)]
        # All are forgotten before the first is cancelled, whose end may be heard while the next one's cancel is sent.
        for record in meant:
            self.registry.forget(record.path)
        for record in meant:
            if record.info.status in OPEN_STATUSES:
                await request_cancel(self._workflow_id(record.path), "The run was cleared.")
        return len(meant)

    def _add_delivery(self, path: str, slot: Literal["finish", "give_up"], result: AgentToolResult) -> None:
        record = self.registry.record(path)
        if record is None or record.watch is None:
            return
        posting = None if record.watch.options.webhook is None else Posting()
        delivery = Delivery(slot=slot, result=result, at=workflow.now(), posting=posting)
        self.registry.put_delivery(path, delivery)
        self._deliver(path, delivery)

    def _warn_of_many(self, path: str) -> None:
        """Say that a session watches many detached runs at once, which is more often a loop than a wish."""
        record = self.registry.record(path)
        live = sum(r.info.status in OPEN_STATUSES and bool(r.info.detached) for r in self.registry.records)
        if record is None or not record.info.detached or live < MANY_DETACHED_RUNS:
            return
        payload: dict[str, JsonValue] = {"liveCount": live, "threshold": MANY_DETACHED_RUNS}
        event = Event(type="agent_tool:detached:live_count_warning", payload=payload)
        publish(PublishInput(source=self._workflow_id(path), events=(event,), occasion="/live-count"))

    async def _start(self, request: DispatchRunInput) -> None:
        path = request.path
        try:
            await announce_start(self.dispatcher(path), self.registry.info(path))
            if not self.registry.is_starting(path):
                return  # It was cancelled, given up or cleared before it began.
            child = await start_run(self.dispatcher(path), request, awaited=False)
            child.add_done_callback(lambda ended: self._note_silent_end(request, ended))
            if self.registry.is_starting(path):
                self.registry.mark_running(path)
            else:
                # A cancel that came while Temporal started it found nothing; one that has ended takes no harm.
                await request_cancel(self._workflow_id(path), CANCELLED_BY_PARENT)
        except WorkflowAlreadyStartedError:
            # A turn of this instance dispatched it, and keeps its row. Whoever asked follows it by its id.
            self.registry.forget(path)
        except FailureError as error:
            result = error_result(request.run_id, request.profile.agent_type, failure_text(error))
            publish_end(self._workflow_id(path), request, result)
            self.end(path, result, workflow.now(), is_told=True)

    def _note_silent_end(self, request: DispatchRunInput, child: asyncio.Task[AgentToolResult]) -> None:
        """Note the end of a run that could not report it, such as one that an operator terminated.

        A run signals before it closes, so that a row which is still open by then has had no signal.
        """
        error = None if child.cancelled() else child.exception()
        if isinstance(error, ChildWorkflowError) and self.registry.is_open(request.path):
            run_id, agent_type = request.run_id, request.profile.agent_type
            result = result_from_failure(error.cause, run_id=run_id, agent_type=agent_type)
            self.end(request.path, result, workflow.now())

    def _workflow_id(self, path: str) -> str:
        return names.run_workflow_id(self._session_id, path)


def shown_info(record: RunRecord) -> AgentToolRunInfo:
    """Return a row with how far the telling of its end has come."""
    if record.watch is None or not record.info.detached:
        return record.info
    told: list[DeliveryInfo] = []
    for delivery in record.watch.deliveries:
        told.append(_shown("agent", delivery.slot, delivery))
        if delivery.posting is not None:
            told.append(_shown("webhook", delivery.slot, delivery.posting))
    return record.info.model_copy(update={"deliveries": tuple(told) or None})


def _shown(
    to: Literal["agent", "webhook"], slot: Literal["finish", "give_up"], telling: Delivery | Posting
) -> DeliveryInfo:
    status = telling.outcome or ("open" if telling.attempts else "pending")
    return DeliveryInfo(to=to, slot=slot, status=status, attempts=telling.attempts, error=telling.error)


def is_unsettled(record: RunRecord) -> bool:
    """Tell whether a run may still have something to say, or somebody is still to be told of it."""
    if record.info.status in OPEN_STATUSES or record.info.child_still_running:
        return True
    return record.watch is not None and any(
        each.outcome is None or (each.posting is not None and each.posting.outcome is None)
        for each in record.watch.deliveries
    )


def _is_meant(record: RunRecord, request: ClearRunsInput, now: datetime) -> bool:
    above = record.path.rpartition("/runs/")[0] or None
    if above != request.owner or (request.status and record.info.status not in request.status):
        return False
    return request.older_than is None or record.info.started_at < now - request.older_than


def _watch(request: DispatchRunInput, now: datetime) -> RunWatch:
    options = request.detached or DetachedOptions()
    deadline = None if options.max_budget is None else now + options.max_budget
    return RunWatch(options=options, owner=request.owner, deadline=deadline)
