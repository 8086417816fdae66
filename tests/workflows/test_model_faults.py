"""Models that fail, stall or make no sense: what a turn makes of them, and what is told of it."""

import asyncio
from typing import Any

from desk import Desk, eventually
from desk_script import desk_script
from model_server import Call, ChatRequest, Cut, ModelServer, Refuse, Reply, Say, ToolCall, Trickle, in_turn

from turnkeeper.event_log.entries import EventLog
from turnkeeper.steps import StepResult
from workflows.loop import MAX_REFUSED_STEPS


async def test_fallback_models_are_tried_in_order_within_one_attempt(desk: Desk, model_server: ModelServer) -> None:
    """Issue D 2: 401 of the first and a cut stream of the second; the model that answered is recorded."""

    def script(request: ChatRequest) -> Reply:
        replies: dict[str, Reply] = {"second": Cut("half an ans"), "third": Say("at last")}
        return replies.get(request.model, Refuse(401))

    model_server.script = script
    turn = await desk.ask("Backed", "hello")
    assert turn.status == "completed"
    assert (await desk.last("Backed")).text == "at last"
    assert [request.model for request in model_server.requests] == ["test", "second", "third"]
    events = await desk.history(desk.turn_workflow_id("Backed", turn))
    (step,) = [it.activity_task_completed_event_attributes for it in events if it.event_type == 12]
    converted = await desk.temporal.data_converter.decode(step.result.payloads, [StepResult])
    assert converted[0].model == "third"


async def test_what_a_failed_model_had_shown_is_superseded(
    desk: Desk, model_server: ModelServer, event_log: EventLog
) -> None:
    """Field case 19: each model's try is an attempt of its own for whoever watches."""
    model_server.script = lambda request: Cut("half an ans") if request.model == "test" else Say("whole")
    await desk.ask("Backed", "hello")
    entries = [entry for entry in await _entries(desk, event_log, "Backed") if entry.kind == "chunk"]
    shown = {entry.attempt: str(entry.body["delta"]) for entry in entries if entry.body["type"] == "text-delta"}
    assert shown == {1: "half an ans", 2: "whole"}


async def test_when_every_model_is_final_the_turn_ends_after_one_request_each(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 17: 401 is one request a model, and the error names all of them."""
    model_server.script = lambda request: Refuse(401)
    turn = await desk.ask("Backed", "hello")
    assert turn.status == "error"
    assert [request.model for request in model_server.requests] == ["test", "second", "third"]
    assert all(f"openai/{name}" in str(turn.error) for name in ("test", "second", "third"))


async def test_a_stream_that_stands_still_is_a_failed_attempt(
    desk: Desk, model_server: ModelServer, event_log: EventLog
) -> None:
    """OE-19: off unless the agent asks for it; the connection is closed, and the step tried again."""
    never = asyncio.Event()
    model_server.script = in_turn(Trickle("the first words", never), Say("a whole answer"))
    turn = await desk.ask("Impatient", "hello")
    assert (turn.status, (await desk.last("Impatient")).text) == ("completed", "a whole answer")
    stalled = await _events(desk, event_log, "Impatient", "chat:stream:stalled")
    assert stalled == [{"requestId": "1", "timeoutMs": 300}]
    await model_server.until(lambda: model_server.requests[0].closed_by_client is True)


async def test_field_13_announced_calls_that_are_not_there_are_asked_for_again(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 13: malformed, and no final answer."""
    model_server.script = in_turn(Say("I will look.", finish_reason="tool_calls"), Say("done"))
    turn = await desk.ask("Clerk", "hello")
    assert (turn.status, (await desk.last("Clerk")).text) == ("completed", "done")


async def test_field_12_a_call_that_is_refused_again_and_again_ends_the_turn(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 12: the model is told what is wrong, so often and no more."""
    model_server.script = lambda request: Call(ToolCall("add", {"left": "x"}))
    turn = await desk.ask("Clerk", "hello")
    assert turn.status == "error"
    assert f"{MAX_REFUSED_STEPS} steps in a row" in str(turn.error)
    assert len(model_server.requests) == MAX_REFUSED_STEPS
    model_server.script = desk_script
    assert (await desk.ask("Clerk", "say more")).status == "completed"
    assert model_server.refusals == []


async def test_field_12_a_call_that_works_in_between_begins_the_count_anew(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 12: only a row without any progress counts."""
    wrong, right = Call(ToolCall("add", {"left": "x"})), Call(ToolCall("add", {"left": 1, "right": 2}))
    row = [wrong] * (MAX_REFUSED_STEPS - 1)
    model_server.script = in_turn(*row, right, *row, Say("done"))
    assert (await desk.ask("Clerk", "hello")).status == "completed"


async def test_oe_14_a_later_attempt_is_told_as_a_recovery(
    desk: Desk, model_server: ModelServer, event_log: EventLog
) -> None:
    """OE-14, OE-15, OE-17: detected once, each attempt, completed."""
    model_server.script = in_turn(Cut("half"), Cut("half"), Say("whole"))
    turn = await desk.ask("Echo", "hello")
    told = [
        (entry.body["type"], entry.body["payload"]["attempt"])
        for entry in await _entries(desk, event_log, "Echo")
        if entry.kind == "event"
    ]
    assert turn.status == "completed"
    assert told == [
        ("chat:recovery:detected", 2),
        ("chat:recovery:attempt", 2),
        ("chat:recovery:attempt", 3),
        ("chat:recovery:completed", 3),
    ]
    (first, *_) = await _events(desk, event_log, "Echo", "chat:recovery:detected")
    assert {key: first[key] for key in ("requestId", "maxAttempts", "recoveryKind")} == {
        "requestId": "1",
        "maxAttempts": 6,
        "recoveryKind": "retry",
    }


async def test_oe_12_a_turn_without_an_answer_is_told(
    desk: Desk, model_server: ModelServer, event_log: EventLog
) -> None:
    """OE-12: with what was wrong; a refusal used up no attempts, so nothing is exhausted (OE-18)."""
    await desk.ask("Clerk", "refuse 401")
    (failed,) = await _events(desk, event_log, "Clerk", "chat:request:failed")
    assert {key: failed[key] for key in ("requestId", "stage", "messagesPersisted")} == {
        "requestId": "1",
        "stage": "turn",
        "messagesPersisted": False,
    }
    assert "openai/test" in failed["error"]
    kinds = {entry.body["type"] for entry in await _entries(desk, event_log, "Clerk") if entry.kind == "event"}
    assert kinds == {"chat:request:failed"}


async def test_oe_18_a_step_that_used_up_its_attempts_is_told(
    desk: Desk, model_server: ModelServer, event_log: EventLog
) -> None:
    """OE-18: the provider asks for no wait, so that the attempts follow each other quickly."""
    model_server.script = lambda request: Refuse(503, headers={"retry-after": "0.01"})
    turn = await desk.ask("Echo", "hello")
    (exhausted,) = await _events(desk, event_log, "Echo", "chat:recovery:exhausted")
    assert turn.status == "error"
    assert exhausted == {"requestId": "1", "reason": "max_attempts_exceeded"}
    assert len(model_server.requests) == 6


async def _entries(desk: Desk, log: EventLog, agent_type: str) -> list[Any]:
    return list(await log.read(desk.session_id(agent_type), limit=10_000))


async def _events(desk: Desk, log: EventLog, agent_type: str, event_type: str) -> list[Any]:
    async def found() -> list[Any]:
        entries = await _entries(desk, log, agent_type)
        return [entry.body["payload"] for entry in entries if entry.body.get("type") == event_type]

    return await eventually(found, bool)
