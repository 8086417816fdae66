"""How often callbacks are called, by a count that is kept outside the worker."""

import asyncio
import json
from collections import Counter

import pytest
from desk import Desk, eventually
from desk_agents import gate
from foremen import noted, pause, start, until_noted

RUNS = 50


async def test_dv_01_fifty_detached_runs_give_fifty_callbacks(foreman_desk: Desk) -> None:
    """Issue C, DV-01, DV-02: each is told once, under a key of its own."""
    desk = foreman_desk
    await desk.ask("Foreman", f"call start_many {json.dumps({'count': RUNS, 'query': 'say one'})}")
    notes = await until_noted(desk, "Foreman", "done", RUNS, seconds=120)
    rows = await eventually(
        lambda: desk.client.runs.registered(desk.session_id("Foreman")),
        lambda found: all(row.deliveries and row.deliveries[0].status == "delivered" for row in found),
    )
    session_id = desk.session_id("Foreman")
    assert Counter(note["run"] for note in notes) == Counter(f"r{number}" for number in range(RUNS))
    assert Counter(note["key"] for note in noted(desk, "Foreman", "done")) == Counter(
        f"{session_id}/on_done/r{number}/finish/completed" for number in range(RUNS)
    )
    assert [row.status for row in rows] == ["completed"] * RUNS


async def test_dv_06_the_key_of_a_callback_is_the_same_at_every_attempt(foreman_desk: Desk) -> None:
    """DV-26, field case 1: run and terminal status, at each of the activity's attempts and of the session's."""
    desk = foreman_desk
    await desk.ask("Attentive", start("r", "say stumble"))
    await until_noted(desk, "Attentive", "done")
    (key,) = {note["key"] for note in noted(desk, "Attentive", "global")}
    assert len(noted(desk, "Attentive", "global")) == 4
    assert key.endswith("/runs/r/completed")


@pytest.mark.volume
async def test_field_06_a_run_that_is_dispatched_last_of_all_in_a_turn_starts(foreman_desk: Desk) -> None:
    """Field case 6, DD-01: 50 times, the turn ends right after the handle; 50 runs exist and are told of."""
    desk = foreman_desk
    for number in range(RUNS):
        turn = await desk.submit("Foreman", 'call labor {"query": "say one"}')
        if number % 10 == 9:
            await desk.client.wait_for_turn("Foreman", desk.name, turn.turn_id)
    notes = await until_noted(desk, "Foreman", "done", RUNS, seconds=150)
    assert Counter(note["run"] for note in notes) == Counter(f"{number + 1}-0-0" for number in range(RUNS))
    assert {note["status"] for note in notes} == {"completed"}


@pytest.mark.volume
async def test_field_06_a_turn_that_is_cancelled_as_it_dispatches_loses_no_run(foreman_desk: Desk) -> None:
    """Field case 6: cancelled 0 to 100 ms after it was submitted, 50 times; each run is told of or not there."""
    desk = foreman_desk
    session_id = desk.session_id("Foreman")
    for number in range(RUNS):
        turn = await desk.submit("Foreman", start(f"r{number}", "say one"))
        await asyncio.sleep(number * 0.002)
        await desk.client.cancel_turn("Foreman", desk.name, turn.turn_id)
    await desk.ask("Foreman", "say done")
    rows = await eventually(
        lambda: desk.client.runs.registered(session_id),
        lambda found: all(row.deliveries and row.deliveries[0].status == "delivered" for row in found),
    )
    begun = [it.id async for it in desk.temporal.list_workflows(f"TurnkeeperInstance = '{session_id}'")]
    notes = noted(desk, "Foreman", "done")
    assert {f"{session_id}/runs/{row.run_id}" for row in rows} == {one for one in begun if "/runs/" in one}
    assert Counter(note["run"] for note in notes) == Counter(row.run_id for row in rows)
    assert {row.status for row in rows} <= {"completed"}


async def test_field_01_runs_that_end_during_a_busy_turn_are_told_after_it(foreman_desk: Desk) -> None:
    """Field case 1, DV-13: three end at once while the turn goes on; each is told once, when it has ended."""
    desk = foreman_desk
    for number in range(3):
        await desk.ask("Foreman", start(f"r{number}", pause(desk)))
    held = f"busy {desk.name}"
    turn = await desk.submit("Foreman", f"call hold {json.dumps({'name': held})}")
    gate(desk.name).set()
    session_id = desk.session_id("Foreman")
    await eventually(
        lambda: desk.client.runs.registered(session_id), lambda rows: [row.status for row in rows] == ["completed"] * 3
    )
    assert noted(desk, "Foreman", "done") == []
    gate(held).set()
    await desk.client.wait_for_turn("Foreman", desk.name, turn.turn_id)
    notes = await until_noted(desk, "Foreman", "done", 3)
    assert sorted(note["run"] for note in notes) == ["r0", "r1", "r2"]
