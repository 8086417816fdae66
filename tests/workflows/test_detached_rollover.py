"""Detached runs and what else is sent to a session, over many continue-as-new of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from desk import Desk, eventually
from desk_agents import gate
from desk_script import start_afresh
from foremen import noted, pause, row, start, until_noted, until_settled
from model_server import ModelServer
from restless import executions, restless_server
from temporalio.client import Client

from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.detached import Detached, options_of
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.errors import Unavailable
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import user_message
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from workflows import run_watch

MESSAGES = 300
ASKING = ("submit", "cancel_turn")
SUGGESTED_AT = 150
PATIENCE = timedelta(seconds=60)
"""For reads: 300 senders at once keep one machine busy."""


@pytest.fixture(scope="module")
async def restless(
    foremen: AgentRegistry, models: ModelClient, event_writer: EventWriter, settings: Settings
) -> AsyncIterator[Client]:
    """A server that suggests to continue as new early."""
    async with restless_server(SUGGESTED_AT, foremen, models, event_writer, settings) as temporal:
        yield temporal


@pytest.fixture
def restless_desk(restless: Client, foremen: AgentRegistry, model_server: ModelServer) -> Desk:
    """A desk on that server."""
    start_afresh(model_server)
    return Desk(TurnkeeperClient(restless, foremen, query_patience=PATIENCE), restless)


KINDS = ("submit", "submit", "submit", "cancel_turn", "dispatch", "cancel_run")


@pytest.mark.volume
@pytest.mark.timeout(300)
async def test_300_messages_decisions_and_reports_are_handled_once_each_and_in_order(restless_desk: Desk) -> None:
    """Issue C: 5 ms apart while the session continues as new at least five times; its history stays short."""
    desk = restless_desk
    session_id = desk.session_id("Foreman")
    tasks = []
    for number in range(MESSAGES):
        tasks.append(asyncio.create_task(_send_until_taken(desk, KINDS[number % len(KINDS)], number)))
        await asyncio.sleep(0.005)
    await asyncio.gather(*tasks)
    each = MESSAGES // len(KINDS)
    await until_noted(desk, "Foreman", "done", 2 * each, seconds=120)
    snapshot = await eventually(
        lambda: desk.client.snapshot("Foreman", desk.name), lambda found: all(turn.completed_at for turn in found.turns)
    )
    lengths = await _lengths(desk, session_id)
    texts = [message.text for message in await desk.messages("Foreman") if message.role == "user"]
    asked = [turn.submission_id for turn in snapshot.turns]
    ends = Counter((note["run"].split("-")[0], note["status"]) for note in noted(desk, "Foreman", "done"))
    assert len(lengths) > 5
    # But for one, during whose first turn most of it arrived: nothing continues as new in the middle of a turn.
    assert sorted(lengths)[-2] < 2 * SUGGESTED_AT
    assert sorted(asked) == sorted(f"{kind}-{n}" for n in range(MESSAGES) if (kind := KINDS[n % 6]) in ASKING)
    # In the order in which they were accepted, which is that of the turns' ids.
    assert texts == [f"say {turn.submission_id}" for turn in snapshot.turns if turn.started_at]
    assert {turn.status for turn in snapshot.turns if turn.submission_id.startswith("submit")} == {"completed"}
    assert ends == {("dispatch", "completed"): each, ("cancel_run", "aborted"): each}
    assert len({note["key"] for note in noted(desk, "Foreman", "done")}) == 2 * each


async def _send_until_taken(desk: Desk, kind: str, number: int) -> None:
    """Send again under the same id when nobody answered in time, as the client's errors ask for."""
    while True:
        try:
            return await _send(desk, kind, f"{kind}-{number}")
        except Unavailable:
            await asyncio.sleep(0.1)


async def _send(desk: Desk, kind: str, sent_id: str) -> None:
    session_id, registry = desk.session_id("Foreman"), desk.client.registry
    if kind in ASKING:
        message = user_message(sent_id, f"say {sent_id}")
        turn = await desk.client.submit("Foreman", desk.name, message, submission_id=sent_id)
        if kind == "cancel_turn":
            await desk.client.cancel_turn("Foreman", desk.name, turn.turn_id)
        return
    request = DispatchRunInput(
        run_id=sent_id,
        profile=registry.profile("Laborer"),
        input={"query": "say one" if kind == "dispatch" else pause(desk)},
        detached=options_of(registry.get("Foreman"), Detached(on_finish="on_done")),
    )
    await desk.client.runs.dispatch(session_id, registry.profile("Foreman"), request)
    if kind == "cancel_run":
        await desk.client.runs.cancel(session_id, (sent_id,), "enough")


async def _lengths(desk: Desk, workflow_id: str) -> list[int]:
    """Return how many events each execution of a workflow has."""
    await eventually(lambda: executions(desk.temporal, workflow_id), lambda count: count > 5)
    found = [it async for it in desk.temporal.list_workflows(f"WorkflowId = '{workflow_id}'")]
    return [it.history_length or 0 for it in found]


async def test_field_07_detached_runs_live_on_and_are_told_of_once(restless_desk: Desk) -> None:
    """Field case 7: two runs go on over several continue-as-new of their session; each is told of once."""
    desk = restless_desk
    for run_id in ("one", "two"):
        await desk.ask("Foreman", start(run_id, pause(desk)))
    await _continue_as_new(desk, 3)
    gate(desk.name).set()
    notes = await until_noted(desk, "Foreman", "done", 2)
    await _continue_as_new(desk, 4)
    assert sorted((note["run"], note["status"]) for note in notes) == [("one", "completed"), ("two", "completed")]
    assert len(noted(desk, "Foreman", "done")) == 2


async def test_a_turn_may_dispatch_more_runs_than_its_sessions_history_has_room_for(restless_desk: Desk) -> None:
    """Design 3: a dispatch by a turn is not put off until a continue-as-new that waits for the turn."""
    desk = restless_desk
    turn = await desk.submit("Foreman", 'repeat 15 call labor {"query": "say one"}')
    ended = await asyncio.wait_for(desk.client.wait_for_turn("Foreman", desk.name, turn.turn_id), 60)
    notes = await until_noted(desk, "Foreman", "done", 15)
    assert ended.status == "completed"
    assert Counter(note["run"] for note in notes) == Counter(f"1-{step}-0" for step in range(15))


async def test_rc_a_run_that_is_terminated_after_a_continue_as_new_is_told_of_within_an_interval(
    restless_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue C: the session is no longer its parent; it looks the run up, also while it goes on continuing as new."""
    desk, interval = restless_desk, timedelta(seconds=4)
    monkeypatch.setattr(run_watch, "RECONCILE_INTERVAL", interval)
    await desk.ask("Foreman", start("r", pause(desk)))
    await _continue_as_new(desk, 2)
    run = desk.temporal.get_workflow_handle(f"{desk.session_id('Foreman')}/runs/r")
    await run.terminate("by hand")
    loop = asyncio.get_running_loop()
    terminated_at = loop.time()
    while not noted(desk, "Foreman", "done"):
        await desk.ask("Foreman", "say something")
        assert loop.time() - terminated_at < 2 * interval.total_seconds()
    await until_settled(desk, "Foreman", "r")
    (note,) = noted(desk, "Foreman", "done")
    assert (note["run"], note["status"]) == ("r", "error")
    assert "terminated" in str((await row(desk, "Foreman", "r")).error)


async def _continue_as_new(desk: Desk, count: int) -> None:
    """Ask until the session has had so many executions."""
    while await executions(desk.temporal, desk.session_id("Foreman")) < count:
        await desk.ask("Foreman", "say something")
