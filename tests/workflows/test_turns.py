"""Turns of one instance: order, identity, transcript, failures."""

import asyncio
import itertools

import pytest
from desk import Desk, eventually
from desk_agents import calls, gate
from model_server import ModelServer, Say, in_turn
from temporalio.api.enums.v1 import EventType

from turnkeeper.errors import Conflict, NotFound, TooLarge
from turnkeeper.messages import FilePart, ToolPart, UIMessage, user_message

SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED


def tool_part(message: UIMessage, position: int = 0) -> ToolPart:
    """Return one tool call of a message."""
    return message.tool_parts[position]


async def test_turns_submitted_at_once_run_one_after_the_other_in_order(desk: Desk) -> None:
    """Design 3: the inbox is strictly first in, first out."""
    turns = [await desk.submit("Clerk", f'call note {{"text": "{desk.name} {number}"}}') for number in range(5)]
    for turn in turns:
        await desk.client.wait_for_turn("Clerk", desk.name, turn.turn_id)
    assert [call for call in calls if desk.name in call] == [f"note {desk.name} {number}" for number in range(5)]
    infos = (await desk.client.snapshot("Clerk", desk.name)).turns
    for earlier, later in itertools.pairwise(infos):
        assert earlier.completed_at is not None
        assert later.started_at is not None
        assert earlier.completed_at <= later.started_at


async def test_a_turn_writes_one_message_with_a_part_for_each_step(desk: Desk) -> None:
    """Design 3: what a turn returns is appended to the session's transcript."""
    await desk.ask("Clerk", 'call add {"left": 1, "right": 2}')
    question, answer = await desk.messages("Clerk")
    assert question.role == "user"
    assert [part.type for part in answer.parts] == ["step-start", "tool-add", "step-start", "text"]
    assert tool_part(answer).output == 3
    assert answer.text == "done: 3"


async def test_the_model_sees_the_whole_conversation_with_each_result_after_its_call(
    desk: Desk, model_server: ModelServer
) -> None:
    """Design 8: a transcript that a strict provider accepts."""
    await desk.ask("Clerk", 'call add {"left": 1, "right": 2}\ncall add {"left": 3, "right": 4}')
    await desk.ask("Clerk", "say bye")
    roles = [message["role"] for message in model_server.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert model_server.refusals == []


async def test_the_same_submission_id_is_the_same_turn(desk: Desk) -> None:
    """Design 3: everything sent to a session carries an id, and a repeat is dropped."""
    message = user_message("m", "say once")
    first, second = await asyncio.gather(
        *(desk.client.submit("Echo", desk.name, message, submission_id="key") for _ in range(2))
    )
    await desk.client.wait_for_turn("Echo", desk.name, first.turn_id)
    third = await desk.client.submit("Echo", desk.name, message, submission_id="key")
    assert first.turn_id == second.turn_id == third.turn_id
    assert len(await desk.messages("Echo")) == 2


async def test_a_submission_id_used_for_another_message_is_a_conflict(desk: Desk) -> None:
    """Design 7: conflict 409."""
    await desk.submit("Echo", "say one", submission_id="key")
    with pytest.raises(Conflict, match="key"):
        await desk.submit("Echo", "say two", submission_id="key")


async def test_an_unknown_agent_or_turn_is_not_found(desk: Desk) -> None:
    """Design 7: 404."""
    with pytest.raises(NotFound):
        await desk.submit("Nobody", "say hello")
    await desk.ask("Echo", "say hello")
    with pytest.raises(NotFound):
        await desk.client.turn("Echo", desk.name, "99")
    with pytest.raises(NotFound):
        await desk.client.cancel_turn("Echo", desk.name, "99")


async def test_an_oversized_message_is_refused_before_it_is_sent(desk: Desk) -> None:
    """Design 7: too large 413."""
    with pytest.raises(TooLarge, match="limit"):
        await desk.submit("Echo", "x" * 300_000)


async def test_what_a_tool_raises_is_an_error_result_and_the_turn_goes_on(desk: Desk) -> None:
    """Design 3: never a Temporal retry."""
    turn = await desk.ask("Clerk", 'call fail {"text": "no such file"}')
    answer = await desk.last("Clerk")
    assert turn.status == "completed"
    assert tool_part(answer).error_text == "ValueError: no such file"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('call vanish {"x": 1}', "The tools are: add"),
        ('call add {"left": 1}', "right: Field required"),
        ("call add {broken", "are not JSON"),
        ("call add [1]", "arguments"),
    ],
)
async def test_a_wrong_call_gives_an_error_result_and_runs_nothing(
    desk: Desk, model_server: ModelServer, call: str, expected: str
) -> None:
    """Field cases 12 and 14: the model is told what was wrong, and the transcript stays valid."""
    turn = await desk.ask("Clerk", call)
    answer = await desk.last("Clerk")
    assert turn.status == "completed"
    assert expected in str(tool_part(answer).error_text)
    assert model_server.refusals == []


async def test_a_result_over_the_limit_is_an_error_that_names_the_tool_and_the_limit(desk: Desk) -> None:
    """Field case 4: never retried for ever."""
    await desk.ask("Clerk", 'call fill {"size": 3000000}')
    error = str(tool_part(await desk.last("Clerk")).error_text)
    assert "fill" in error
    assert "1,048,576" in error


async def test_a_large_result_is_kept_outside_the_history(desk: Desk) -> None:
    """Design 3: state too large for one payload travels through external storage."""
    turn = await desk.ask("Clerk", 'call fill {"size": 900000}')
    events = await desk.history(desk.turn_workflow_id("Clerk", turn))
    assert turn.status == "completed"
    assert len(str(tool_part(await desk.last("Clerk")).output)) == 900_000
    assert sum(event.ByteSize() for event in events) < 50_000


async def test_a_model_that_refuses_fails_the_turn_and_the_next_one_works(desk: Desk) -> None:
    """Design 4: 401 is final, and told clearly."""
    turn = await desk.ask("Echo", "refuse 401")
    assert turn.status == "error"
    assert "401" in str(turn.error) or "Authentication" in str(turn.error)
    assert (await desk.ask("Echo", "say better")).status == "completed"


async def test_a_turn_that_never_answers_ends_at_its_step_limit_and_keeps_what_it_wrote(desk: Desk) -> None:
    """Field case 25: neither completed nor a crash."""
    turn = await desk.ask("Assistant", 'repeat 30 call named_run {"run_id": "same", "query": "say it"}')
    answer = await desk.last("Assistant")
    assert turn.status == "error"
    assert "limit of 20 steps" in str(turn.error)
    assert len(answer.tool_parts) == 20


async def test_a_cancelled_turn_stops_its_tool_and_keeps_a_valid_transcript(
    desk: Desk, model_server: ModelServer
) -> None:
    """Design 8: no work outlives its cancel, and every call has a result."""
    turn = await desk.submit("Clerk", f'call wait {{"name": "{desk.name}"}}')
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    await desk.client.cancel_turn("Clerk", desk.name, turn.turn_id, "changed my mind")
    ended = await desk.client.wait_for_turn("Clerk", desk.name, turn.turn_id)
    await eventually(lambda: _noted(f"cancelled {desk.name}"), bool)
    assert (ended.status, ended.error) == ("aborted", "changed my mind")
    assert "changed my mind" in str(tool_part(await desk.last("Clerk")).error_text)
    assert (await desk.ask("Clerk", "say again")).status == "completed"
    assert model_server.refusals == []


async def test_a_queued_turn_that_is_cancelled_never_starts(desk: Desk) -> None:
    """Conformance 6, submissions: cancelled before it began, its message never appears."""
    first = await desk.submit("Clerk", f'call wait {{"name": "{desk.name}"}}')
    second = await desk.submit("Clerk", "say never")
    assert (await desk.client.cancel_turn("Clerk", desk.name, second.turn_id)).status == "aborted"
    gate(desk.name).set()
    await desk.client.wait_for_turn("Clerk", desk.name, first.turn_id)
    await desk.ask("Clerk", "say last")
    texts = [message.text for message in await desk.messages("Clerk")]
    assert "say never" not in texts
    assert texts[-1] == "last"


async def test_an_agents_activities_run_on_the_task_queue_that_it_names(desk: Desk) -> None:
    """Design 4: the workflows stay where they are."""
    turn = await desk.ask("Specialist", 'call add {"left": 1, "right": 2}')
    events = await desk.history(desk.turn_workflow_id("Specialist", turn))
    scheduled = [it.activity_task_scheduled_event_attributes for it in events if it.event_type == SCHEDULED]
    assert turn.status == "completed"
    assert {attributes.task_queue.name for attributes in scheduled} == {"specialists"}
    assert events[0].workflow_execution_started_event_attributes.task_queue.name == "turnkeeper"


async def test_a_chat_agent_writes_its_own_turn(desk: Desk) -> None:
    """Design 6: an async iterator of chunks."""
    await desk.ask("Author", "hear hear")
    assert (await desk.last("Author")).text == "hear! hear! "


@pytest.mark.volume
async def test_two_hundred_times_the_transcript_holds_the_answer_when_the_wait_returns(desk: Desk) -> None:
    """Issue A: read your own writes."""
    for number in range(200):
        await desk.ask("Echo", f"say {number}")
        assert (await desk.last("Echo")).text == str(number)


async def _noted(text: str) -> bool:
    return text in calls


async def test_a_picture_that_a_model_makes_is_part_of_the_conversation(desk: Desk, model_server: ModelServer) -> None:
    """Issue B, item 2: in the transcript, however large, and no hindrance to the next turn."""
    picture = f"data:image/png;base64,{'iVBORw0K' * 100_000}"
    model_server.script = in_turn(Say("", images=(picture,)), Say("a picture, as you see"))
    await desk.ask("Echo", "draw")
    await desk.ask("Echo", "what is it?")
    _, drawn, _, said = await desk.messages("Echo")
    assert [part.url for part in drawn.parts if isinstance(part, FilePart)] == [picture]
    assert said.text == "a picture, as you see"
    assert model_server.refusals == []
