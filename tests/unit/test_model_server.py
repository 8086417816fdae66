"""The tests' own model provider does what real providers do."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from model_server import (
    USAGE,
    Call,
    Cut,
    Empty,
    Hold,
    ModelServer,
    Refuse,
    Reply,
    Say,
    ToolCall,
    default_script,
    in_turn,
    problem_of,
    reply_to,
)

Json = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """A server of the test's own."""
    async with ModelServer() as running:
        yield running


@pytest.fixture
async def http(server: ModelServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client that speaks to it."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _calling(*calls: tuple[str | None, str, str]) -> Json:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ],
    }


def _result(call_id: str, text: str = "ok") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _body(*messages: Json, **more: Any) -> Json:
    return {"model": "any", "messages": list(messages), **more}


def _tool(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


async def _events(http: httpx.AsyncClient, body: Json) -> list[Json | str]:
    response = await http.post("/chat/completions", json={**body, "stream": True})
    texts = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


async def test_an_answer_has_the_form_of_a_chat_completion(server: ModelServer, http: httpx.AsyncClient) -> None:
    """`Say` answers with one choice, a finish mark and the usage."""
    server.script = in_turn(Say("hello"))
    answer = (await http.post("/chat/completions", json=_body(_user("hi")))).json()
    assert answer["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    ]
    assert answer["usage"] == USAGE


async def test_a_streamed_text_comes_in_pieces_with_a_finish_mark(server: ModelServer, http: httpx.AsyncClient) -> None:
    """Streamed, the pieces add up to the text, and the end is marked."""
    server.script = in_turn(Say("a text that is longer than one piece"))
    *chunks, done = await _events(http, _body(_user("hi"), stream_options={"include_usage": True}))
    choices = [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "a text that is longer than one piece"
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert isinstance(chunks[-1], dict)
    assert chunks[-1]["usage"] == USAGE
    assert done == "[DONE]"


async def test_streamed_calls_come_as_head_and_arguments(server: ModelServer, http: httpx.AsyncClient) -> None:
    """Streamed, each call has an index of its own; its arguments come in pieces."""
    server.script = in_turn(Call(ToolCall("add", {"a": 1, "b": 22}), ToolCall("now")))
    chunks = await _events(http, _body(_user("hi")))
    calls = [
        call
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    arguments = ["".join(call["function"]["arguments"] for call in calls if call["index"] == index) for index in (0, 1)]
    assert arguments == ['{"a": 1, "b": 22}', "{}"]
    assert [(call["id"], call["function"]["name"]) for call in calls if "id" in call] == [
        ("call_1", "add"),
        ("call_2", "now"),
    ]


async def test_a_call_has_the_id_and_the_text_that_the_script_wants(
    server: ModelServer, http: httpx.AsyncClient
) -> None:
    """Ids may be left out or empty, and arguments may be no JSON (field cases 12 and 13)."""
    server.script = in_turn(Call(ToolCall("a", "{broken", id=None), ToolCall("b", "", id="")))
    answer = (await http.post("/chat/completions", json=_body(_user("hi")))).json()
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [(None, "{broken"), ("", "")]


async def test_a_refusal_has_the_status_headers_and_body_of_the_script(
    server: ModelServer, http: httpx.AsyncClient
) -> None:
    """`Refuse` answers with any status, and with an OpenAI-like error unless told otherwise."""
    server.script = in_turn(Refuse(429, headers={"retry-after": "2"}), Refuse(502, "<html>"))
    first = await http.post("/chat/completions", json=_body(_user("hi")))
    second = await http.post("/chat/completions", json=_body(_user("hi")))
    assert (first.status_code, first.headers["retry-after"]) == (429, "2")
    assert first.json()["error"]["type"] == "rate_limit_error"
    assert (second.status_code, second.text) == (502, "<html>")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_answer_is_never_completed(server: ModelServer, http: httpx.AsyncClient, stream: bool) -> None:
    """`Cut` drops the connection in the middle (field case 19)."""
    server.script = in_turn(Cut("half of"))
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post("/chat/completions", json=_body(_user("hi"), stream=stream))


async def test_an_empty_answer_looks_like_an_answer(server: ModelServer, http: httpx.AsyncClient) -> None:
    """`Empty` is a normal stop with nothing in it (field case 19)."""
    server.script = in_turn(Empty())
    answer = (await http.post("/chat/completions", json=_body(_user("hi")))).json()
    assert answer["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": None},
        "finish_reason": "stop",
    }


async def test_a_held_request_is_open_until_its_event_is_set(server: ModelServer, http: httpx.AsyncClient) -> None:
    """`Hold` answers when the test says so."""
    released = asyncio.Event()
    server.script = in_turn(Hold(released, Say("at last")))
    asking = asyncio.create_task(http.post("/chat/completions", json=_body(_user("hi"))))
    await server.until(lambda: server.open_requests == 1)
    assert server.requests[0].closed_by_client is None
    released.set()
    assert (await asking).json()["choices"][0]["message"]["content"] == "at last"
    assert server.requests[0].closed_by_client is False


async def test_a_client_that_gives_up_is_noticed(server: ModelServer, http: httpx.AsyncClient) -> None:
    """A connection that is closed before the answer is recorded."""
    server.script = in_turn(Hold(asyncio.Event(), Say("never")))
    asking = asyncio.create_task(http.post("/chat/completions", json=_body(_user("hi"))))
    await server.until(lambda: server.open_requests == 1)
    asking.cancel()
    await server.until(lambda: server.open_requests == 0)
    assert server.requests[0].closed_by_client is True


async def test_a_server_that_stops_lets_go_of_what_it_holds() -> None:
    """A held request never keeps a test from ending."""
    async with httpx.AsyncClient() as http, ModelServer() as server:
        server.script = in_turn(Hold(asyncio.Event(), Say("never")))
        asking = asyncio.create_task(http.post(f"{server.url}/chat/completions", json=_body(_user("hi"))))
        await server.until(lambda: server.open_requests == 1)
    assert (await asking).status_code == 503


async def test_what_a_script_raises_fails_the_test() -> None:
    """A mistake in a script, such as a failed assertion, is not taken for a provider's bad day."""
    server = ModelServer()
    server.script = lambda request: Say(request.messages[7]["content"])
    with pytest.raises(IndexError):
        async with server, httpx.AsyncClient(base_url=server.url) as http:
            assert (await http.post("/chat/completions", json=_body(_user("hi")))).status_code == 500


async def test_a_request_is_recorded_with_model_messages_and_tool_names(
    server: ModelServer, http: httpx.AsyncClient
) -> None:
    """Scripts and tests see what was asked."""
    await http.post("/chat/completions", json=_body(_user("hi"), tools=[_tool("add")], temperature=0))
    [request] = server.requests
    assert (request.model, request.last_text, request.tools, request.is_streamed) == ("any", "hi", ("add",), False)
    assert request.body["temperature"] == 0
    assert request.arrived_at <= asyncio.get_running_loop().time()


async def test_strict_mode_refuses_and_remembers_why(server: ModelServer, http: httpx.AsyncClient) -> None:
    """A conversation that a provider would refuse gets HTTP 400, whatever the script says."""
    answer = await http.post("/chat/completions", json=_body(_user("hi"), _result("call_9")))
    assert answer.status_code == 400
    assert server.refusals == [answer.json()["error"]["message"]]
    server.is_strict = False
    assert (await http.post("/chat/completions", json=_body(_user("hi"), _result("call_9")))).status_code == 200


async def test_a_body_that_is_no_request_is_refused(server: ModelServer, http: httpx.AsyncClient) -> None:
    """Broken JSON is refused too."""
    assert (await http.post("/chat/completions", content=b'{"model": "any", ')).status_code == 400
    assert len(server.refusals) == 1


async def test_any_other_address_is_not_found(server: ModelServer, http: httpx.AsyncClient) -> None:
    """Only chat completions exist."""
    assert (await http.get("/models")).status_code == 404
    assert server.requests == []


GOOD = [
    _body(_user("hi")),
    _body({"role": "system", "content": "Be brief."}, _user("hi"), {"role": "assistant", "content": "Yes."}),
    _body(_user("hi"), _calling(("a", "add", "{}"), ("b", "add", '{"x": 1}')), _result("b"), _result("a")),
    _body(_user("hi"), _calling(("a", "add", "{}")), _result("a"), _calling(("a", "add", "{}")), _result("a")),
    _body(_user("hi"), tools=[_tool("a"), _tool("b-_9")]),
]
BAD = {
    "precedes this result": _body(_user("hi"), _result("a")),
    "already has one": _body(_user("hi"), _calling(("a", "add", "{}")), _result("a"), _result("a")),
    "calls without a result": _body(_user("hi"), _calling(("a", "add", "{}")), _user("go on")),
    "messages[2]: calls without": _body(_user("hi"), _calling(("a", "add", "{}"))),
    "unique within a message": _body(_user("hi"), _calling(("a", "add", "{}"), ("a", "add", "{}")), _result("a")),
    "needs an id": _body(_user("hi"), _calling((None, "add", "{}"))),
    "not a JSON object: '[]'": _body(_user("hi"), _calling(("a", "add", "[]")), _result("a")),
    "not a JSON object: ''": _body(_user("hi"), _calling(("a", "add", "")), _result("a")),
    "not a JSON object: '{": _body(_user("hi"), _calling(("a", "add", '{"x": NaN}')), _result("a")),
    "needs content or tool_calls": _body(_user("hi"), {"role": "assistant", "content": ""}),
    "the role user needs content": _body({"role": "user", "content": None}),
    "is not a role": _body({"role": "robot", "content": "hi"}),
    "the called name 'a b'": _body(_user("hi"), _calling(("a", "a b", "{}")), _result("a")),
    "tools[0].function.name: 'a b'": _body(_user("hi"), tools=[_tool("a b")]),
    "names must be unique": _body(_user("hi"), tools=[_tool("a"), _tool("a")]),
    "tools: must be left out": _body(_user("hi"), tools=[]),
    "of type object": _body(_user("hi"), tools=[{"function": {"name": "a", "parameters": {"type": "string"}}}]),
    "cannot be written as JSON": _body(_user("half a pair: \ud83d")),
    "at least one": _body(),
}


@pytest.mark.parametrize("body", GOOD)
def test_strict_mode_accepts_what_providers_accept(body: Json) -> None:
    """Sound conversations pass."""
    assert problem_of(body) is None


@pytest.mark.parametrize("problem", BAD)
def test_strict_mode_names_what_providers_refuse(problem: str) -> None:
    """Each kind of unsound conversation is refused for its own reason."""
    assert problem in (problem_of(BAD[problem]) or "")


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("say hello", Say("hello")),
        ("call now", Call(ToolCall("now", "{}"))),
        ('call add {"a": 1}\ncall now', Call(ToolCall("add", '{"a": 1}'), ToolCall("now", "{}"))),
        ("call add not json", Call(ToolCall("add", "not json"))),
        ('{\n  "query": "say hello"\n}', Say("hello")),
        ('{"task": "call now"}', Call(ToolCall("now", "{}"))),
        ("what?", Say("you said: what?")),
    ],
)
def test_the_default_script_does_what_the_user_says(text: str, reply: Reply) -> None:
    """Markers in the user's text, or in a sub-agent's input, are the reply."""
    assert reply_to(text) == reply


async def test_the_default_script_sums_up_tool_results(server: ModelServer, http: httpx.AsyncClient) -> None:
    """After tool results it says what they are, cut to 200 characters."""
    assert server.script is default_script
    body = _body(
        _user("hi"), _calling(("a", "add", "{}"), ("b", "add", "{}")), _result("a", "1"), _result("b", "2" * 300)
    )
    answer = (await http.post("/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == f"done: 1{'2' * 199}"


async def test_a_reset_server_starts_afresh(server: ModelServer, http: httpx.AsyncClient) -> None:
    """A server that several tests share begins each as if it were new."""
    server.script = in_turn(Say("old"))
    await http.post("/chat/completions", json=_body(_user("hi"), _result("call_9")))
    server.reset()
    assert (server.requests, server.refusals, server.script) == ([], [], default_script)
