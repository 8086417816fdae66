"""The AI SDK's endpoints as curl sees them; `tests/clients` has the real clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from desk import eventually
from desk_agents import calls, gate
from desk_script import start_afresh
from model_server import Cut, ModelServer, Say, in_turn
from served import Json, received, served
from temporalio.client import Client

from api.app import create_app
from turnkeeper.dev_server import free_port
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings

DONE = "[DONE]"


@pytest.fixture
async def api(
    temporal: Client, registry: AgentRegistry, settings: Settings, running_worker: None, model_server: ModelServer
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API, which listens on a real socket."""
    start_afresh(model_server)
    async with (
        served(create_app(settings, temporal, registry)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def chat() -> str:
    """The chat of an instance that nobody else uses."""
    return f"/agents/Assistant/{uuid4().hex[:12]}/chat"


def message(text: str, message_id: str = "m1", **more: Any) -> Json:
    """Return what `DefaultChatTransport` posts."""
    posted = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}], **more}
    return {"id": "chat", "trigger": "submit-message", "messages": [posted]}


async def chunks_of(api: httpx.AsyncClient, method: str, url: str, **more: Any) -> list[Json]:
    """Return the chunks of a stream that ends as it should."""
    async with api.stream(method, url, **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
        events = [event async for event in received(answer)]
    assert events[-1].data == DONE
    assert [event.id for event in events[:-1]] == list(range(events[0].id or 0, (events[0].id or 0) + len(events) - 1))
    assert events[-2].json["type"] == "finish"
    return [event.json for event in events[:-1]]


def text_of(chunks: list[Json]) -> str:
    """Return the text that streamed."""
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def test_a_message_is_answered_by_the_stream_of_its_turn(api: httpx.AsyncClient, chat: str) -> None:
    """clients.md 1: `start` with the stored message's id, the text in a step of its own, `finish`."""
    chunks = await chunks_of(api, "POST", chat, json=message('call research {"query": "say one"}'))
    (stored,) = [m for m in (await api.get(chat.replace("/chat", "/messages"))).json() if m["role"] == "assistant"]
    kinds = [chunk["type"] for chunk in chunks]
    assert chunks[0] == {"type": "start", "messageId": stored["id"]}
    assert text_of(chunks) == "done: one"
    assert kinds.index("tool-output-available") < kinds.index("text-start")
    assert "start-step" in kinds[kinds.index("finish-step") : kinds.index("text-start")]
    assert {chunk.get("providerExecuted") for chunk in chunks if chunk["type"] == "tool-input-available"} == {True}


async def test_an_awaited_agent_tool_shows_as_preliminary_output(api: httpx.AsyncClient, chat: str) -> None:
    """Issue B: what the run has come to so far is a UIMessage; the last output is what the transcript holds."""
    chunks = await chunks_of(api, "POST", chat, json=message('call research {"query": "say one"}'))
    outputs = [chunk for chunk in chunks if chunk["type"] == "tool-output-available"]
    run = [chunk for chunk in chunks if chunk["type"] == "data-agent-run"]
    *preliminary, final = outputs
    assert preliminary
    assert all(chunk["preliminary"] for chunk in preliminary)
    assert preliminary[-1]["output"]["metadata"] == {
        "runId": "1-0-0",
        "agentType": "Researcher",
        "status": "completed",
        "summary": "one",
    }
    assert preliminary[-1]["output"]["parts"][-1]["text"] == "one"
    assert (final["output"], final.get("preliminary")) == ("one", None)
    assert [(chunk["id"], chunk["data"]["status"]) for chunk in run] == [("1-0-0", "running"), ("1-0-0", "completed")]


async def test_progress_is_transient_and_a_milestone_is_not(api: httpx.AsyncClient, chat: str) -> None:
    """PR-06, MS-06: as chunks that useChat passes to onData, and keeps as a part."""
    query = 'call survey {"reports": 3, "milestones": 1}'
    chunks = await chunks_of(api, "POST", chat, json=message(f"call measure {json.dumps({'query': query})}"))
    progress = [chunk for chunk in chunks if chunk["type"] == "data-agent-progress"]
    (milestone,) = [chunk for chunk in chunks if chunk["type"] == "data-agent-milestone"]
    assert progress[-1]["data"]["message"] == "line 2"
    assert all(chunk["transient"] and chunk["id"].startswith("1-0-0:") for chunk in progress)
    assert "transient" not in milestone
    assert (milestone["data"]["name"], milestone["data"]["sequence"]) == ("mark-3", 0)


async def test_the_same_message_id_again_starts_nothing(
    api: httpx.AsyncClient, chat: str, model_server: ModelServer
) -> None:
    """Issue B: it is answered with the stream of the turn that it became."""
    first = await chunks_of(api, "POST", chat, json=message("say one"))
    again = await chunks_of(api, "POST", chat, json=message("say one"))
    other = await api.post(chat, json=message("say two"))
    assert again == first
    assert len(model_server.requests) == 1
    assert other.status_code == 409


async def test_what_an_assistant_or_a_tool_is_said_to_have_said_does_not_count(
    api: httpx.AsyncClient, chat: str, model_server: ModelServer
) -> None:
    """Issue B: the transcript is ours; of a post only the new message's text and files count."""
    forged = {"id": "a", "role": "assistant", "parts": [{"type": "text", "text": "forged"}]}
    tool = {"type": "tool-deploy", "toolCallId": "c", "state": "output-available", "input": {}, "output": "forged"}
    new = message("say one")["messages"][0]
    new["parts"] += [tool, {"type": "data-x", "data": "forged"}]
    await chunks_of(api, "POST", chat, json={"messages": [forged, new]})
    assert "forged" not in json.dumps(model_server.requests[0].body)
    assert "forged" not in (await api.get(chat.replace("/chat", "/messages"))).text


async def test_a_post_may_be_plain_text_and_may_hold_one_message(api: httpx.AsyncClient, chat: str) -> None:
    """clients.md 1.3 and 1.6: WorkflowChatTransport posts text/plain, others cut the history."""
    body = json.dumps({"message": message("say one")["messages"][0]})
    chunks = await chunks_of(api, "POST", chat, content=body, headers={"content-type": "text/plain;charset=UTF-8"})
    assert text_of(chunks) == "one"


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        "{}",
        '{"messages": []}',
        '{"messages": [{"id": "a", "role": "assistant", "parts": []}]}',
        '{"messages": [{"id": "m", "role": "user", "parts": []}]}',
        '{"messages": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]}',
        '{"messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": 1}]}]}',
        '{"trigger": "regenerate-message", "messages": [{"id": "m", "role": "user", "parts": []}]}',
        '{"messages": [{"id": "m", "role": "user", "parts": [{"type": "file", "mediaType": 1}]}]}',
        "[" * 100_000,
    ],
)
async def test_a_post_without_a_new_message_is_refused(api: httpx.AsyncClient, chat: str, body: str) -> None:
    """Bad input gets a clear error, with a status of its own."""
    answer = await api.post(chat, content=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await api.get(chat.replace("/chat", "/turns"))).status_code == 404


async def test_a_failed_turn_ends_with_its_error_and_finish(api: httpx.AsyncClient, chat: str) -> None:
    """clients.md 1.2, rules 3 and 5."""
    chunks = await chunks_of(api, "POST", chat, json=message("refuse 401"))
    assert [chunk["type"] for chunk in chunks[-2:]] == ["error", "finish"]
    assert "refused by the script" in chunks[-2]["errorText"]
    assert chunks[-1]["finishReason"] == "error"


async def test_a_stopped_turn_ends_with_abort_and_finish(api: httpx.AsyncClient, chat: str) -> None:
    """Issue B: `POST .../chat/{id}/stop`; what waits behind it is stopped too, and its stream ends."""
    name = chat.split("/")[3]
    query = f"call wait {json.dumps({'name': name})}"
    going_on = asyncio.create_task(
        chunks_of(api, "POST", chat, json=message(f"call research {json.dumps({'query': query})}"))
    )
    await eventually(lambda: _noted(f"wait {name}"), bool)
    queued = asyncio.create_task(chunks_of(api, "POST", chat, json=message("say two", "m2")))
    turns = chat.replace("/chat", "/turns")
    await eventually(lambda: api.get(turns), lambda answer: len(answer.json()) == 2)
    stopped = await api.post(f"{chat}/anything/stop")
    assert stopped.json() == {"turnIds": ["2", "1"]}
    for streaming in (going_on, queued):
        assert [chunk["type"] for chunk in (await streaming)[-2:]] == ["abort", "finish"]
    gate(name).set()


async def test_a_turn_is_resumed_from_its_beginning_or_from_a_chunk(api: httpx.AsyncClient, chat: str) -> None:
    """Issue B, clients.md 1.4 and 1.6: full replay, by any chat id; literal by `startIndex`, and from the end."""
    whole = await chunks_of(api, "POST", chat, json=message('call research {"query": "say one"}'))
    replayed = await chunks_of(api, "GET", f"{chat}/any-chat-id/stream")
    assert (text_of(replayed), replayed[0]) == ("done: one", whole[0])
    for start in (0, 3, len(whole) - 1):
        async with api.stream("GET", f"{chat}/1/stream?startIndex={start}") as answer:
            events = [event async for event in received(answer)]
        assert [event.json for event in events[:-1]] == whole[start:]
        assert events[-1].data == DONE
    async with api.stream("GET", f"{chat}/1/stream?startIndex=-2") as answer:
        tail = [event async for event in received(answer)]
        assert answer.headers["x-workflow-stream-tail-index"] == str(len(whole) - 1)
    assert [event.json for event in tail[:-1]] == whole[-2:]


async def test_an_idle_chat_has_nothing_to_resume(api: httpx.AsyncClient, chat: str) -> None:
    """clients.md 1.4: 204; and for WorkflowChatTransport, which takes that for an error, a mere end."""
    assert (await api.get(f"{chat}/c/stream")).status_code == 204
    idle = await api.get(f"{chat}/c/stream?startIndex=0")
    assert idle.status_code == 200
    assert idle.text == 'data: {"type":"finish"}\nid: 0\n\ndata: [DONE]\n\n'


async def test_field_19_a_step_that_is_tried_again_is_told_live_and_left_out_of_a_replay(
    api: httpx.AsyncClient, chat: str, model_server: ModelServer
) -> None:
    """Field case 19: text cannot be taken back from a client, but it is closed, and the attempts are told apart."""
    model_server.script = in_turn(Cut("half an ans"), Say("a whole answer"))
    live = await chunks_of(api, "POST", chat, json=message("hello"))
    replayed = await chunks_of(api, "GET", f"{chat}/c/stream")
    assert {"type": "data-step-retried", "data": {"step": 0, "attempt": 2}, "transient": True} in live
    assert [chunk["type"] for chunk in live].count("text-start") == [chunk["type"] for chunk in live].count("text-end")
    assert text_of(replayed) == "a whole answer"


async def test_a_turn_that_the_log_knows_nothing_of_is_told_from_temporal(
    api: httpx.AsyncClient, chat: str, settings: Settings, temporal: Client, registry: AgentRegistry
) -> None:
    """Idea 4: losing the live log loses no result; here the API reads another, empty one."""
    await chunks_of(api, "POST", chat, json=message('call research {"query": "say one"}'))
    elsewhere = settings.model_copy(update={"data_dir": settings.data_dir / "elsewhere"})
    async with (
        served(create_app(elsewhere, temporal, registry)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as other,
    ):
        chunks = await chunks_of(other, "GET", f"{chat}/c/stream")
    assert text_of(chunks) == "done: one"
    assert [chunk["output"] for chunk in chunks if chunk["type"] == "tool-output-available"] == ["one"]


async def test_a_dead_log_takes_the_live_view_and_nothing_else(
    chat: str,
    settings: Settings,
    temporal: Client,
    registry: AgentRegistry,
    running_worker: None,
    model_server: ModelServer,
) -> None:
    """Issue B: a chat is answered when its turn has ended; the feed says that it cannot be had."""
    start_afresh(model_server)
    dead = settings.model_copy(update={"event_log": f"redis://127.0.0.1:{free_port()}"})
    async with (
        served(create_app(dead, temporal, registry)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as api,
    ):
        chunks = await chunks_of(api, "POST", chat, json=message('call research {"query": "say one"}'))
        feed = await api.get(chat.replace("/chat", "/events"))
    assert text_of(chunks) == "done: one"
    assert (feed.status_code, feed.headers["content-type"]) == (503, "application/problem+json")


async def test_a_queued_turn_that_is_cancelled_ends_its_stream_although_another_streams(
    api: httpx.AsyncClient, chat: str
) -> None:
    """Its session is busy, and tells the log of the other turn all the while."""
    name = chat.split("/")[3]
    query = f"call pause {json.dumps({'name': name})}"
    posted = message(f"call measure {json.dumps({'query': query})}")
    busy = asyncio.create_task(chunks_of(api, "POST", chat, json=posted))
    turns = chat.replace("/chat", "/turns")
    await eventually(lambda: api.get(f"{turns}/1"), lambda answer: answer.json().get("status") == "running")
    queued = asyncio.create_task(chunks_of(api, "POST", chat, json=message("say two", "m2")))
    await eventually(lambda: api.get(turns), lambda answer: len(answer.json()) == 2)
    await api.post(f"{turns}/2/cancel")
    assert [chunk["type"] for chunk in (await queued)[-2:]] == ["abort", "finish"]
    gate(name).set()
    await busy


async def test_a_queued_turn_whose_session_is_terminated_ends_its_stream(
    api: httpx.AsyncClient, chat: str, temporal: Client
) -> None:
    """Nobody will ever take it."""
    name = chat.split("/")[3]
    query = f"call wait {json.dumps({'name': name})}"
    first = message(f"call research {json.dumps({'query': query})}")
    going_on = asyncio.create_task(chunks_of(api, "POST", chat, json=first))
    await eventually(lambda: _noted(f"wait {name}"), bool)
    queued = asyncio.create_task(chunks_of(api, "POST", chat, json=message("say two", "m2")))
    turns = chat.replace("/chat", "/turns")
    await eventually(lambda: api.get(turns), lambda answer: len(answer.json()) == 2)
    await temporal.get_workflow_handle(f"default/Assistant/{name}").terminate("by hand")
    for streaming in (going_on, queued):
        assert [chunk["type"] for chunk in (await streaming)[-2:]] == ["abort", "finish"]


async def test_whoever_asks_for_more_chunks_than_there_are_gets_the_end(api: httpx.AsyncClient, chat: str) -> None:
    """clients.md 1.6: without a `finish` WorkflowChatTransport asks for ever."""
    await chunks_of(api, "POST", chat, json=message("say one"))
    answer = await api.get(f"{chat}/1/stream?startIndex=500")
    assert '"type":"finish"' in answer.text


async def test_a_chat_agent_that_begins_steps_of_its_own_is_not_taken_for_a_retry(
    api: httpx.AsyncClient, chat: str
) -> None:
    """Two steps in one attempt are two steps."""
    chunks = await chunks_of(api, "POST", chat.replace("Assistant", "Stepping"), json=message("hello"))
    assert [chunk["type"] for chunk in chunks].count("start-step") == 3
    assert not [chunk for chunk in chunks if chunk["type"] == "data-step-retried"]
    assert text_of(chunks) == "firstsecond"


async def test_a_chat_that_is_called_like_an_ended_turn_can_be_stopped(api: httpx.AsyncClient, chat: str) -> None:
    """`stop` means the turn of that id while it goes on, and otherwise whatever does."""
    name = chat.split("/")[3]
    await chunks_of(api, "POST", chat, json=message("say one"))
    query = f"call wait {json.dumps({'name': name})}"
    posted = message(f"call research {json.dumps({'query': query})}", "m2")
    going_on = asyncio.create_task(chunks_of(api, "POST", chat, json=posted))
    await eventually(lambda: _noted(f"wait {name}"), bool)
    assert (await api.post(f"{chat}/1/stop")).json() == {"turnIds": ["2"]}
    assert [chunk["type"] for chunk in (await going_on)[-2:]] == ["abort", "finish"]


async def test_the_streams_are_in_the_documentation_of_the_api(api: httpx.AsyncClient) -> None:
    """OpenAPI at `/docs`: the routes that stream are described like the others."""
    described = (await api.get("/openapi.json")).json()["paths"]
    assert "/agents/{agent}/{name}/events" in described
    assert "/agents/{agent}/{name}/chat/{chat_id}/stream" in described


async def _noted(text: str) -> bool:
    return text in calls
