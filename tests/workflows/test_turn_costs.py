"""What a turn costs in history: exact counts, so that a change that makes turns dearer is noticed."""

import pytest
from desk import Desk, eventually, kinds, size

BARE_TURN = 12
"""Events of a turn without tools."""


async def test_a_turn_without_tools_costs_eleven_events_a_marker_and_one_activity(desk: Desk) -> None:
    """Design 3, issue B: a step without tools is one activity; telling of its end takes no workflow task."""
    turn = await desk.ask("Echo", "say hello")
    counted = kinds(await desk.history(desk.turn_workflow_id("Echo", turn)))
    assert turn.status == "completed"
    assert counted["ACTIVITY_TASK_SCHEDULED"] == 1
    assert counted["WORKFLOW_TASK_COMPLETED"] == 2
    assert counted.pop("MARKER_RECORDED") == 1
    assert counted.total() == 11


async def test_a_step_with_a_function_tool_adds_at_most_twelve_events(desk: Desk) -> None:
    """Issue A: the model step and its tool call."""
    turn = await desk.ask("Clerk", 'call add {"left": 1, "right": 2}')
    events = await desk.history(desk.turn_workflow_id("Clerk", turn))
    assert kinds(events)["ACTIVITY_TASK_SCHEDULED"] == 3
    assert len(events) - BARE_TURN <= 12


async def test_an_awaited_child_adds_at_most_twelve_events_to_its_parent(desk: Desk) -> None:
    """Issue A: one child, and each further one."""
    one = await desk.ask("Assistant", 'call research {"query": "say one"}')
    lines = [f'call research {{"query": "say {number}"}}' for number in range(4)]
    four = await desk.ask("Assistant", "\n".join(lines))
    events_of_one = await desk.history(desk.turn_workflow_id("Assistant", one))
    events_of_four = await desk.history(desk.turn_workflow_id("Assistant", four))
    model_step = 6
    assert kinds(events_of_four)["CHILD_WORKFLOW_EXECUTION_COMPLETED"] == 4
    assert len(events_of_one) - BARE_TURN - model_step <= 12
    assert len(events_of_four) - BARE_TURN - model_step <= 4 * 12


async def test_a_turn_adds_at_most_sixteen_events_to_its_session(desk: Desk) -> None:
    """Issue A: the update that submits it, and its child workflow."""
    await desk.ask("Echo", "say first")
    before = len(await desk.history(desk.session_id("Echo")))
    for number in range(5):
        await desk.ask("Echo", f"say {number}")
    after = len(await desk.history(desk.session_id("Echo")))
    assert (after - before) / 5 <= 16


async def test_a_detached_run_adds_at_most_thirty_two_events_to_its_session(desk: Desk) -> None:
    """Issue C: its dispatch, its child workflow, its end's signal, the global hook and the callback, and one timer."""
    await desk.ask("Dispatching", "say hello")
    session_id, ordinary_turn = desk.session_id("Dispatching"), 16
    before = len(await desk.history(session_id))
    await desk.ask("Dispatching", 'call background {"query": "say one"}')

    async def deliveries() -> list[str]:
        info = await desk.client.runs.info(session_id, ("2-0-0",))
        return [delivery.status for delivery in info.deliveries or ()]

    await eventually(deliveries, lambda found: found == ["delivered"])
    events = await desk.history(session_id)
    assert len(events) - before - ordinary_turn <= 32


@pytest.mark.volume
async def test_a_hundred_tool_calls_of_5_kb_on_a_100_kb_transcript_stay_under_1500_kb(desk: Desk) -> None:
    """Design idea 2: history grows with what is new, never with the conversation."""
    await desk.ask("Clerk", "say " + "y" * 100_000)
    turn = await desk.ask("Clerk", 'repeat 100 call fill {"size": 5000}')
    events = await desk.history(desk.turn_workflow_id("Clerk", turn))
    assert turn.status == "completed"
    assert kinds(events)["ACTIVITY_TASK_SCHEDULED"] == 201
    assert size(events) < 1_500_000


@pytest.mark.volume
async def test_a_turn_on_500_messages_costs_the_same_bytes_as_the_second(desk: Desk) -> None:
    """Design idea 2: the conversation travels by reference, also over the session's continue-as-new."""
    await desk.ask("Echo", "say 000")
    second = await desk.ask("Echo", "say 001")
    for number in range(2, 250):
        await desk.ask("Echo", f"say {number:03}")
    assert len(await desk.messages("Echo")) == 500
    later = await desk.ask("Echo", "say 250")
    bytes_of_second = size(await desk.history(desk.turn_workflow_id("Echo", second)))
    bytes_of_later = size(await desk.history(desk.turn_workflow_id("Echo", later)))
    # Turn ids and lengths are written in more digits, and some numbers are encoded by size.
    assert abs(bytes_of_later - bytes_of_second) <= 64
