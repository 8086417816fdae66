"""`WorkflowChatTransport` of `@ai-sdk/workflow`, the AI SDK's transport for durable servers, against the API."""

import asyncio

import pytest
from clients.chats import RESUME, Chat, gist, send
from clients.cutting_proxy import CuttingProxy
from clients.npm_clients import Json
from clients.waiting_turns import is_whole_once, until_connected, waiting_turn

CLIENT = "workflow"


def gets_of(found: Json) -> list[tuple[str, int]]:
    """Return the client's GET requests: what follows the chat's address, and the status."""
    return [
        (request["url"].partition("/chat/")[2], request["status"])
        for request in found["requests"]
        if request["method"] == "GET"
    ]


def start_indexes(found: Json) -> list[int]:
    """Return from which chunk on the client asked each time."""
    return [int(place.partition("startIndex=")[2]) for place, _ in gets_of(found)]


async def test_a_turn_arrives(chat: Chat) -> None:
    """Clients 1.6: it posts text/plain without ids, needs `x-workflow-run-id`, and a `finish`."""
    chat.open_gate()
    found = await chat.drive(CLIENT, send(waiting_turn(chat)))
    assert (found["status"], found["errors"], found["warnings"], gets_of(found)) == ("ready", [], [], [])
    assert is_whole_once(found, await chat.history())


async def test_three_cut_connections_in_one_turn_make_one_whole_message(chat: Chat) -> None:
    """Issue B, what it must show: the POST and two GETs are cut, and nobody notices."""
    async with CuttingProxy(chat.port, [9, 9, 3]) as proxy:
        driving = asyncio.create_task(chat.drive(CLIENT, send(waiting_turn(chat)), port=proxy.port))
        await until_connected(proxy, 2)
        await chat.until_waiting()
        chat.open_gate()
        found = await driving
    assert (found["status"], found["errors"]) == ("ready", [])
    assert {(place.partition("=")[0], status) for place, status in gets_of(found)} == {("1/stream?startIndex", 200)}
    indexes = start_indexes(found)
    # A chunk that came just before a cut may be lost with the connection, and is then asked for again.
    assert indexes == sorted(indexes)
    assert all(0 < index <= sent for index, sent in zip(indexes, (9, 18, 21), strict=True))
    assert is_whole_once(found, await chat.history())
    fractions = [part["data"]["fraction"] for part in found["data"]["data-agent-progress"]]
    assert fractions == sorted(set(fractions))


@pytest.mark.parametrize("cut", range(1, 25, 4))
async def test_wherever_it_is_cut_every_chunk_comes_once(chat: Chat, cut: int) -> None:
    """Clients 1.6: `startIndex` counts every chunk, so a literal replay goes on exactly there."""
    chat.open_gate()
    async with CuttingProxy(chat.port, [cut, 1, 1]) as proxy:
        found = await chat.drive(CLIENT, send(waiting_turn(chat)), port=proxy.port)
    assert (found["status"], found["errors"]) == ("ready", [])
    assert is_whole_once(found, await chat.history())
    assert len(found["data"]["data-agent-milestone"]) == 2


async def test_a_stopped_turn_does_not_spin(chat: Chat) -> None:
    """Clients 1.6: a turn that was cancelled ends in `finish` as well."""
    driving = asyncio.create_task(chat.drive(CLIENT, send(waiting_turn(chat))))
    await chat.until_waiting()
    await chat.stop()
    found = await driving
    assert (found["status"], found["errors"], gets_of(found)) == ("ready", [], [])


async def test_a_stopped_turn_that_is_cut_before_its_end_does_not_spin(chat: Chat) -> None:
    """Clients 1.6: nor does its replay."""
    async with CuttingProxy(chat.port, [7]) as proxy:
        driving = asyncio.create_task(chat.drive(CLIENT, send(waiting_turn(chat)), port=proxy.port))
        await until_connected(proxy, 2)
        await chat.until_waiting()
        await chat.stop()
        found = await driving
    assert (found["status"], found["errors"], len(gets_of(found))) == ("ready", [], 1)


async def test_a_failing_turn_ends_in_its_error_and_does_not_spin(chat: Chat) -> None:
    """Clients 1.6: `finish` follows the `error`."""
    found = await chat.drive(CLIENT, send("refuse 400"))
    turn = await chat.until_ended()
    assert (found["status"], len(gets_of(found))) == ("error", 0)
    assert [error["message"] for error in found["errors"]] == [turn["error"]]


async def test_a_reload_resumes_by_the_run_id_that_the_page_has_kept(chat: Chat) -> None:
    """As the package's documentation does it: `prepareReconnectToStreamRequest` with a remembered run id."""
    async with CuttingProxy(chat.port, [7]) as proxy:
        posting = asyncio.create_task(chat.drive("ai-7", send(waiting_turn(chat)), port=proxy.port))
        await posting
    await chat.until_waiting()
    options = {"resumeAt": chat.url("chat/1/stream")}
    resuming = chat.drive(CLIENT, RESUME, messages=await chat.messages(), options=options)
    driving = asyncio.create_task(resuming)
    chat.open_gate()
    found = await driving
    assert (found["status"], found["errors"], gets_of(found)) == ("ready", [], [("1/stream?startIndex=0", 200)])
    assert is_whole_once(found, await chat.history())


async def test_a_reload_resumes_by_the_chat_id_where_the_page_knows_no_run_id(chat: Chat) -> None:
    """The package's default: it asks for `<chat id>/stream?startIndex=0`."""
    async with CuttingProxy(chat.port, [7]) as proxy:
        await chat.drive("ai-7", send(waiting_turn(chat)), port=proxy.port)
    await chat.until_waiting()
    driving = asyncio.create_task(chat.drive(CLIENT, RESUME, messages=await chat.messages()))
    chat.open_gate()
    found = await driving
    assert (found["status"], found["errors"]) == ("ready", [])
    assert is_whole_once(found, await chat.history())


async def test_a_resume_by_the_chat_id_that_is_cut_goes_on(chat: Chat) -> None:
    """It asks again under the chat id, with the number of chunks that it has."""
    chat.open_gate()
    await chat.drive("ai-7", send(waiting_turn(chat)))
    history = await chat.history()
    async with CuttingProxy(chat.port, [9, 9]) as proxy:
        found = await chat.drive(CLIENT, RESUME, messages=history[:1], port=proxy.port)
    assert (found["status"], found["errors"]) == ("ready", [])
    first, second, third = start_indexes(found)
    assert 0 == first < second <= 9
    assert second < third <= 18
    assert is_whole_once(found, history)


async def test_there_is_nothing_to_resume_in_a_chat_that_is_idle(chat: Chat) -> None:
    """A page with `resume: true` asks on every load; to this client a 204 and a 404 are errors."""
    found = await chat.drive(CLIENT, RESUME)
    assert (found["status"], found["errors"], found["messages"]) == ("ready", [], [])
    assert len(gets_of(found)) == 1


@pytest.mark.parametrize("tail", [-1, -5, -1000])
async def test_a_resume_from_the_end_knows_where_it_is(chat: Chat, tail: int) -> None:
    """A negative startIndex needs `x-workflow-stream-tail-index`, or what follows a cut begins anew."""
    chat.open_gate()
    await chat.drive("ai-7", send(waiting_turn(chat)))
    history = await chat.history()
    async with CuttingProxy(chat.port, [1]) as proxy:
        options = {"resumeAt": chat.url("chat/1/stream", proxy.port), "initialStartIndex": tail}
        found = await chat.drive(CLIENT, RESUME, messages=history[:1], options=options)
    assert (found["status"], found["errors"]) == ("ready", [])
    first = max(0, await chat.chunk_count() + tail)
    # The first answer is cut after one chunk, which may be lost with the connection.
    asked, *again = start_indexes(found)
    assert asked == tail
    assert all(index in (first, first + 1) for index in again)
    assert is_whole_once(found, history) or first > 0


async def test_a_message_posted_again_starts_nothing_twice(chat: Chat) -> None:
    """Issue B 6: the id of the message counts, since this client sends none of the chat's."""
    first = await chat.drive(CLIENT, send('call note {"text": "once"}'))
    again = await chat.drive(CLIENT, send('call note {"text": "once"}'))
    assert len(await chat.turns()) == 1
    assert gist(again["messages"][1]) == gist(first["messages"][1])
