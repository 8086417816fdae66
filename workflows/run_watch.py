"""Watches a session's runs beside its work: budgets, deliveries that are due again, and runs that ended unheard."""

from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.run_watch import RunWatchActivities
from turnkeeper import names
from turnkeeper.dispatches import Delivery, Posting, RunRecord
from turnkeeper.outcomes import failure_text
from turnkeeper.runs import InterruptedReason
from turnkeeper.steps import InspectRunsInput
from workflows import options
from workflows.run_registry import OPEN_STATUSES
from workflows.session_runs import SessionRuns
from workflows.webhooks import Webhooks

RECONCILE_INTERVAL = timedelta(minutes=5)
"""How often runs that go on are looked up, for one that ended without a word: an operator's terminate, for example."""


class RunWatcher:
    """Acts when something is due; all times are the workflow's own, so they hold over a restart of anything."""

    def __init__(self, session_id: str, runs: SessionRuns, reconcile_at: datetime | None) -> None:
        """Watch the runs of a session.

        Args:
            session_id: its workflow id.
            runs: its runs.
            reconcile_at: see the property; from before a continue-as-new.
        """
        self._session_id = session_id
        self._runs = runs
        self._webhooks = Webhooks(session_id, runs.registry, self.wake)
        self._reconcile_at = reconcile_at
        self._has_news = False
        self.is_busy = False
        """Whether something is under way that a continue-as-new would cut off."""

    @property
    def reconcile_at(self) -> datetime | None:
        """When runs that go on are looked up next; a continue-as-new does not put it off."""
        return self._reconcile_at

    def wake(self) -> None:
        """Look again: a run was added, or has changed."""
        self._has_news = True

    def note_end(self, path: str, slot: str) -> None:
        """Act on the end of a run, or on its being given up."""
        self._webhooks.post(path, slot)
        self.wake()

    async def watch(self) -> None:
        """Watch until cancelled."""
        self._webhooks.resume()
        while True:
            due = self._next_due()
            try:
                pause = None if due is None else max(due - workflow.now(), timedelta())
                await workflow.wait_condition(partial(self._is_outdated, due), timeout=pause)
                continue
            except TimeoutError:
                pass
            self.is_busy = True
            try:
                await self._act(workflow.now())
            finally:
                self.is_busy = False

    def _is_outdated(self, due: datetime | None) -> bool:
        """Tell whether news ask for another timer; one that is merely too early is kept, which costs no events."""
        if not self._has_news:
            return False
        self._has_news = False
        earliest = self._next_due()
        return earliest != due and (earliest is None or due is None or earliest < due)

    async def _act(self, now: datetime) -> None:
        for path in [record.path for record in self._runs.registry.records]:
            await self._act_on(path, now)
        if self._reconcile_at is not None and now >= self._reconcile_at:
            self._reconcile_at = None
            await self._reconcile()

    async def _act_on(self, path: str, now: datetime) -> None:
        record = self._runs.registry.record(path)
        if record is None:
            return  # Cleared while something was done about another.
        reason = _exhausted(record, now)
        if reason is not None:
            await self._runs.give_up(path, reason)
            return
        for delivery in record.watch.deliveries if record.watch else ():
            if _is_due(delivery, now):
                self._runs.retry(path, delivery)
            if delivery.posting is not None and _is_due(delivery.posting, now):
                self._webhooks.post(path, delivery.slot)
        expires_at = self._runs.expires_at(record)
        if expires_at is not None and expires_at <= now:
            self._runs.registry.forget(path)

    async def _reconcile(self) -> None:
        open_runs = [record.path for record in self._runs.registry.records if _is_open(record)]
        ids = tuple(names.run_workflow_id(self._session_id, path) for path in open_runs)
        if not ids:
            return
        try:
            found = await workflow.execute_activity_method(
                RunWatchActivities.inspect_runs, InspectRunsInput(workflow_ids=ids), **options.reconciliation()
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("runs could not be looked up, and will be later: %s", failure_text(error))
            return
        for path, result in zip(open_runs, found.results, strict=True):
            # A run that is still starting may be unknown to Temporal, which is no end (IC-01).
            info = self._runs.registry.find_info(path)
            if result is not None and info is not None and info.status != "starting":
                self._runs.end(path, result.model_copy(update={"agent_type": info.agent_type}), workflow.now())

    def _next_due(self) -> datetime | None:
        """Return when something is to be done next, or None while nothing is outstanding."""
        records = self._runs.registry.records
        times = [time for record in records for time in (*_due_times(record), self._runs.expires_at(record)) if time]
        if not any(_is_open(record) for record in records):
            self._reconcile_at = None
        else:
            self._reconcile_at = self._reconcile_at or workflow.now() + RECONCILE_INTERVAL
            times.append(self._reconcile_at)
        return min(times, default=None)


def _is_open(record: RunRecord) -> bool:
    # A run that was given up and could not be reached may still end, which has to be heard of (DV-04).
    return record.info.status in OPEN_STATUSES or bool(record.info.child_still_running)


def _due_times(record: RunRecord) -> list[datetime | None]:
    deliveries = record.watch.deliveries if record.watch else ()
    times = [telling.due_at for each in deliveries for telling in (each, each.posting) if telling is not None]
    if record.info.status in OPEN_STATUSES and record.watch is not None:
        times += [record.watch.deadline, _silence_ends(record)]
    return times


def _silence_ends(record: RunRecord) -> datetime | None:
    """Return when a run's silence exceeds its budget; one that never reported has only its deadline (BU-04)."""
    watch = record.watch
    if watch is None or watch.last_signal_at is None or watch.options.no_progress_budget is None:
        return None
    return watch.last_signal_at + watch.options.no_progress_budget


def _exhausted(record: RunRecord, now: datetime) -> InterruptedReason | None:
    """Return which budget of a run is used up, the absolute one first (BU-07)."""
    if record.info.status not in OPEN_STATUSES or record.watch is None:
        return None
    if record.watch.deadline is not None and record.watch.deadline <= now:
        return "budget-exceeded"
    silence_ends = _silence_ends(record)
    return "no-progress" if silence_ends is not None and silence_ends <= now else None


def _is_due(telling: Delivery | Posting, now: datetime) -> bool:
    return telling.due_at is not None and telling.due_at <= now
