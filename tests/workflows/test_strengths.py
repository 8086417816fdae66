"""The strengths of stopping a turn or run: a message into it, wrapping it up, a cancel with time to tidy up."""

import asyncio
import json
from datetime import timedelta

import pytest
from desk import Desk, eventually
from desk_agents import calls, gate
from desk_script import desk_script
from model_server import Call, ChatRequest, Hold, ModelServer, Reply, ToolCall
from temporalio.client import WorkflowFailureError

from activities import tool_calls
from turnkeeper import guidance, names
from turnkeeper.detached import options_of
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.errors import Conflict, InvalidRequest
from turnkeeper.messages import STEERING, DataPart, UIMessage
from turnkeeper.turns import TurnInfo
from workflows import loop
from workflows.guidance import WRAP_UP_TEXT


async def test_steer_puts_a_message_before_the_next_step(desk: Desk, model_server: ModelServer) -> None:
    """Issue D, strength 1: after the results of the step that goes on; twice under one id is once."""
    turn = await _waiting(desk, "Clerk")
    for _ in range(2):
        await desk.client.steer_turn("Clerk", desk.name, turn.turn_id, "say it in French", "m-1")
    gate(desk.name).set()
    ended = await desk.client.wait_for_turn("Clerk", desk.name, turn.turn_id)
    assert ended.status == "completed"
    roles = [message["role"] for message in model_server.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert model_server.requests[-1].last_text == "say it in French"
    message = await desk.last("Clerk")
    assert message.text == "it in French"
    assert _said(message) == [("m-1", "say it in French")]
    assert model_server.refusals == []
    await desk.ask("Clerk", "say more")
    roles = [message["role"] for message in model_server.requests[-1].messages][1:]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "user"]


async def test_steer_in_the_last_moment_gets_a_step_of_its_own(desk: Desk, model_server: ModelServer) -> None:
    """Issue D, strength 1: what was accepted is answered, although the model had no further call to make."""
    go_on = asyncio.Event()
    model_server.script = lambda request: (
        Hold(go_on, desk_script(request)) if len(model_server.requests) == 1 else desk_script(request)
    )
    turn = await desk.submit("Echo", "say one")
    await model_server.until(lambda: model_server.open_requests == 1)
    await desk.client.steer_turn("Echo", desk.name, turn.turn_id, "say two")
    go_on.set()
    await desk.client.wait_for_turn("Echo", desk.name, turn.turn_id)
    assert (await desk.last("Echo")).text == "one\ntwo"
    assert model_server.refusals == []


async def test_steer_of_what_does_not_go_on_is_a_conflict(desk: Desk) -> None:
    """Issue D: nothing is accepted and then lost (field case 9)."""
    turn = await _waiting(desk, "Clerk")
    queued = await desk.submit("Clerk", "say later")
    with pytest.raises(Conflict):
        await desk.client.steer_turn("Clerk", desk.name, queued.turn_id, "say now")
    with pytest.raises(InvalidRequest):
        await desk.client.steer_turn("Clerk", desk.name, turn.turn_id, " ")
    gate(desk.name).set()
    await desk.client.wait_for_turn("Clerk", desk.name, turn.turn_id)
    for strength in (
        desk.client.steer_turn("Clerk", desk.name, turn.turn_id, "say now"),
        desk.client.wrap_up_turn("Clerk", desk.name, turn.turn_id),
    ):
        with pytest.raises(Conflict):
            await strength


async def test_wrap_up_gives_one_last_answer_without_tools(
    desk: Desk, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue D, strength 2: a tool that does not end in time is stopped, and calls that the model makes are not run."""
    monkeypatch.setattr(loop, "WRAP_UP_GRACE", timedelta(milliseconds=200))
    turn = await _waiting(desk, "Clerk")
    model_server.script = _disobedient
    await desk.client.wrap_up_turn("Clerk", desk.name, turn.turn_id, "dinner")
    ended = await asyncio.wait_for(desk.client.wait_for_turn("Clerk", desk.name, turn.turn_id), 20)
    assert ended.status == "completed"
    last = model_server.requests[-1]
    assert last.body["tool_choice"] == "none"
    assert last.last_text == f"{WRAP_UP_TEXT} The reason: dinner."
    message = await desk.last("Clerk")
    assert message.text == "so far"
    assert [part.error_text for part in message.tool_parts] == [
        f"The call was stopped: {loop.WRAPPING_UP}",
        loop.WRAPPING_UP,
    ]
    assert "note too late" not in calls
    await eventually(lambda: _noted(f"cancelled {desk.name}"), bool)
    model_server.script = desk_script
    assert (await desk.ask("Clerk", "say more")).status == "completed"
    assert model_server.refusals == []


async def test_wrap_up_of_a_turn_wraps_its_runs_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue D, strength 2: an awaited run gives its own last answer, which the turn still uses."""
    monkeypatch.setattr(loop, "WRAP_UP_GRACE", timedelta(milliseconds=200))
    query = f"call wait {json.dumps({'name': desk.name})}"
    turn = await desk.submit("Assistant", f"call research {json.dumps({'query': query})}")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    await desk.client.wrap_up_turn("Assistant", desk.name, turn.turn_id)
    ended = await asyncio.wait_for(desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id), 30)
    (row,) = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert (ended.status, row.status) == ("completed", "completed")
    assert WRAP_UP_TEXT in str(row.summary)
    (call,) = (await desk.last("Assistant")).tool_parts
    assert call.output == row.summary


async def test_a_run_is_steered_and_wrapped_up_by_its_path(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue D: both strengths reach a run as they reach a turn."""
    monkeypatch.setattr(loop, "WRAP_UP_GRACE", timedelta(milliseconds=200))
    query = f"call wait {json.dumps({'name': desk.name})}"
    turn = await desk.submit("Assistant", f"call research {json.dumps({'query': query})}")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    run = names.run_workflow_id(desk.session_id("Assistant"), "1-0-0")
    await guidance.steer(desk.client.requests, run, "say it briefly", "m-1")
    await guidance.wrap_up(desk.client.requests, run, None)
    ended = await asyncio.wait_for(desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id), 30)
    messages = await desk.client.runs.messages(desk.session_id("Assistant"), ("1-0-0",))
    assert ended.status == "completed"
    assert [said for _, said in _said(messages[-1])] == ["say it briefly", WRAP_UP_TEXT]


async def test_a_tool_that_is_cancelled_may_tidy_up(desk: Desk) -> None:
    """Issue D, strength 3: it sees `CancelledError`, and what it then does is not cut off."""
    turn = await desk.submit("Tidy", f"call linger {json.dumps({'name': desk.name})}")
    await eventually(lambda: _noted(f"lingers {desk.name}"), bool)
    await desk.client.cancel_turn("Tidy", desk.name, turn.turn_id, "enough")
    await eventually(lambda: _noted(f"tidies {desk.name}"), bool)
    gate(f"tidy {desk.name}").set()
    await eventually(lambda: _noted(f"tidied {desk.name}"), bool)


async def test_a_tool_that_does_not_stop_is_left_behind(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue D, strength 3: after its grace its activity ends, and the log of the worker names it."""
    monkeypatch.setattr(tool_calls, "TOOL_GRACE", timedelta(milliseconds=50))
    turn = await desk.submit("Tidy", f"call linger {json.dumps({'name': desk.name})}")
    await eventually(lambda: _noted(f"lingers {desk.name}"), bool)
    await desk.client.cancel_turn("Tidy", desk.name, turn.turn_id, "enough")

    async def complaints() -> list[str]:
        return [text for text in caplog.messages if "linger goes on although it was cancelled" in text]

    assert len(await eventually(complaints, bool)) == 1
    gate(f"tidy {desk.name}").set()
    await eventually(lambda: _noted(f"tidied {desk.name}"), bool)


async def test_the_end_of_an_instance_ends_its_turn_for_its_reason_and_lets_detached_runs_go_on(desk: Desk) -> None:
    """Issue D, part 1: cancel of a session; CX-02 for the reason; field case 7 for the runs."""
    registry, session_id = desk.client.registry, desk.session_id("Clerk")
    request = DispatchRunInput(
        run_id="on",
        profile=registry.profile("Clerk"),
        input=f"call wait {json.dumps({'name': f'run of {desk.name}'})}",
        detached=options_of(registry.get("Clerk"), True),
    )
    await desk.client.runs.dispatch(session_id, registry.profile("Clerk"), request)
    turn = await _waiting(desk, "Clerk")
    await desk.client.destroy("Clerk", desk.name, "the account was closed")
    with pytest.raises(WorkflowFailureError):
        await desk.temporal.get_workflow_handle(desk.turn_workflow_id("Clerk", turn)).result()
    answer = await desk.client.answer("Clerk", desk.name, turn.turn_id)
    assert answer is not None
    assert [part.error_text for part in answer.tool_parts] == ["The call was stopped: the account was closed."]
    assert (await desk.client.standing("Clerk", desk.name, turn.turn_id)).status == "aborted"
    gate(f"run of {desk.name}").set()
    result = await desk.client.runs.wait(session_id, ("on",))
    assert result.status == "completed"


def _disobedient(request: ChatRequest) -> Reply:
    """Call a tool although none may be called."""
    return Call(ToolCall("note", {"text": "too late"}), text="so far")


async def _waiting(desk: Desk, agent_type: str) -> TurnInfo:
    """Have a turn wait in a tool until the desk's gate is opened."""
    turn = await desk.submit(agent_type, f"call wait {json.dumps({'name': desk.name})}")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    return turn


def _said(message: UIMessage) -> list[tuple[str | None, str]]:
    steering = [part for part in message.parts if isinstance(part, DataPart) and part.type == STEERING]
    return [(part.id, part.data["text"]) for part in steering if isinstance(part.data, dict)]  # type: ignore[misc]


async def _noted(text: str) -> bool:
    return text in calls
