"""What becomes of a session, its turns and its registry when somebody stops them from outside."""

import asyncio
import json

import pytest
from desk import Desk, eventually
from desk_agents import calls, gate
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput, DispatchRunResult


def waiting(desk: Desk) -> str:
    """Return a call of the tool that waits for the desk's gate."""
    return f"call wait {json.dumps({'name': desk.name})}"


@pytest.mark.parametrize("stop", ["cancel", "terminate"])
async def test_a_name_can_be_used_again_after_its_session_was_stopped(desk: Desk, stop: str) -> None:
    """Turn ids go on where the stopped session was, so that its turns and runs are not met again."""
    for _ in range(2):
        await desk.ask("Assistant", 'call research {"query": "say one"}')
    session = desk.temporal.get_workflow_handle(desk.session_id("Assistant"))
    await getattr(session, stop)()
    with pytest.raises(WorkflowFailureError):
        await session.result()
    turn = await asyncio.wait_for(desk.ask("Assistant", 'call research {"query": "say anew"}'), 30)
    assert (turn.turn_id, turn.status) == ("3", "completed")
    assert [part.output for part in (await desk.last("Assistant")).tool_parts] == ["anew"]


async def test_a_terminated_turn_leaves_no_row_open_and_no_slot_taken(desk: Desk) -> None:
    """Design 8: a run is never shown as running that is not; CC-05."""
    for waits in (1, 2):
        turn = await desk.submit("Capped", f"call research {json.dumps({'query': waiting(desk)})}")
        await eventually(lambda: _count(f"wait {desk.name}"), waits.__eq__)
        await desk.temporal.get_workflow_handle(desk.turn_workflow_id("Capped", turn)).terminate()
        assert (await desk.client.wait_for_turn("Capped", desk.name, turn.turn_id)).status == "error"
    rows = await desk.client.runs.registered(desk.session_id("Capped"))
    await desk.ask("Capped", 'call research {"query": "say free"}')
    assert [(row.status, row.error) for row in rows] == [("aborted", "what awaited it has ended")] * 2
    assert [part.output for part in (await desk.last("Capped")).tool_parts] == ["free"]


async def test_a_dispatch_that_comes_when_the_turn_ends_starts_nothing(desk: Desk) -> None:
    """A finish hook keeps the turn open; what a stray tool dispatches meanwhile is refused, and leaves no row."""
    query = "say slow finish"
    turn = await desk.submit("Lingering", f"call research {json.dumps({'query': query})}\n{waiting(desk)}")
    workflow_id = desk.turn_workflow_id("Lingering", turn)
    await eventually(lambda: _count(f"wait {desk.name}"), lambda count: count == 1)
    await eventually(lambda: _count(f"lingering {desk.session_id('Lingering')}"), lambda count: count == 1)
    await desk.client.cancel_turn("Lingering", desk.name, turn.turn_id, "enough")
    await eventually(lambda: _count(f"cancelled {desk.name}"), lambda count: count == 1)
    profile = desk.client.registry.profile("Researcher")
    late = DispatchRunInput(run_id="late", profile=profile, input={"query": "say late"})
    answer = await desk.client.requests.update(workflow_id, names.DISPATCH_RUN, late, DispatchRunResult)
    gate(f"linger {desk.session_id('Lingering')}").set()
    ended = await desk.client.wait_for_turn("Lingering", desk.name, turn.turn_id)
    rows = await desk.client.runs.registered(desk.session_id("Lingering"))
    assert ended.status == "aborted"
    assert answer.result is not None
    assert "is ending" in str(answer.result.error)
    assert [row.run_id for row in rows] == ["1-0-0"]
    # The hook of the run that had completed before the cancel was not cut off (AW-06).
    assert await _count(f"lingered {desk.session_id('Lingering')}") == 1
    assert rows[0].status == "completed"


async def test_a_session_that_is_cancelled_while_it_delivers_ends(desk: Desk) -> None:
    """Temporal records a cancel once, so whatever runs at that moment must not keep it to itself."""
    registry, session_id = desk.client.registry, desk.session_id("Lingering")
    request = DispatchRunInput(run_id="r", profile=registry.profile("Researcher"), input={"query": "say it"})
    await desk.client.runs.dispatch(session_id, registry.profile("Lingering"), request)
    await eventually(lambda: _count(f"lingering {session_id}"), lambda count: count == 1)
    session = desk.temporal.get_workflow_handle(session_id)
    await session.cancel()
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(session.result(), 30)
    gate(f"linger {session_id}").set()
    assert (await session.describe()).status == WorkflowExecutionStatus.CANCELED


async def test_waiting_for_a_queued_turn_ends_with_its_session(desk: Desk) -> None:
    """A turn that will never be taken is aborted, not queued for ever."""
    await desk.submit("Clerk", waiting(desk))
    queued = await desk.submit("Clerk", "say never")
    await eventually(lambda: _count(f"wait {desk.name}"), lambda count: count == 1)
    waiter = asyncio.create_task(desk.client.wait_for_turn("Clerk", desk.name, queued.turn_id))
    await desk.temporal.get_workflow_handle(desk.session_id("Clerk")).terminate()
    ended = await asyncio.wait_for(waiter, 30)
    assert (ended.status, ended.error) == ("aborted", "its session has ended")


async def _count(text: str) -> int:
    return calls.count(text)
