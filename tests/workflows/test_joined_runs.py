"""Calls that meet a run which somebody else dispatched: how long they wait for it."""

import json

import pytest
from desk import Desk, eventually
from desk_agents import gate

from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.messages import ToolPart


async def dispatch(desk: Desk, agent_type: str, query: str) -> None:
    """Start the run `r` of an instance from outside."""
    registry = desk.client.registry
    agent = "Lively" if "toil" in query else "Surveyor"
    request = DispatchRunInput(run_id="r", profile=registry.profile(agent), input={"query": query})
    await desk.client.runs.dispatch(desk.session_id(agent_type), registry.profile(agent_type), request)


async def join(desk: Desk, agent_type: str, query: str) -> ToolPart:
    """Ask for the run `r` in a turn, and return the call with its result."""
    await desk.ask(agent_type, f"call join {json.dumps({'run_id': 'r', 'query': query})}")
    (call,) = (await desk.last(agent_type)).tool_parts
    return call


def pause(desk: Desk) -> str:
    """Return what makes a run fall silent until the test opens the gate."""
    return f"call pause {json.dumps({'name': desk.name})}"


async def is_running(desk: Desk, agent_type: str) -> bool:
    """Tell whether the run goes on."""
    run = desk.temporal.get_workflow_handle(f"{desk.session_id(agent_type)}/runs/r")
    return (await run.describe()).close_time is None


async def test_rc_06_a_joined_run_that_falls_silent_is_given_up_and_goes_on(desk: Desk) -> None:
    """RC-06, DI-11."""
    await dispatch(desk, "Joining", pause(desk))
    call = await join(desk, "Joining", pause(desk))
    goes_on = await is_running(desk, "Joining")
    gate(desk.name).set()
    await eventually(lambda: is_running(desk, "Joining"), lambda running: not running)
    assert isinstance(call.output, dict)
    assert (call.output["status"], call.output["reason"], call.output["childStillRunning"]) == (
        "interrupted",
        "no-progress",
        True,
    )
    assert goes_on


async def test_rc_05_a_joined_run_that_shows_signs_of_life_is_followed_to_its_end(desk: Desk) -> None:
    """RC-05: for longer than its patience with silence."""
    work = 'call toil {"seconds": 4}'
    await dispatch(desk, "Joining", work)
    call = await join(desk, "Joining", work)
    assert isinstance(call.output, dict)
    assert (call.output["status"], call.output["summary"]) == ("completed", "done: done")


async def test_rc_07_a_joined_run_that_exceeds_the_window_is_cancelled(desk: Desk) -> None:
    """RC-07, RC-10: however lively it is."""
    work = 'call toil {"seconds": 60}'
    await dispatch(desk, "Hasty", work)
    call = await join(desk, "Hasty", work)
    assert isinstance(call.output, dict)
    assert (call.output["status"], call.output["reason"], call.output["childStillRunning"]) == (
        "interrupted",
        "window-exceeded",
        False,
    )
    await eventually(lambda: is_running(desk, "Hasty"), lambda running: not running)


@pytest.mark.parametrize("has_ended", [True, False])
async def test_rc_11_without_patience_only_what_has_ended_is_taken(desk: Desk, has_ended: bool) -> None:
    """RC-11, DI-09."""
    await dispatch(desk, "Collecting", pause(desk))
    if has_ended:
        gate(desk.name).set()
        await eventually(lambda: is_running(desk, "Collecting"), lambda running: not running)
    call = await join(desk, "Collecting", pause(desk))
    gate(desk.name).set()
    await eventually(lambda: is_running(desk, "Collecting"), lambda running: not running)
    assert isinstance(call.output, dict)
    assert call.output["status"] == ("completed" if has_ended else "interrupted")
