"""How reports leave a worker: live to the log, more slowly to the run, and the last one always (PR and MS rows)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from desk import eventually
from temporalio import workflow
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    WorkflowHandle,
)
from temporalio.worker import Worker

from activities.progress_reports import FIRST_SIGNAL_INTERVAL, LIVE_INTERVAL, ProgressReporter
from turnkeeper import names
from turnkeeper.event_log.entries import Entry
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.turns import Report, ReportInput
from turnkeeper.workflow_requests import WorkflowRequests

TASK_QUEUE = "progress-reports"
NEVER = timedelta(hours=1)


@workflow.defn(name="Recorder", sandboxed=False)
class Recorder:
    """Stands in for a run: remembers what it is told, in order."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._told: list[Report] = []
        self._is_over = False

    @workflow.run
    async def run(self) -> None:
        """Go on until `end`."""
        await workflow.wait_condition(lambda: self._is_over)

    @workflow.signal(name=names.REPORT)
    def report(self, told: ReportInput) -> None:
        """Remember reports."""
        self._told.extend(told.reports)

    @workflow.signal
    def end(self) -> None:
        """End."""
        self._is_over = True

    @workflow.query
    def told(self) -> list[Report]:
        """Return what was remembered."""
        return self._told


def report(message: str, **fields: Any) -> Report:
    """Return a report of this moment."""
    return Report(report_id=uuid4().hex, at=datetime.now(UTC), message=message, **fields)


class Run:
    """A run that is under way, and the reporter of the worker that works for it."""

    def __init__(self, handle: WorkflowHandle[Any, Any], log: SQLiteEventLog, reporter: ProgressReporter) -> None:
        """Report through `reporter`, which shows in `log`."""
        self.handle = handle
        self.log = log
        self.reporter = reporter

    async def report(self, message: str, *, persist: bool = False, **fields: Any) -> str:
        """Report, and return what became of it."""
        return await self.reporter.report(self.handle.id, report(message, **fields), persist=persist)

    async def settle(self) -> None:
        """Say that the work which reports is done."""
        await self.reporter.settle(self.handle.id)

    async def told(self) -> list[Report]:
        """Return the reports that reached the run."""
        told: list[Report] = await self.handle.query("told", result_type=list[Report])
        return told

    async def shown(self) -> list[Entry]:
        """Return the reports that showed live."""
        return await self.log.read(names.root_instance(self.handle.id), limit=10_000)

    async def shows(self, *messages: str) -> list[Entry]:
        """Wait until these messages, and no others, have shown live."""
        return await eventually(self.shown, lambda entries: [_message(entry) for entry in entries] == list(messages))

    async def hears(self, *messages: str) -> list[Report]:
        """Wait until these messages, and no others, have reached the run."""
        return await eventually(self.told, lambda told: [one.message for one in told] == list(messages))


def _message(entry: Entry) -> object:
    data = entry.body["data"]
    assert isinstance(data, dict)
    return data["message"]


class Overtaken(Interceptor):
    """Holds the first signal back until a second one is on its way, or for a moment if none comes meanwhile."""

    def __init__(self) -> None:
        """Wait for the first."""
        self.count = 0
        self.second_sent = asyncio.Event()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Stand in front of the client's calls."""
        return _Held(next, self)


class _Held(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, overtaken: Overtaken) -> None:
        super().__init__(next)
        self._overtaken = overtaken

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        self._overtaken.count += 1
        if self._overtaken.count == 1:
            await asyncio.wait([asyncio.create_task(self._overtaken.second_sent.wait())], timeout=1)
        await super().signal_workflow(input)
        if self._overtaken.count > 1:
            self._overtaken.second_sent.set()


@pytest.fixture(scope="module")
async def recorders(temporal: Client) -> AsyncIterator[None]:
    """A worker for the runs."""
    async with Worker(temporal, task_queue=TASK_QUEUE, workflows=[Recorder]):
        yield


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SQLiteEventLog]:
    """A log of the test's own."""
    log = SQLiteEventLog(tmp_path / "events.sqlite")
    yield log
    await log.close()


@pytest.fixture
async def writer(log: SQLiteEventLog) -> AsyncIterator[EventWriter]:
    """What writes to it."""
    writer = EventWriter(log)
    yield writer
    await writer.close()


@pytest.fixture
async def run(temporal: Client, log: SQLiteEventLog, writer: EventWriter, recorders: None) -> Run:
    """A run under way."""
    handle = await temporal.start_workflow("Recorder", id=f"t/A/{uuid4().hex}/runs/r", task_queue=TASK_QUEUE)
    return Run(handle, log, ProgressReporter(writer, WorkflowRequests(temporal, TASK_QUEUE)))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that is held back go by itself."""
    monkeypatch.setattr("activities.progress_reports.LIVE_INTERVAL", NEVER)
    monkeypatch.setattr("activities.progress_reports.FIRST_SIGNAL_INTERVAL", NEVER)
    monkeypatch.setattr("activities.progress_reports.LONGEST_SIGNAL_INTERVAL", NEVER)


@pytest.mark.usefixtures("patient")
async def test_pr_02_the_first_report_goes_at_once_and_the_next_one_waits(run: Run) -> None:
    """PR-02, PR-03 as decided: the newest takes the place of what waits, live and on its way to the run."""
    assert [await run.report(message) for message in "abc"] == ["emitted", "coalesced", "coalesced"]
    await run.shows("a")
    await run.hears("a")
    await run.settle()
    await run.shows("a", "c")
    assert [one.message for one in await run.told()] == ["a", "c"]


async def test_pr_03_a_bursts_last_report_arrives_by_itself(run: Run) -> None:
    """PR-03 as decided: a trailing flush, without any further report and before the work is done."""
    for message in "abc":
        await run.report(message)
    await run.shows("a", "c")
    await run.hears("a", "c")


async def test_pr_03_a_tight_loop_of_reports_costs_next_to_nothing(run: Run) -> None:
    """PR-03 as decided, field case 5: 20,000 reports; few show, fewer are signalled, and the last one always is."""
    began = datetime.now(UTC)
    outcomes = {await run.report(f"line {number}", fraction=number / 20_000) for number in range(20_000)}
    await run.settle()
    took = datetime.now(UTC) - began
    shown = await eventually(run.shown, lambda entries: bool(entries) and _message(entries[-1]) == "line 19999")
    told = await run.told()
    assert outcomes == {"emitted", "coalesced"}
    assert len(shown) <= took / LIVE_INTERVAL + 2
    assert told[-1].message == "line 19999"
    assert len(told) <= took / FIRST_SIGNAL_INTERVAL + 2
    assert [one.at for one in told] == sorted(one.at for one in told)


@pytest.mark.usefixtures("patient")
async def test_pr_04_the_report_that_all_is_done_shows_at_once(run: Run) -> None:
    """PR-04: with `fraction >= 1` nothing is held back, nor is what came before it shown after it."""
    outcomes = [
        await run.report(message, fraction=fraction) for message, fraction in (("a", 0.1), ("b", 0.9), ("c", 1.0))
    ]
    assert outcomes == ["emitted", "coalesced", "emitted"]
    await run.shows("a", "c")
    await run.settle()
    assert len(await run.shown()) == 2


@pytest.mark.usefixtures("patient")
async def test_pr_07_data_is_always_shown_and_kept_only_if_the_author_says_so(run: Run) -> None:
    """PR-07: the run, which remembers it, does not even get it otherwise."""
    await run.report("a", data={"n": 1})
    await run.hears("a")
    await run.report("b", data={"n": 2}, persist=True)
    await run.settle()
    told = await run.hears("a", "b")
    assert [one.data for one in told] == [None, {"n": 2}]
    assert [entry.body["data"] for entry in await run.shows("a", "b")] == [
        {"at": round(told[0].at.timestamp() * 1000), "message": "a", "data": {"n": 1}},
        {"at": round(told[1].at.timestamp() * 1000), "message": "b", "data": {"n": 2}},
    ]


@pytest.mark.usefixtures("patient")
async def test_pr_06_a_report_shows_under_its_run(run: Run) -> None:
    """PR-06: a transient chunk, once for each report."""
    await run.report("a")
    await run.settle()
    [entry] = await run.shows("a")
    assert (entry.source, entry.kind) == (run.handle.id, "progress")
    assert entry.body["type"] == "data-agent-progress"
    assert str(entry.body["id"]).startswith("r:")
    assert entry.body["transient"] is True


@pytest.mark.usefixtures("patient")
async def test_ms_02_milestones_are_never_coalesced_and_arrive_in_order(run: Run) -> None:
    """MS-01, MS-02, MS-04: however many come at once; each is recorded when its report returns."""
    await run.report("before")
    outcomes = await asyncio.gather(*(run.report(f"m{number}", milestone="mark") for number in range(50)))
    told = await run.told()
    assert set(outcomes) == {"emitted"}
    milestones = [one for one in told if one.milestone is not None]
    assert [one.message for one in milestones] == [f"m{number}" for number in range(50)]
    assert len({one.report_id for one in milestones}) == 50


@pytest.mark.usefixtures("patient")
async def test_ms_05_a_milestones_data_is_always_kept(run: Run) -> None:
    """MS-05: whether or not the author asked for it; and a milestone shows by way of the run, which numbers it."""
    await run.report("m", milestone="mark", data={"n": 1})
    [told] = await run.told()
    assert (told.milestone, told.data) == ("mark", {"n": 1})
    assert await run.shown() == []


@pytest.mark.usefixtures("patient")
async def test_ms_02_what_was_held_back_shows_before_a_milestone(run: Run) -> None:
    """MS-02: a reader sees things in the order in which they were reported."""
    for message in "ab":
        await run.report(message)
    await run.report("m", milestone="mark")
    await run.shows("a", "b")


@pytest.mark.usefixtures("patient")
async def test_ms_02_a_milestone_restarts_the_window_of_progress(run: Run) -> None:
    """MS-02: progress right after it is held back."""
    await run.report("m", milestone="mark")
    assert await run.report("a") == "coalesced"


async def test_pr_03_a_signal_that_is_slow_does_not_come_after_a_newer_one(
    run: Run, temporal: Client, writer: EventWriter
) -> None:
    """PR-03 as decided: latest wins at the run too, which keeps whatever comes last (PR-08)."""
    client = Client(
        temporal.service_client,
        namespace=temporal.namespace,
        data_converter=temporal.data_converter,
        interceptors=[Overtaken()],
    )
    run.reporter = ProgressReporter(writer, WorkflowRequests(client, TASK_QUEUE))
    await run.report("a")
    await run.report("b")
    await run.settle()
    assert [one.message for one in await run.told()] == ["a", "b"]


async def test_pr_16_reports_after_the_runs_end_are_nobodys(run: Run) -> None:
    """PR-16: a late milestone says so itself; progress does from the first signal on, and then shows nowhere."""
    await run.report("a")
    await run.settle()
    await run.handle.signal("end")
    await run.handle.result()
    assert await run.report("m", milestone="mark") == "inactive"
    shown = len(await run.shown())
    assert [await run.report("late"), await run.report("later", fraction=1.0)] == ["inactive"] * 2
    await run.settle()
    assert len(await run.shown()) == shown
    assert [one.message for one in await run.told()] == ["a"]


async def test_pr_16_progress_alone_finds_out_that_its_run_has_ended(run: Run) -> None:
    """PR-16: work that outlives its run, as a tool does that ignores its cancellation, is told soon."""
    await run.handle.signal("end")
    await run.handle.result()

    async def late() -> str:
        return await run.report("late")

    await eventually(late, lambda outcome: outcome == "inactive")


@pytest.mark.usefixtures("patient")
async def test_pr_10_runs_report_each_for_itself(run: Run, temporal: Client) -> None:
    """PR-10: a burst of one holds nothing of another back, and what one settles stays the other's."""
    handle = await temporal.start_workflow("Recorder", id=f"{run.handle.id}/runs/s", task_queue=TASK_QUEUE)
    other = Run(handle, run.log, run.reporter)
    for message in "ab":
        await run.report(message)
    assert [await other.report(message) for message in "cd"] == ["emitted", "coalesced"]
    await run.hears("a")
    await run.settle()
    await run.hears("a", "b")
    await other.hears("c")
    await run.shows("a", "c", "b")
    await other.settle()
    await other.hears("c", "d")


async def test_a_run_that_reported_nothing_is_settled_at_once(run: Run) -> None:
    """Every activity of every run ends so."""
    await run.settle()
    assert (await run.shown(), await run.told()) == ([], [])
