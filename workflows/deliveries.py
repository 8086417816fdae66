"""Tells of the ends and milestones of watched runs: hooks, callbacks, and notices (DV, NT, OM rows)."""

import json
from collections.abc import Callable
from datetime import timedelta

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from turnkeeper.dispatches import Delivery, RunRecord
from turnkeeper.events import Event, EventType
from turnkeeper.messages import TextPart, UIMessage
from turnkeeper.names import run_workflow_id
from turnkeeper.outcomes import failure_text
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.steps import PublishInput
from turnkeeper.turns import QueuedNotice
from workflows.publishing import publish
from workflows.run_registry import RunRegistry
from workflows.run_starts import Dispatcher, announce_end, call_hook

FIRST_RETRY_PAUSE = timedelta(seconds=10)
"""After a delivery that failed, whose attempts in its activity were used up; doubled each time."""

LONGEST_RETRY_PAUSE = timedelta(minutes=10)
"""A delivery is tried for ever: the callback may be mended, and it is cleared with its run."""

Submit = Callable[[UIMessage], None]
Narrate = Callable[[UIMessage], None]


class Deliveries:
    """Carries out deliveries, each until it succeeds; the session calls them one at a time."""

    def __init__(
        self,
        session_id: str,
        registry: RunRegistry,
        dispatcher: Callable[[str], Dispatcher],
        submit: Submit,
        narrate: Narrate,
    ) -> None:
        """Deliver for a session.

        Args:
            session_id: its workflow id.
            registry: its runs.
            dispatcher: gives whose run a run is.
            submit: takes a message that the model is to take a turn on; the same id again is the same message.
            narrate: takes a message that only becomes part of the conversation.
        """
        self._session_id = session_id
        self._registry = registry
        self._dispatcher = dispatcher
        self._submit = submit
        self._narrate = narrate
        self._at_work: tuple[str, str] | None = None

    async def deliver(self, path: str, slot: str) -> None:
        """Tell of a run's end, or of its being given up: the global hook first, then the callback or the notice."""
        record = self._registry.record(path)
        delivery = self._registry.delivery(path, slot)
        if record is None or delivery is None or delivery.outcome is not None:
            return  # Delivered before, cancelled, or cleared meanwhile (CL-09).
        self._at_work = (path, slot)
        try:
            await self._carry_out(path, record, delivery)
        finally:
            self._at_work = None

    async def _carry_out(self, path: str, record: RunRecord, delivery: Delivery) -> None:
        slot = delivery.slot
        if not delivery.is_hook_done:
            await announce_end(self._dispatcher(path), record.info, delivery.result)
            self._registry.update_delivery(path, slot, is_hook_done=True)
        if self._registry.delivery(path, slot) is None:
            return  # Cleared while the hook ran (CL-09).
        try:
            await self._tell(path, record, delivery)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._note_failure(path, slot, failure_text(error))
        else:
            self._registry.update_delivery(path, slot, outcome="delivered", attempts=delivery.attempts + 1, error=None)

    async def notice(self, work: QueuedNotice) -> None:
        """Tell the conversation of a milestone (OM-04, OM-05)."""
        record = self._registry.record(work.path)
        if record is None or record.watch is None:
            return
        default = _milestone_text(record.info, work)
        try:
            about, hook = f"{work.path}/{work.milestone}", "format_detached_milestone"
            text = await self._formatted(hook, work.path, about, default, work.milestone, work.data)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            # A milestone is told once and has no ledger (OM-13): plainly rather than not at all.
            workflow.logger.error("format_detached_milestone failed: %s", failure_text(error))
            text = default
        if not text:
            return
        metadata = _metadata(record.info, record, milestone=work.milestone)
        role = "assistant" if record.watch.options.milestone_mode == "narrate" else "user"
        message_id = f"detached-ms:{work.path}:{work.milestone}"
        message = UIMessage(id=message_id, role=role, parts=(TextPart(text=text),), metadata=metadata)
        if role == "assistant":
            self._narrate(message)
        else:
            self._submit(message)

    def cancel_waiting(self) -> None:
        """Cancel what waits to be told to the conversation that was cleared, and say so (DV-14 as decided).

        Nested runs tell their own agents, which have no part in the conversation.
        """
        for record in self._registry.records:
            if record.watch is None or record.watch.owner is not None:
                continue
            for delivery in record.watch.deliveries:
                if delivery.outcome is None and (record.path, delivery.slot) != self._at_work:
                    self._registry.update_delivery(record.path, delivery.slot, outcome="cancelled", due_at=None)
                    self._tell_event("agent_tool:detached:delivery_cancelled", record, delivery, "cancelled")

    async def _tell(self, path: str, record: RunRecord, delivery: Delivery) -> None:
        options = record.watch.options if record.watch else None
        if options is None:
            return
        result = delivery.result
        if options.on_finish is not None:  # It counts more than a notice (DD-09).
            info = record.info.model_copy(update={"status": result.status, "completed_at": workflow.now()})
            about = f"{path}/{delivery.slot}/{result.status}"
            row, outcome = info.model_dump(mode="json"), result.model_dump(mode="json")
            await call_hook(self._dispatcher(path), options.on_finish, row, outcome, about=about, is_callback=True)
        elif options.notify_source is not None:
            about, default = f"{path}/{result.status}", completion_text(result)
            outcome = result.model_dump(mode="json")
            text = await self._formatted("format_detached_completion", path, about, default, outcome)
            if text:
                message_id = f"detached-finish:{path}:{result.status}"
                metadata = _metadata(record.info, record, status=result.status)
                self._submit(UIMessage(id=message_id, role="user", parts=(TextPart(text=text),), metadata=metadata))

    async def _formatted(self, hook: str, path: str, about: str, default: str, *arguments: JsonValue) -> str:
        """Return what the agent's formatter says, or the default text if it has none."""
        dispatcher = self._dispatcher(path)
        if hook not in dispatcher.profile.hooks:
            return default
        row = self._registry.info(path).model_dump(mode="json")
        written = await call_hook(dispatcher, hook, row, *arguments, about=about)
        return written if isinstance(written, str) else ""

    def _note_failure(self, path: str, slot: str, error: str) -> None:
        """Keep a delivery open, and say so (DV-06, DV-10 as decided)."""
        record = self._registry.record(path)
        delivery = self._registry.delivery(path, slot)
        if record is None or record.watch is None or delivery is None:
            return
        attempts = delivery.attempts + 1
        pause = min(FIRST_RETRY_PAUSE * 2 ** min(attempts - 1, 10), LONGEST_RETRY_PAUSE)
        self._registry.update_delivery(path, slot, attempts=attempts, error=error, due_at=workflow.now() + pause)
        occasion = f"{slot}-{attempts}"
        self._tell_event("agent_tool:detached:delivery_failed", record, delivery, occasion, error=error)

    def _tell_event(
        self, event_type: EventType, record: RunRecord, delivery: Delivery, occasion: str, **more: JsonValue
    ) -> None:
        payload: dict[str, JsonValue] = {
            "runId": record.info.run_id,
            "kind": delivery.slot,
            "status": delivery.result.status,
            "callback": record.watch.options.on_finish if record.watch else None,
            **more,
        }
        event = Event(type=event_type, payload=payload)
        source = run_workflow_id(self._session_id, record.path)
        publish(PublishInput(source=source, events=(event,), occasion=f"/{occasion}"))


def completion_text(result: AgentToolResult) -> str:
    """Return what a notice says of a run's end, if its agent does not say it otherwise (NT-06, NT-07)."""
    name = f'Background task "{result.agent_type}" (run {result.run_id})'
    match result.status, result.reason:
        case "completed", _:
            return f"{name} finished:\n\n{result.summary}" if result.summary else f"{name} finished without a summary."
        case "aborted", _:
            return f"{name} was cancelled: {result.error or 'no reason given'}"
        case "interrupted", "budget-exceeded":
            return f"{name} ran out of time."
        case "interrupted", _:
            return f"{name} was interrupted: {result.error or 'it did not finish'}"
        case _:
            return f"{name} failed: {result.error or 'no reason given'}"


def _milestone_text(info: AgentToolRunInfo, work: QueuedNotice) -> str:
    text = f'Background task "{info.agent_type}" (run {info.run_id}) reached "{work.milestone}".'
    return text if work.data is None else f"{text}\n\n{json.dumps(work.data, ensure_ascii=False, indent=2)}"


def _metadata(info: AgentToolRunInfo, record: RunRecord, **more: str) -> dict[str, JsonValue]:
    source = (record.watch.options.notify_source if record.watch else None) or "detached-agent-tool"
    return {"source": source, "runId": info.run_id, "agentType": info.agent_type, **more}
