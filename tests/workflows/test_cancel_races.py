"""Cancels at every moment, and starts with input of the wrong type."""

import asyncio
import json

import pytest
from desk import Desk, eventually
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput


@pytest.mark.volume
@pytest.mark.parametrize("dispatch", ["research", "compare"])
async def test_field_20_a_cancel_at_any_moment_ends_the_turn_and_every_run(desk: Desk, dispatch: str) -> None:
    """Field case 20: 0 to 145 ms after the submission; nothing that was started goes on."""
    waiting = f"call wait {json.dumps({'name': desk.name})}"
    calls = {
        "research": f"call research {json.dumps({'query': waiting})}",
        "compare": f"call compare {json.dumps({'left': waiting, 'right': waiting})}",
    }
    for number in range(30):
        turn = await desk.submit("Assistant", calls[dispatch])
        await asyncio.sleep(number * 0.005)
        await desk.client.cancel_turn("Assistant", desk.name, turn.turn_id, "enough")
        ended = await asyncio.wait_for(desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id), 30)
        assert ended.status == "aborted"

    async def still_open() -> int:
        query = f"TurnkeeperInstance = '{desk.session_id('Assistant')}' AND ExecutionStatus = 'Running'"
        found = [it async for it in desk.temporal.list_workflows(query)]
        return len([it for it in found if it.workflow_type != names.AGENT_SESSION])

    await eventually(still_open, lambda count: count == 0)
    rows = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert {row.status for row in rows} <= {"aborted", "error"}
    assert (await desk.ask("Assistant", "say done")).status == "completed"


@pytest.mark.parametrize("workflow", [names.AGENT_TURN, names.AGENT_TOOL_RUN, names.AGENT_SESSION])
@pytest.mark.parametrize("wrong", ["text", {"instance": 5}])
async def test_field_09_a_start_with_input_of_the_wrong_type_ends_in_an_error(
    desk: Desk, workflow: str, wrong: object
) -> None:
    """Field case 9: a terminal error with its cause, not a task that is retried for ever."""
    handle = await desk.temporal.start_workflow(
        workflow, wrong, id=f"default/Wrong/{desk.name}", task_queue=names.DEFAULT_TASK_QUEUE
    )
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), 10)
    assert (await handle.describe()).status == WorkflowExecutionStatus.FAILED


async def test_a_cancelled_session_ends_with_its_turn(desk: Desk) -> None:
    """Design 8: no work outlives its cancel; a later message begins a new session."""
    turn = await desk.submit("Clerk", f"call wait {json.dumps({'name': desk.name})}")
    session = desk.temporal.get_workflow_handle(desk.session_id("Clerk"))
    await eventually(lambda: desk.client.turn("Clerk", desk.name, turn.turn_id), lambda it: it.status == "running")
    await session.cancel()
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(session.result(), 30)
    assert (await session.describe()).status == WorkflowExecutionStatus.CANCELED
    described = await desk.temporal.get_workflow_handle(desk.turn_workflow_id("Clerk", turn)).describe()
    assert described.status == WorkflowExecutionStatus.CANCELED


async def test_a_run_dispatched_for_a_session_that_is_gone_keeps_its_result(desk: Desk) -> None:
    """Field case 7: the run completes although nobody is there to be told."""
    registry, session_id = desk.client.registry, desk.session_id("Assistant")
    query = "repeat 3 call add " + json.dumps({"left": 1, "right": 1})
    request = DispatchRunInput(run_id="orphan", profile=registry.profile("Researcher"), input={"query": query})
    await desk.client.runs.dispatch(session_id, registry.profile("Assistant"), request)
    await desk.temporal.get_workflow_handle(session_id).terminate()
    run = desk.temporal.get_workflow_handle(f"{session_id}/runs/orphan")
    await asyncio.wait_for(run.result(), 30)
    assert (await run.describe()).status == WorkflowExecutionStatus.COMPLETED
