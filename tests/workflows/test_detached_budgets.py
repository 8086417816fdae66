"""The budgets of detached runs, to the second: hours pass by time skipping on the session's clock."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from desk import Desk, eventually, kinds, read_patience
from desk_agents import gate
from desk_script import start_afresh
from foremen import noted, pause, row, start, until_noted, until_settled
from model_server import ModelServer
from restless import executions, restless_server
from temporalio.client import Client
from temporalio.testing import TimeSkipper

import worker
from activities.model_answers import ModelClient
from turnkeeper import names
from turnkeeper.client import TurnkeeperClient
from turnkeeper.detached import DEFAULT_MAX_BUDGET, DEFAULT_NO_PROGRESS_BUDGET
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import AgentToolRunInfo
from turnkeeper.settings import Settings
from workflows import run_watch

SECOND = timedelta(seconds=1)
A_MOMENT = timedelta(minutes=1)
LONELY = "lonely foremen"
SUGGESTED_AT = 100


@pytest.fixture(scope="module")
async def restless(
    foremen: AgentRegistry, models: ModelClient, event_writer: EventWriter, settings: Settings
) -> AsyncIterator[Client]:
    """A server on which sessions soon continue as new: time is skipped only for a workflow without open children."""
    async with restless_server(SUGGESTED_AT, foremen, models, event_writer, settings) as temporal:
        yield temporal


@pytest.fixture
def skipping_desk(restless: Client, foremen: AgentRegistry, settings: Settings, model_server: ModelServer) -> Desk:
    """A desk on that server."""
    start_afresh(model_server)
    return Desk(TurnkeeperClient(restless, foremen, query_patience=read_patience(settings)), restless)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly ever look runs up: each time is an activity, which takes its time while hours pass."""
    monkeypatch.setattr(run_watch, "RECONCILE_INTERVAL", timedelta(days=2))


async def test_bu_09_the_default_budget_ends_24_hours_after_the_dispatch(skipping_desk: Desk, seldom: None) -> None:
    """BU-01, BU-09 as decided, DD-07: to the second; not a minute before, however long it has been silent (BU-04)."""
    desk = skipping_desk
    await _dispatch(desk, start("long", _quiet(desk)))
    await _pass(desk, DEFAULT_MAX_BUDGET - A_MOMENT)
    assert (await row(desk, "Foreman", "long")).status == "running"
    await _pass(desk, 2 * A_MOMENT)
    (done,) = await until_noted(desk, "Foreman", "done")
    found = await row(desk, "Foreman", "long")
    assert (done["status"], done["reason"]) == ("interrupted", "budget-exceeded")
    # Temporal rounds its timers up to a second.
    assert timedelta() <= _lasted(found) - DEFAULT_MAX_BUDGET < 2 * SECOND


async def test_bu_02_the_default_silence_is_one_hour_from_the_last_report(skipping_desk: Desk, seldom: None) -> None:
    """BU-02, BU-03, BU-06: each report begins it anew."""
    desk = skipping_desk
    query = f"call report_when_told {json.dumps({'name': desk.name, 'count': 3})}"
    await _dispatch(desk, start("silent", query))
    for number in range(3):
        gate(f"{desk.name} {number}").set()
        await _until_reported(desk, "silent", number + 1)
        await _pass(desk, DEFAULT_NO_PROGRESS_BUDGET - A_MOMENT)
        assert (await row(desk, "Foreman", "silent")).status == "running"
    await _pass(desk, 2 * A_MOMENT)
    (done,) = await until_noted(desk, "Foreman", "done")
    found = await row(desk, "Foreman", "silent")
    silent = 3 * DEFAULT_NO_PROGRESS_BUDGET - 2 * A_MOMENT
    assert (done["status"], done["reason"]) == ("interrupted", "no-progress")
    assert timedelta() <= _lasted(found) - silent < A_MOMENT / 2


@pytest.mark.parametrize("silence", ["0", "inf"])
async def test_bu_05_a_window_of_0_or_infinity_is_none(skipping_desk: Desk, seldom: None, silence: str) -> None:
    """BU-05, BU-11 as decided: only the absolute budget counts."""
    desk = skipping_desk
    await _dispatch(desk, start("free", pause(desk), silence=silence))
    await _until_reported(desk, "free", 1)
    await _pass(desk, DEFAULT_MAX_BUDGET - A_MOMENT)
    assert (await row(desk, "Foreman", "free")).status == "running"
    gate(desk.name).set()
    (done,) = await until_noted(desk, "Foreman", "done")
    assert done["status"] == "completed"


async def test_bu_07_when_both_are_exceeded_the_reason_is_the_absolute_budget(
    temporal: Client,
    foremen: AgentRegistry,
    models: ModelClient,
    event_writer: EventWriter,
    settings: Settings,
    model_server: ModelServer,
) -> None:
    """BU-07: both ended while no worker was there; the silence was the first."""
    start_afresh(model_server)
    client = TurnkeeperClient(temporal, foremen, task_queue=LONELY, query_patience=read_patience(settings))
    desk, own = Desk(client, temporal), settings.model_copy(update={"task_queue": LONELY, "shutdown_grace_seconds": 0})
    async with AsyncExitStack() as stack:
        for part in worker.build_workers(temporal, foremen, models, event_writer, own):
            await stack.enter_async_context(part)
        await desk.ask("Foreman", start("both", pause(desk), seconds=6, silence=5))
        await _until_reported(desk, "both", 1)
        found = await row(desk, "Foreman", "both")
        assert found.status == "running"
    await eventually(_now, lambda now: now > found.started_at + timedelta(seconds=8))
    async with AsyncExitStack() as stack:
        for part in worker.build_workers(temporal, foremen, models, event_writer, own):
            await stack.enter_async_context(part)
        (done,) = await until_noted(desk, "Foreman", "done")
        await until_settled(desk, "Foreman", "both", ("give_up",))
    assert (done["status"], done["reason"]) == ("interrupted", "budget-exceeded")
    assert len(noted(desk, "Foreman", "done")) == 1


async def test_rc_runs_that_go_on_are_looked_up_every_five_minutes(skipping_desk: Desk) -> None:
    """Issue C: for one that ended without a word; not before, and one that goes on is left alone."""
    desk = skipping_desk
    await _dispatch(desk, start("r", _quiet(desk)))
    await _pass(desk, timedelta(minutes=4, seconds=50))
    assert await _looks(desk) == 0
    await _pass(desk, timedelta(seconds=20))
    await eventually(lambda: _looks(desk), lambda count: count == 1)
    assert (await row(desk, "Foreman", "r")).status == "running"
    await _pass(desk, timedelta(minutes=5))
    await eventually(lambda: _looks(desk), lambda count: count == 2)


async def _looks(desk: Desk) -> int:
    """Count how often the session looked its runs up."""
    events = await desk.history(desk.session_id("Foreman"))
    types = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return types.count(names.INSPECT_RUNS)


async def _dispatch(desk: Desk, message: str) -> None:
    """Start a run and go on until it is no child of its session any more."""
    await desk.ask("Foreman", message)
    while await executions(desk.temporal, desk.session_id("Foreman")) < 2:
        await desk.ask("Foreman", "say something")


def _quiet(desk: Desk) -> str:
    """Return what makes a Laborer wait without a report."""
    return f"call hold_on {json.dumps({'name': desk.name})}"


async def _pass(desk: Desk, time: timedelta) -> None:
    """Have time pass for the desk's session; its runs have clocks of their own, which go on as they do."""
    session = desk.temporal.get_workflow_handle(desk.session_id("Foreman"))
    assert await asyncio.wait_for(TimeSkipper(desk.temporal).fast_forward(session, time), 30)


async def _until_reported(desk: Desk, run_id: str, count: int) -> None:
    """Wait until so many reports have reached the session."""

    async def reports() -> int:
        events = await desk.history(f"{desk.session_id('Foreman')}/runs/{run_id}")
        return kinds(events)["EXTERNAL_WORKFLOW_EXECUTION_SIGNALED"]

    await eventually(reports, lambda found: found >= count)


def _lasted(info: AgentToolRunInfo) -> timedelta:
    assert info.completed_at is not None
    return info.completed_at - info.started_at


async def _now() -> datetime:
    return datetime.now(UTC)
