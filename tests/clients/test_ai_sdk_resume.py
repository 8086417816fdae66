"""The AI SDK's clients come back after a cut connection, a reload or a stop, each version in the forms it can do."""

import asyncio

import pytest
from clients.chats import RESUME, Chat, gist, send
from clients.cutting_proxy import CuttingProxy
from clients.npm_clients import CHATS
from clients.waiting_turns import is_whole_once, until_connected, waiting_turn
from model_server import Cut, ModelServer, Say, in_turn

every_client = pytest.mark.parametrize("client", CHATS)

replaying_client = pytest.mark.parametrize("client", ["ai-7", "ai-6"])
"""Those that begin the message anew when a stream is replayed; 6.0.0 adds to what it has (clients 1.4)."""

CUT_AFTER = 7
"""Chunks that arrive before the connection is cut: some of the tool calls, none of the results."""


@replaying_client
async def test_a_cut_connection_is_resumed_in_mid_turn_by_the_same_page(chat: Chat, client: str) -> None:
    """Issue B 6: the socket dies, the client resumes, the message is whole and there once."""
    async with CuttingProxy(chat.port, [CUT_AFTER]) as proxy:
        driving = asyncio.create_task(chat.drive(client, send(waiting_turn(chat)), RESUME, port=proxy.port))
        await until_connected(proxy, 2)
        await chat.until_waiting()
        chat.open_gate()
        found = await driving
    assert len(found["errors"]) == 1
    assert found["status"] == "ready"
    assert [(request["method"], request["status"]) for request in found["requests"]] == [("POST", 200), ("GET", 200)]
    assert found["messages"][-1]["id"] == "turn-1"
    assert is_whole_once(found, await chat.history())


@every_client
async def test_a_reload_in_mid_turn_finds_history_without_the_half_message_and_replays_it(
    chat: Chat, client: str
) -> None:
    """Clients 1.4 (a): so that every version shows the message once."""
    async with CuttingProxy(chat.port, [CUT_AFTER]) as proxy:
        cut = await chat.drive(client, send(waiting_turn(chat)), port=proxy.port)
    assert cut["status"] == "error"
    await chat.until_waiting()
    history = await chat.messages()
    assert [message["role"] for message in history] == ["user"]
    async with CuttingProxy(chat.port, []) as proxy:
        driving = asyncio.create_task(chat.drive(client, RESUME, messages=history, port=proxy.port))
        await until_connected(proxy, 1)
        chat.open_gate()
        found = await driving
    assert (found["status"], found["errors"]) == ("ready", [])
    assert is_whole_once(found, await chat.history())


@every_client
async def test_a_reload_after_several_turns_replays_only_the_one_that_goes_on(chat: Chat, client: str) -> None:
    """Clients 1.4: earlier messages are left alone."""
    await chat.drive(client, send("say first", "u0"))
    async with CuttingProxy(chat.port, [CUT_AFTER]) as proxy:
        await chat.drive(client, send(waiting_turn(chat)), port=proxy.port)
    await chat.until_waiting()
    history = await chat.messages()
    assert [message["role"] for message in history] == ["user", "assistant", "user"]
    driving = asyncio.create_task(chat.drive(client, RESUME, messages=history))
    chat.open_gate()
    found = await driving
    assert [message["id"] for message in found["messages"]] == ["u0", "turn-1", "u1", "turn-2"]
    assert is_whole_once(found, await chat.history())


@replaying_client
async def test_a_client_that_was_away_at_the_end_gets_the_whole_turn(chat: Chat, client: str) -> None:
    """Clients 1.4 (b): a finished turn is replayed for a while, or the page would keep half a message."""
    chat.open_gate()
    async with CuttingProxy(chat.port, [CUT_AFTER]) as proxy:
        steps = (send(waiting_turn(chat)), {"until": chat.url("turns/1")}, RESUME)
        found = await chat.drive(client, *steps, port=proxy.port)
    assert found["status"] == "ready"
    assert found["requests"][-1]["status"] == 200
    assert is_whole_once(found, await chat.history())


@replaying_client
async def test_a_reload_soon_after_the_end_changes_nothing(chat: Chat, client: str) -> None:
    """Clients 1.4: the replay of a turn that the history holds is the same message."""
    chat.open_gate()
    await chat.drive(client, send(waiting_turn(chat)))
    history = await chat.history()
    found = await chat.drive(client, RESUME, messages=history)
    assert (found["status"], found["errors"]) == ("ready", [])
    assert [message["id"] for message in found["messages"]] == ["u1", "turn-1"]
    assert is_whole_once(found, history)


@every_client
async def test_a_replay_tells_only_the_newest_progress(chat: Chat, client: str) -> None:
    """Clients 1.4 (d): a page that comes late does not see the bar run through its past."""
    chat.open_gate()
    await chat.drive(client, send(waiting_turn(chat)))
    history = await chat.history()
    found = await chat.drive(client, RESUME, messages=history[:1])
    assert [part["data"]["fraction"] for part in found["data"]["data-agent-progress"]] == [1.0]
    assert is_whole_once(found, history)


@every_client
async def test_a_failed_turn_is_replayed_with_its_error(chat: Chat, client: str) -> None:
    """Clients 1.2: the error ends the replay as it ended the stream."""
    await chat.drive(client, send("refuse 400"))
    turn = await chat.until_ended()
    found = await chat.drive(client, RESUME, messages=(await chat.history())[:1])
    assert found["status"] == "error"
    assert [error["message"] for error in found["errors"]] == [turn["error"]]


@every_client
async def test_a_step_that_is_tried_again_breaks_nothing_and_a_reload_shows_it_once(
    chat: Chat, client: str, model_server: ModelServer
) -> None:
    """Issue B 2: what a failed attempt had streamed is superseded: a client cannot forget it, a replay can."""
    model_server.script = in_turn(Cut("half an answer that is never"), Say("a whole answer"))
    found = await chat.drive(client, send("say it"))
    assert (found["status"], found["errors"]) == ("ready", [])
    assert gist(found["messages"][-1])[-2:] == [("step-start", None), ("text", "a whole answer")]
    history = await chat.history()
    reloaded = await chat.drive(client, RESUME, messages=history[:1])
    assert (reloaded["status"], reloaded["errors"]) == ("ready", [])
    assert is_whole_once(reloaded, history)


@every_client
async def test_there_is_nothing_to_resume_in_a_chat_that_is_idle(chat: Chat, client: str) -> None:
    """Clients 1.4: 204."""
    found = await chat.drive(client, RESUME)
    assert [(request["method"], request["status"]) for request in found["requests"]] == [("GET", 204)]
    assert (found["status"], found["errors"], found["messages"]) == ("ready", [], [])


@every_client
async def test_the_server_stops_a_turn_and_the_stream_ends(chat: Chat, client: str) -> None:
    """Clients 1.3: a stop has an endpoint of its own."""
    driving = asyncio.create_task(chat.drive(client, send(waiting_turn(chat))))
    await chat.until_waiting()
    stopped = await chat.stop()
    found = await driving
    assert stopped == {"turnIds": ["1"]}
    assert (found["status"], found["errors"]) == ("ready", [])
    assert (await chat.until_ended())["status"] == "aborted"
    [run] = [part for part in found["messages"][-1]["parts"] if part["type"] == "data-agent-run"]
    assert run["data"]["status"] == "aborted"


@every_client
async def test_a_stopped_message_is_the_same_here_and_there(chat: Chat, client: str) -> None:
    """Issue B 6: what was written stays, and no tool call is left as if it went on."""
    driving = asyncio.create_task(chat.drive(client, send(waiting_turn(chat))))
    await chat.until_waiting()
    await chat.stop()
    found = await driving
    stored = await chat.history()
    states = {part["type"]: part["state"] for part in found["messages"][-1]["parts"] if "toolCallId" in part}
    assert states == {"tool-add": "output-available", "tool-survey": "output-error"}
    assert [gist(message) for message in found["messages"]] == [gist(message) for message in stored]


@every_client
async def test_the_clients_own_stop_only_disconnects(chat: Chat, client: str) -> None:
    """Clients 1.3: the turn goes on, and can be resumed or stopped for good."""
    found = await chat.drive(client, send(waiting_turn(chat), stopAtTool=True))
    assert (found["status"], [finish["isAbort"] for finish in found["finishes"]]) == ("ready", [True])
    await chat.until_waiting()
    assert (await chat.turn())["status"] == "running"
    driving = asyncio.create_task(chat.drive(client, RESUME, messages=await chat.messages()))
    chat.open_gate()
    assert is_whole_once(await driving, await chat.history())


@every_client
async def test_a_message_sent_after_a_stop_is_answered(chat: Chat, client: str) -> None:
    """Issue B 6: a stop leaves nothing behind that the next turn stumbles over."""
    driving = asyncio.create_task(
        chat.drive(client, send(waiting_turn(chat)), {"until": chat.url("turns/1")}, send("say next", "u2"))
    )
    await chat.until_waiting()
    await chat.stop()
    found = await driving
    assert (found["status"], found["errors"]) == ("ready", [])
    assert gist(found["messages"][-1]) == [("step-start", None), ("text", "next")]
