"""Posts the ends of watched runs to people outside (issue C, item 8)."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from hashlib import blake2b

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.webhooks import WebhookActivities
from turnkeeper import names
from turnkeeper.dispatches import Delivery, Posting, RunRecord
from turnkeeper.events import Event
from turnkeeper.outcomes import failure_text
from turnkeeper.steps import PublishInput
from turnkeeper.webhooks import WebhookAnswer, WebhookPost
from workflows import options
from workflows.publishing import publish
from workflows.run_registry import RunRegistry

RETRY_PAUSES = tuple(
    timedelta(minutes=minutes) for minutes in (0.2, 1, 5, 15, 30, 60, 2 * 60, 3 * 60, 4 * 60, 6 * 60, 8 * 60)
)
"""Between the attempts at one webhook: twelve attempts in about a day, and then a dead letter."""


class Webhooks:
    """Posts beside the session's inbox: a receiver that is slow or gone holds up nobody else."""

    def __init__(self, session_id: str, registry: RunRegistry, wake: Callable[[], None]) -> None:
        """Post for a session.

        Args:
            session_id: its workflow id.
            registry: its runs, which keep how far each posting has come.
            wake: called when another attempt is due at a time that nobody waits for yet.
        """
        self._session_id = session_id
        self._registry = registry
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()

    def resume(self) -> None:
        """Make the attempts again that a continue-as-new cut off; a receiver knows the repeat by its id."""
        for record in self._registry.records:
            for delivery in record.watch.deliveries if record.watch else ():
                if delivery.posting is not None and delivery.posting.due_at is None:
                    self.post(record.path, delivery.slot)

    def post(self, path: str, slot: str) -> None:
        """Make an attempt to post one end of a run, if that is to be posted at all."""
        delivery = self._registry.delivery(path, slot)
        if delivery is None or delivery.posting is None or delivery.posting.outcome is not None:
            return
        self._registry.update_delivery(path, slot, posting=delivery.posting.model_copy(update={"due_at": None}))
        task = asyncio.create_task(self._attempt(path, slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, path: str, slot: str) -> None:
        record, delivery = self._registry.record(path), self._registry.delivery(path, slot)
        if record is None or record.watch is None or record.watch.options.webhook is None or delivery is None:
            return
        try:
            answer = await workflow.execute_activity_method(
                WebhookActivities.post_webhook,
                self._post_of(record, record.watch.options.webhook, delivery),
                **options.webhook_attempt(record.info.run_id),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            answer = WebhookAnswer(delivered=False, error=failure_text(error))
        await self._note(path, slot, answer)

    def _post_of(self, record: RunRecord, url: str, delivery: Delivery) -> WebhookPost:
        result = delivery.result
        instance = self._session_id
        if record.watch is not None and record.watch.owner is not None:
            instance = record.watch.owner.instance
        # The start tells two runs apart that had the same id, one after the other was cleared.
        about = f"{instance}/{record.path}/{record.info.started_at.isoformat()}/{delivery.slot}/{result.status}"
        return WebhookPost(
            url=url,
            event_id=f"evt_{blake2b(about.encode(), digest_size=16).hexdigest()}",
            type=f"agent_tool_run.{result.status}",
            run=record.info.model_copy(update={"status": result.status}),
            result=result,
            instance=instance,
            at=delivery.at,
        )

    async def _note(self, path: str, slot: str, answer: WebhookAnswer) -> None:
        delivery = self._registry.delivery(path, slot)
        if delivery is None or delivery.posting is None:
            return  # Its run was cleared meanwhile (CL-09).
        attempts = delivery.posting.attempts + 1
        if answer.delivered:
            posting = Posting(attempts=attempts, outcome="delivered")
        elif answer.is_final or attempts > len(RETRY_PAUSES):
            posting = Posting(attempts=attempts, outcome="dead", error=answer.error)
        else:
            pause = max(RETRY_PAUSES[attempts - 1], answer.retry_after or timedelta())
            posting = Posting(attempts=attempts, error=answer.error, due_at=workflow.now() + pause)
        self._registry.update_delivery(path, slot, posting=posting)
        self._wake()
        if posting.outcome == "dead":
            self._publish_dead_letter(path, delivery, posting)

    def _publish_dead_letter(self, path: str, delivery: Delivery, posting: Posting) -> None:
        event = Event(
            type="agent_tool:webhook:dead_letter",
            payload={
                "runId": path,
                "kind": delivery.slot,
                "status": delivery.result.status,
                "attempts": posting.attempts,
                "error": posting.error,
            },
        )
        source = names.run_workflow_id(self._session_id, path)
        publish(PublishInput(source=source, events=(event,), occasion=f"/webhook-{delivery.slot}"))
