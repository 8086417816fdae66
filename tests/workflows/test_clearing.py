"""Conversations that begin anew, and registries that forget."""

import json

import pytest
from desk import Desk, eventually
from desk_agents import gate
from model_server import ModelServer

from turnkeeper import names
from turnkeeper.event_log.entries import EventLog
from turnkeeper.turns import ClearMessagesInput


async def events(log: EventLog, desk: Desk, agent_type: str) -> list[str]:
    """Return the types of the diagnostic events of an instance."""
    found = await log.read(desk.session_id(agent_type), limit=500)
    return [str(entry.body["type"]) for entry in found if entry.kind == "event"]


async def test_a_cleared_conversation_begins_anew(desk: Desk, event_log: EventLog, model_server: ModelServer) -> None:
    """The next turn knows nothing of it, and readers are told."""
    await desk.ask("Echo", "say one")
    await desk.client.clear_messages("Echo", desk.name)
    assert await desk.messages("Echo") == []
    await desk.ask("Echo", "say two")
    assert [message.text for message in await desk.messages("Echo")] == ["say two", "two"]
    assert [message["content"] for message in model_server.requests[-1].messages] == ["say two"]
    assert await events(event_log, desk, "Echo") == ["message:clear"]


async def test_clearing_aborts_the_turns_that_wait_and_the_one_that_goes_on(desk: Desk) -> None:
    """Nothing of them comes into the new conversation."""
    running = await desk.submit("Clerk", f"call wait {json.dumps({'name': desk.name})}")
    queued = await desk.submit("Clerk", "say queued")
    snapshot = await eventually(
        lambda: desk.client.snapshot("Clerk", desk.name), lambda found: found.active_turn_id == running.turn_id
    )
    await desk.client.clear_messages("Clerk", desk.name)
    after = await desk.ask("Clerk", "say after")
    ended = [await desk.client.turn("Clerk", desk.name, turn.turn_id) for turn in (running, queued)]
    assert snapshot.queued_turns == 1
    assert [(turn.status, turn.error) for turn in ended] == [("aborted", "the conversation was cleared")] * 2
    assert after.status == "completed"
    assert [message.text for message in await desk.messages("Clerk")] == ["say after", "after"]


async def test_the_same_request_clears_once(desk: Desk) -> None:
    """Design, section 3: what was said after it stays."""
    await desk.ask("Echo", "say one")
    session = desk.temporal.get_workflow_handle(desk.session_id("Echo"))
    request = ClearMessagesInput(request_id="clear")
    await session.execute_update(names.CLEAR_MESSAGES, request)
    await desk.ask("Echo", "say two")
    await session.execute_update(names.CLEAR_MESSAGES, request)
    assert [message.text for message in await desk.messages("Echo")] == ["say two", "two"]


async def test_dv_14_a_delivery_that_waits_is_cancelled_and_an_event_says_so(desk: Desk, event_log: EventLog) -> None:
    """DV-14 as decided: it is never marked delivered."""
    query = json.dumps({"run_id": "r", "query": "say stumble"})
    await desk.ask("Dispatching", f"call start {query}")

    async def statuses() -> list[str]:
        info = await desk.client.runs.info(desk.session_id("Dispatching"), ("r",))
        return [delivery.status for delivery in info.deliveries or ()]

    await eventually(statuses, lambda found: found == ["open"])
    await desk.client.clear_messages("Dispatching", desk.name)
    gate(f"mended {desk.session_id('Dispatching')}").set()
    assert await statuses() == ["cancelled"]
    assert await events(event_log, desk, "Dispatching") == [
        "agent_tool:detached:delivery_failed",
        "agent_tool:detached:delivery_cancelled",
        "message:clear",
    ]


@pytest.mark.parametrize("tool", ["errand", "background"])
async def test_cl_01_rows_are_kept_as_long_as_the_class_says(desk: Desk, tool: str) -> None:
    """CL-01 with a retention: of awaited and detached runs, once they have been told of."""
    await desk.ask("Forgetful", f"call {tool} {json.dumps({'query': 'say one'})}")
    session_id = desk.session_id("Forgetful")
    before = await desk.client.runs.registered(session_id)
    await eventually(lambda: desk.client.runs.registered(session_id), lambda rows: rows == [])
    assert [row.run_id for row in before] == ["1-0-0"]


async def test_om_13_a_formatter_that_fails_does_not_swallow_the_milestone(desk: Desk) -> None:
    """OM-13: the milestone is told plainly instead."""
    query = json.dumps({"query": f"call pause {json.dumps({'name': desk.name})}"})
    await desk.ask("Mumbling", f"call survey {query}")
    messages = await eventually(lambda: desk.messages("Mumbling"), lambda found: len(found) == 3)
    gate(desk.name).set()
    run = desk.temporal.get_workflow_handle(f"{desk.session_id('Mumbling')}/runs/1-0-0")
    await eventually(run.describe, lambda described: described.close_time is not None)
    assert messages[2].text == 'Background task "Surveyor" (run 1-0-0) reached "half-way".'
