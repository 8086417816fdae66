"""Hooks of an agent that hears of its runs: how often they are called, and what they may do."""

import json

from desk import Desk, eventually
from desk_agents import calls

from turnkeeper.dispatches import DispatchRunInput


def named_run(run_id: str, query: str) -> str:
    """Return a message that makes the model call the tool that takes a run id."""
    return f"call named_run {json.dumps({'run_id': run_id, 'query': query})}"


async def test_di_05_a_run_id_that_is_issued_again_later_calls_no_hook(desk: Desk) -> None:
    """DI-05, DI-17: once for the run, although two turns asked for it."""
    for _ in range(2):
        await desk.ask("Hooked", named_run("again", "say once"))
    instance = desk.session_id("Hooked")
    assert [call for call in calls if instance in call] == [
        f"start {instance} again starting",
        f"finish {instance} again completed completed",
    ]


async def test_each_call_of_a_hook_dispatches_runs_of_its_own(desk: Desk) -> None:
    """DI-01: generated ids of two calls never meet; here each finished Clerk has a Researcher follow it up."""
    lines = [f'call clerk {{"query": "say {number}"}}' for number in range(2)]
    turn = await desk.ask("Following", "\n".join(lines))
    rows = await desk.client.runs.registered(desk.session_id("Following"))
    followed = sorted(row.summary or "" for row in rows if row.agent_type == "Researcher")
    assert turn.status == "completed"
    assert followed == ["after 0", "after 1"]


async def test_each_delivery_at_a_session_dispatches_runs_of_its_own(desk: Desk) -> None:
    """The same for runs that were dispatched from outside."""
    registry, session_id = desk.client.registry, desk.session_id("Following")
    for number in range(2):
        request = DispatchRunInput(
            run_id=f"r{number}", profile=registry.profile("Clerk"), input={"query": f"say {number}"}
        )
        await desk.client.runs.dispatch(session_id, registry.profile("Following"), request)

    async def followed() -> list[str]:
        rows = await desk.client.runs.registered(session_id)
        return sorted(row.summary or "" for row in rows if row.agent_type == "Researcher")

    assert await eventually(followed, lambda found: found == ["after 0", "after 1"]) == ["after 0", "after 1"]


async def test_a_formatter_that_returns_no_message_fails_its_run_cleanly(desk: Desk) -> None:
    """Field case 9: a terminal state with its cause, told to whoever asks."""
    await desk.ask("Assistant", 'call misformed {"query": "x"}')
    (failure,) = [part.output for part in (await desk.last("Assistant")).tool_parts]
    inspection = await desk.client.runs.inspect(desk.session_id("Assistant"), ("1-0-0",))
    assert isinstance(failure, dict)
    assert failure["error"] == "Misformed.format_agent_tool_input returned no message."
    assert inspection is not None
    assert inspection.status == "error"


async def test_field_08_a_fan_out_that_is_tried_again_in_another_order_meets_its_runs(desk: Desk) -> None:
    """An idempotent tool whose first attempt times out dispatches the other way round the second time."""
    turn = await desk.ask("Assistant", "call shuffled {}")
    (part,) = (await desk.last("Assistant")).tool_parts
    rows = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert turn.status == "completed"
    assert part.output == ["left", "right"]
    assert len(rows) == 2
