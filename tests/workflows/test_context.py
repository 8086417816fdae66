"""Conversations that are too long for their model."""

import json
from typing import Any

from desk import Desk, eventually
from desk_script import desk_script
from model_server import ChatRequest, ModelServer, Refuse, Reply, Say, text_of

from activities.compaction import SUMMARY_OPENING, SUMMARY_PROMPT
from activities.model_answers import MAX_COMPACTIONS
from turnkeeper.event_log.entries import EventLog

FULL = Refuse(
    400,
    {
        "error": {
            "message": "This model's maximum context length is 1000 tokens. However, your messages resulted in 2000.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
)
FILLER = "filler " * 300


class Narrow:
    """A model that takes so many characters and no more; it summarises when asked."""

    def __init__(self, longest: int, summary: str = "they talked") -> None:
        self.longest = longest
        self.summary = summary
        self.summaries = 0

    def __call__(self, request: ChatRequest) -> Reply:
        if len(json.dumps(request.messages)) > self.longest:
            return FULL
        if SUMMARY_PROMPT in text_of(request.messages[0]):
            self.summaries += 1
            return Say(self.summary)
        return desk_script(request)


async def test_field_18_a_conversation_that_is_too_long_is_summarised_once(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 18: the turn is answered, the next one does not summarise again, people read all of it."""
    for number in range(3):
        await desk.ask("Clerk", f"say {number} {FILLER}")
    model = model_server.script = Narrow(6_000)
    first = await desk.ask("Clerk", "say after")
    second = await desk.ask("Clerk", "say later")
    assert (first.status, second.status, model.summaries) == ("completed", "completed", 1)
    shown = [text_of(message) for message in model_server.requests[-1].messages]
    assert f"{SUMMARY_OPENING}\n\nthey talked" in shown
    assert not any("filler" in text for text in shown)
    assert [message.text[:5] for message in await desk.messages("Clerk")][-4:] == ["say a", "after", "say l", "later"]
    assert len(await desk.messages("Clerk")) == 10
    assert model_server.refusals == []


async def test_field_18_a_turn_whose_own_steps_are_too_long_goes_on(desk: Desk, model_server: ModelServer) -> None:
    """Field case 18: calls stay with their results; the turn's earlier steps give way."""
    model = model_server.script = Narrow(9_000)
    turn = await desk.ask("Clerk", 'repeat 6 call fill {"size": 2000}')
    assert turn.status == "completed"
    assert model.summaries >= 1
    assert len((await desk.last("Clerk")).tool_parts) >= 4
    assert (await desk.ask("Clerk", "say more")).status == "completed"
    assert model_server.refusals == []


async def test_field_18_a_run_is_compacted_like_a_turn(desk: Desk, model_server: ModelServer) -> None:
    """Field case 18: a run has nothing before its own steps."""
    model = model_server.script = Narrow(9_000)
    query = json.dumps({"query": 'repeat 6 call fill {"size": 2000}'})
    turn = await desk.ask("Windowed", f"call delegate {query}")
    (row,) = await desk.client.runs.registered(desk.session_id("Windowed"))
    assert (turn.status, row.status) == ("completed", "completed")
    assert model.summaries >= 1
    assert model_server.refusals == []


async def test_field_18_what_cannot_be_shortened_ends_in_an_error_of_its_class(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 18: bounded, and without effect on what comes after."""
    await desk.ask("Clerk", f"say {FILLER}")
    asked = len(model_server.requests)
    model_server.script = lambda request: FULL
    turn = await desk.ask("Clerk", "say more")
    assert turn.status == "error"
    assert "maximum context length" in str(turn.error)
    assert len(model_server.requests) - asked < 10
    model_server.script = desk_script
    assert (await desk.ask("Clerk", "say again")).status == "completed"


async def test_field_18_a_summary_that_helps_nothing_is_made_a_few_times_only(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 18: tried as often as allowed."""
    await desk.ask("Clerk", f"say {FILLER}")
    summaries = 0

    def never_enough(request: ChatRequest) -> Reply:
        nonlocal summaries
        if SUMMARY_PROMPT in text_of(request.messages[0]):
            summaries += 1
            return Say("s")
        return FULL

    model_server.script = never_enough
    assert (await desk.ask("Clerk", "say more")).status == "error"
    assert 1 <= summaries <= MAX_COMPACTIONS


async def test_a_context_that_is_nearly_full_is_compacted_before_the_next_step(
    desk: Desk, model_server: ModelServer, event_log: EventLog
) -> None:
    """OE-20: by the usage of the last step; the first turn has none, and clearing the conversation forgets it."""
    model = model_server.script = Narrow(1_000_000)
    await desk.ask("Windowed", f"say one {FILLER}")
    assert model.summaries == 0
    await desk.ask("Windowed", "say two")
    assert model.summaries == 1
    await desk.client.clear_messages("Windowed", desk.name)
    await desk.ask("Windowed", "say three")
    assert model.summaries == 1
    assert SUMMARY_OPENING not in json.dumps(model_server.requests[-1].messages)


async def test_oe_20_a_compaction_is_told(desk: Desk, model_server: ModelServer, event_log: EventLog) -> None:
    """OE-20: proactive ones carry neither request nor attempt."""
    model_server.script = Narrow(1_000_000)
    await desk.ask("Windowed", f"say one {FILLER}")
    await desk.ask("Windowed", "say two")
    for _ in range(3):
        await desk.ask("Clerk", f"say {FILLER}")
    model_server.script = Narrow(6_000)
    await desk.ask("Clerk", "say after")
    assert await _events(desk, event_log, "Windowed") == [{"reason": "proactive", "shortened": True}]
    assert await _events(desk, event_log, "Clerk") == [
        {"reason": "reactive", "shortened": True, "requestId": "4", "attempt": 1}
    ]


async def _events(desk: Desk, log: EventLog, agent_type: str) -> list[Any]:
    async def found() -> list[Any]:
        entries = await log.read(desk.session_id(agent_type))
        return [e.body["payload"] for e in entries if e.kind == "event" and e.body["type"] == "chat:context:compacted"]

    return await eventually(found, bool)
