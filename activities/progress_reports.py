"""Carries reports of progress out of a worker: to the live log, and more slowly to the run that they are about."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from turnkeeper import names
from turnkeeper.errors import NotFound, TurnkeeperError
from turnkeeper.event_log.entries import NewEntry
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.names import run_path_of
from turnkeeper.progress import MAX_MILESTONES, ReportOutcome, progress_chunk
from turnkeeper.turns import Report, ReportInput
from turnkeeper.workflow_requests import WorkflowRequests

LIVE_INTERVAL = timedelta(milliseconds=200)
"""Between two reports of a run that show live (PR-02)."""

FIRST_SIGNAL_INTERVAL = timedelta(seconds=1)
"""Between two signals of a young run; later it is `SIGNALS_AN_AGE` to the run's age."""

SIGNALS_AN_AGE = 100
"""How many signals a run of any age gets in the time that it has lasted: about one in a hundredth of its age."""

LONGEST_SIGNAL_INTERVAL = timedelta(seconds=60)
"""Between two signals of an old run, which keeps a day's reports far below Temporal's 10,000 signals."""

IDLE = timedelta(minutes=10)
"""After which a run that reports nothing is forgotten here."""

logger = logging.getLogger("turnkeeper.progress")


class ProgressReporter:
    """Sends the reports of a worker process's runs; latest wins, and the last one always arrives (PR-03 as decided)."""

    def __init__(self, writer: EventWriter, requests: WorkflowRequests) -> None:
        """Show through `writer`, signal through `requests`."""
        self._writer = writer
        self._requests = requests
        self._runs: dict[str, _Run] = {}

    async def report(
        self, run: str, report: Report, *, persist: bool, silence_budget: timedelta | None = None
    ) -> ReportOutcome:
        """Take a report of a run, a milestone or not.

        Args:
            run: the run's workflow id.
            report: what it reports.
            persist: whether the report's data reaches the run itself.
            silence_budget: how long the run may be silent; reports are passed on to it at least three times as often.

        Raises:
            Unavailable: a milestone could not be recorded.
        """
        state = self._state(run)
        state.silence_budget = silence_budget
        if state.has_ended:
            return "inactive"
        if report.milestone is not None:
            return await self._record(run, state, report)
        kept = report if persist else report.model_copy(update={"data": None})
        state.live.offer(report, at_once=report.fraction is not None and report.fraction >= 1)
        state.signalled.offer(kept)
        # A tight loop of reports must leave the event loop its turn, or nothing of them would get out.
        await asyncio.sleep(0)
        return "coalesced" if state.live.is_waiting else "emitted"

    async def settle(self, run: str) -> None:
        """Send what is still held back, because the work that reports is done."""
        state = self._runs.get(run)
        if state is not None:
            state.live.release()
            state.signalled.release()
            await asyncio.gather(*state.sending, return_exceptions=True)

    def _state(self, run: str) -> "_Run":
        now = time.monotonic()
        if run not in self._runs:
            idle_since = now - IDLE.total_seconds()
            self._runs = {known: state for known, state in self._runs.items() if state.used_at > idle_since}
            self._runs[run] = state = _Run(now)
            state.live = _LatestWins(LIVE_INTERVAL.total_seconds, lambda report: self._show(run, report))
            state.signalled = _LatestWins(
                state.signal_interval, lambda report: state.start(self._signal(run, state, report))
            )
        self._runs[run].used_at = now
        return self._runs[run]

    def _show(self, run: str, report: Report) -> None:
        self._writer.add(
            NewEntry(
                source=run,
                key=f"{run}#progress/{report.report_id}",
                kind="progress",
                body=progress_chunk(run_path_of(run) or "", report).model_dump(mode="json"),
                at=datetime.now(UTC),
            )
        )

    async def _record(self, run: str, state: "_Run", report: Report) -> ReportOutcome:
        """Signal a milestone, after those that other tools of the run reached before (MS-02)."""
        state.milestones += 1
        if state.milestones > MAX_MILESTONES:
            raise ValueError(f"a run can pass {MAX_MILESTONES:,} milestones; report progress for what comes more often")
        state.live.release()  # What came before shows before.
        state.live.restart()
        state.signalled.release()
        async with state.signalling:
            try:
                await self._requests.signal(run, names.REPORT, ReportInput(reports=(report,)))
            except NotFound:
                state.has_ended = True
        return "inactive" if state.has_ended else "emitted"

    async def _signal(self, run: str, state: "_Run", report: Report) -> None:
        try:
            async with state.signalling:
                await self._requests.signal(run, names.REPORT, ReportInput(reports=(report,)))
        except NotFound:
            state.has_ended = True  # PR-16: a report that comes late is nobody's.
        except TurnkeeperError as error:
            logger.warning("a report of %s could not be delivered; the next one will do: %s", run, error)


class _LatestWins:
    """Passes on at most one report in an interval: the first at once, then the latest at its end."""

    def __init__(self, interval: Callable[[], float], pass_on: Callable[[Report], None]) -> None:
        self._interval = interval
        self._pass_on = pass_on
        self._passed_at = float("-inf")
        self._latest: Report | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        return self._latest is not None

    def offer(self, report: Report, *, at_once: bool = False) -> None:
        self._latest = report
        delay = self._passed_at + self._interval() - time.monotonic()
        if at_once or delay <= 0:
            self.release()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self.release)

    def restart(self) -> None:
        """Begin an interval now."""
        self._passed_at = time.monotonic()

    def release(self) -> None:
        """Pass the latest report on now, if one waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._latest is not None:
            report, self._latest = self._latest, None
            self._passed_at = time.monotonic()
            self._pass_on(report)


class _Run:
    """What is on its way of one run's reports."""

    live: _LatestWins
    signalled: _LatestWins

    def __init__(self, now: float) -> None:
        self.used_at = self._began_at = now
        self.signalling = asyncio.Lock()
        """Keeps one run's signals in order."""
        self.sending: set[asyncio.Task[None]] = set()
        self.has_ended = False
        self.milestones = 0
        self.silence_budget: timedelta | None = None

    def signal_interval(self) -> float:
        """Return how many seconds lie between two signals of a run of this age."""
        age = time.monotonic() - self._began_at
        shortest, longest = FIRST_SIGNAL_INTERVAL.total_seconds(), LONGEST_SIGNAL_INTERVAL.total_seconds()
        interval = min(longest, max(shortest, age / SIGNALS_AN_AGE))
        if self.silence_budget is None:
            return interval
        return min(interval, max(LIVE_INTERVAL, self.silence_budget / 3).total_seconds())

    def start(self, signal: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(signal)
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)
