"""A model provider on loopback: speaks the OpenAI chat-completions protocol and answers what a test scripts.

    async with ModelServer() as server:
        server.script = in_turn(Call(ToolCall("search", {"query": "x"})), Say("found it"))
        ...  # litellm with model "openai/any", api_base=server.url, api_key="test"
    assert server.refusals == []

It runs on the test's own event loop, so scripts, `asyncio.Event`s and what it recorded need no locks.
"""

import asyncio
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, assert_never

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

Json = dict[str, Any]

MINTED = "<minted>"
"""The id of a call for which the server makes up an id that no other call has."""

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
"""What every answer is said to have taken."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL_LINE = re.compile(r"call (\S+) ?(.*)")
_ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


@dataclass(eq=False)
class ChatRequest:
    """A request as it came, and what became of it."""

    model: str
    messages: list[Json]
    tools: tuple[str, ...]
    body: Json = field(repr=False)
    """The whole body, with options such as `temperature`."""
    arrived_at: float
    """By the event loop's clock."""
    number: int = 0
    """Which request of the server's it was, from 1."""
    closed_by_client: bool | None = None
    """Whether the client closed the connection before the answer; None while there is no answer yet."""

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is wanted as server-sent events."""
        return self.body.get("stream") is True

    @property
    def last_text(self) -> str:
        """The text of the last message."""
        return text_of(self.messages[-1])


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool; arguments that are text are sent as they are, JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = MINTED


@dataclass(frozen=True)
class Say:
    """Answers with text, and with pictures and cited pages where some are given."""

    text: str
    reasoning: str | None = None
    finish_reason: str = "stop"
    images: tuple[str, ...] = ()
    """Their URLs."""
    cites: tuple[str, ...] = ()
    """The URLs of pages."""


@dataclass(frozen=True, init=False)
class Call:
    """Answers with tool calls, and with text where some is given."""

    calls: tuple[ToolCall, ...]
    text: str | None
    finish_reason: str

    def __init__(self, *calls: ToolCall, text: str | None = None, finish_reason: str = "tool_calls") -> None:
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "finish_reason", finish_reason)


@dataclass(frozen=True)
class Refuse:
    """Answers with an HTTP status; a body of text is sent as it is, none at all stands for an OpenAI-like error."""

    status: int
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """Begins to answer with text, and drops the connection before the end."""

    text: str = ""


@dataclass(frozen=True)
class Trickle:
    """Begins to stream text, and goes on when an event is set; for a request that is not streamed, it only waits."""

    text: str
    until: asyncio.Event
    then: str = ""


@dataclass(frozen=True)
class Empty:
    """Answers with a message that holds nothing, as if that were an answer."""


@dataclass(frozen=True)
class Hold:
    """Waits for some seconds, or until an event is set, and then answers; notices when the client gives up."""

    until: float | asyncio.Event
    then: "Reply"


Reply = Say | Call | Refuse | Hold | Cut | Trickle | Empty
Script = Callable[[ChatRequest], Reply]


def in_turn(*replies: Reply) -> Script:
    """Return a script that gives one reply after the other, and the last one for ever."""
    remaining = list(replies)
    return lambda request: remaining.pop(0) if len(remaining) > 1 else remaining[0]


def default_script(request: ChatRequest) -> Reply:
    """Do what the last message says: see `reply_to`; after tool results, say "done: " and what they are."""
    if request.messages[-1]["role"] == "tool":
        results: list[str] = []
        for message in reversed(request.messages):
            if message["role"] != "tool":
                break
            results.insert(0, text_of(message))
        return Say(f"done: {''.join(results)[:200]}")
    return reply_to(request.last_text)


def reply_to(text: str) -> Reply:
    """Return the reply that a user's text asks for.

    Each line `call NAME {json}` is a tool call; `say TEXT` says TEXT; anything else is said back. The text may be the
    JSON of a sub-agent's input, whose `query`, `task` or `text` then counts.
    """
    text = asked_of(text)
    matches = [match for line in text.splitlines() if (match := _CALL_LINE.fullmatch(line.strip()))]
    if matches:
        return Call(*(ToolCall(match[1], match[2] or "{}") for match in matches))
    return Say(text.removeprefix("say ") if text.startswith("say ") else f"you said: {text[:200]}")


def text_of(message: Json) -> str:
    """Return the text of a message in the chat-completions format."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


class ModelServer:
    """The provider; see the module."""

    def __init__(self, *, is_strict: bool = True) -> None:
        """Answer by `default_script` until told otherwise.

        Args:
            is_strict: whether to refuse, with HTTP 400, the conversations that real providers refuse.
        """
        self.script: Script = default_script
        self.is_strict = is_strict
        self.piece = 8
        """Characters that one streamed chunk adds."""
        self.requests: list[ChatRequest] = []
        """Every request in order of arrival."""
        self.refusals: list[str] = []
        """Why requests were refused for what they said; a product's tests want none."""
        self.open_requests = 0
        """Requests that wait for their answer."""
        self.url = ""
        """What litellm takes as `api_base`; known once the server listens."""
        self.script_errors: list[Exception] = []
        """What scripts raised; leaving the server raises the first."""
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._arrived = 0
        self._minted = 0
        self._socket = socket.socket()
        # No signal handlers and no ticks: of uvicorn's server, only its start and its end are used.
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._serve,
                interface="asgi3",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
            )
        )

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        await self._server.startup(sockets=[self._socket])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of requests that are held, close every connection, and raise what a script raised."""
        self._stopping.set()
        await self._server.shutdown(sockets=[self._socket])
        if error is None and self.script_errors:
            raise self.script_errors[0]

    def reset(self) -> None:
        """Forget what was recorded and scripted, for the next test."""
        self.script = default_script
        self.requests.clear()
        self.refusals.clear()
        self.script_errors.clear()

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until something that this server records is so.

        Raises:
            TimeoutError: it was not so in time.
        """
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST" or request.url.path != "/v1/chat/completions":
            await _error_response(404, f"there is no {request.method} {request.url.path}")(scope, receive, send)
            return
        chat, problem = _read(await request.body())
        self._arrived += 1
        chat.number = self._arrived
        self.requests.append(chat)
        self._count_open(1)
        client_left = asyncio.create_task(_until_disconnected(receive))
        try:
            reply = await self._wait_out(self._reply(chat, problem), client_left)
            chat.closed_by_client = client_left.done()
            if not client_left.done():
                await self._answer(chat, reply, scope, receive, send, client_left)
        finally:
            client_left.cancel()
            self._count_open(-1)

    def _count_open(self, change: int) -> None:
        self.open_requests += change
        self._changed.set()
        self._changed = asyncio.Event()

    def _reply(self, chat: ChatRequest, problem: str | None) -> Reply:
        problem = problem or (problem_of(chat.body) if self.is_strict else None)
        if problem is not None:
            self.refusals.append(problem)
            return Refuse(400, _error_body(400, problem))
        try:
            return self.script(chat)
        except Exception as error:
            self.script_errors.append(error)
            return Refuse(500, _error_body(500, f"the script raised {error!r}"))

    async def _wait_out(
        self, reply: Reply, client_left: asyncio.Task[None]
    ) -> Say | Call | Refuse | Cut | Trickle | Empty:
        while isinstance(reply, Hold):
            held = reply.until.wait() if isinstance(reply.until, asyncio.Event) else asyncio.sleep(reply.until)
            waits = [asyncio.ensure_future(held), asyncio.ensure_future(self._stopping.wait())]
            await asyncio.wait([*waits, client_left], return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            reply = Refuse(503) if self._stopping.is_set() else reply.then
        return reply

    async def _answer(
        self,
        chat: ChatRequest,
        reply: Say | Call | Refuse | Cut | Trickle | Empty,
        scope: Scope,
        receive: Receive,
        send: Send,
        client_left: asyncio.Task[None],
    ) -> None:
        match reply:
            case Refuse():
                await _refusal_response(reply)(scope, receive, send)
            case Cut(text=text):
                begun = self._events(chat, Say(text))[:-2] if chat.is_streamed else [self._completion(chat, Say(text))]
                await _send_cut(send, b"".join(begun), chat.is_streamed)
            case Trickle():
                begun = self._events(chat, Say(reply.text))[:-2]
                rest = self._events(chat, Say(reply.then))[1:]
                await self._send_in_two(send, b"".join(begun), reply.until, b"".join(rest), client_left)
                chat.closed_by_client = client_left.done()
            case Say() | Call() | Empty() if chat.is_streamed:
                events = b"".join(self._events(chat, reply))
                await Response(events, media_type="text/event-stream")(scope, receive, send)
            case Say() | Call() | Empty():
                completion = self._completion(chat, reply)
                await Response(completion, media_type="application/json")(scope, receive, send)
            case _:
                assert_never(reply)

    async def _send_in_two(
        self, send: Send, begun: bytes, until: asyncio.Event, rest: bytes, client_left: asyncio.Task[None]
    ) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": begun, "more_body": True})
        waits = [asyncio.ensure_future(until.wait()), asyncio.ensure_future(self._stopping.wait())]
        await asyncio.wait([*waits, client_left], return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await send({"type": "http.response.body", "body": rest, "more_body": False})

    def _completion(self, chat: ChatRequest, reply: Say | Call | Empty) -> bytes:
        choice = {"index": 0, "message": self._message(reply), "finish_reason": _finish_reason(reply)}
        return json.dumps(self._envelope(chat, "chat.completion", [choice], USAGE)).encode()

    def _events(self, chat: ChatRequest, reply: Say | Call | Empty) -> list[bytes]:
        """Return an answer as server-sent events; the last two are the finish mark with the usage, and the end."""
        deltas = [*_deltas(self._message(reply), self.piece), *_media(reply)]
        kind = "chat.completion.chunk"
        chunks = [self._envelope(chat, kind, [{"index": 0, "delta": d, "finish_reason": None}]) for d in deltas]
        finish = [{"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}]
        texts = [json.dumps(chunk) for chunk in chunks]
        finish_text = json.dumps(self._envelope(chat, kind, finish))
        if (chat.body.get("stream_options") or {}).get("include_usage"):
            finish_text += f"\n\ndata: {json.dumps(self._envelope(chat, kind, [], USAGE))}"
        return [f"data: {text}\n\n".encode() for text in (*texts, finish_text, "[DONE]")]

    def _envelope(self, chat: ChatRequest, kind: str, choices: list[Json], usage: Json | None = None) -> Json:
        known = {"id": f"chatcmpl-{chat.number}", "object": kind, "created": 1_700_000_000, "model": chat.model}
        return {**known, "choices": choices, **({} if usage is None else {"usage": usage})}

    def _message(self, reply: Say | Call | Empty) -> Json:
        match reply:
            case Say(text=text, reasoning=None):
                return {"role": "assistant", "content": text}
            case Say(text=text, reasoning=reasoning):
                return {"role": "assistant", "content": text, "reasoning_content": reasoning}
            case Call(calls=calls, text=text):
                return {"role": "assistant", "content": text, "tool_calls": [self._call(call) for call in calls]}
            case Empty():
                return {"role": "assistant", "content": None}
            case _:
                assert_never(reply)

    def _call(self, call: ToolCall) -> Json:
        self._minted += 1
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        return {
            "id": f"call_{self._minted}" if call.id == MINTED else call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }


def problem_of(body: Json) -> str | None:
    """Return what a provider would refuse a request for, or None."""
    return next(_problems(body), None)


def _problems(body: Json) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        yield f"the body cannot be written as JSON in UTF-8: {error}"
    if "tools" in body and not body["tools"]:
        yield "tools: must be left out or hold at least one"
    yield from _tool_problems(body.get("tools") or [])
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one is needed"
        return
    for place, message in enumerate(messages):
        yield from (f"messages[{place}]: {problem}" for problem in _message_problems(message))
    yield from _order_problems(messages)


def _tool_problems(tools: list[Json]) -> Iterator[str]:
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield f"tools: names must be unique: {names}"
    for place, tool in enumerate(tools):
        if not _TOOL_NAME.fullmatch(names[place]):
            yield f"tools[{place}].function.name: {names[place]!r} does not match ^[A-Za-z0-9_-]{{1,64}}$"
        if tool["function"].get("parameters", {"type": "object"}).get("type") != "object":
            yield f"tools[{place}].function.parameters: the schema must be of type object"


def _message_problems(message: Json) -> Iterator[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield f"{role!r} is not a role"
    if role == "assistant" and not content and not calls:
        yield "an assistant message needs content or tool_calls"
    if role != "assistant" and not isinstance(content, str | list):
        yield f"a message of the role {role} needs content"
    if calls is not None:
        yield from _call_problems(calls)


def _call_problems(calls: list[Json]) -> Iterator[str]:
    ids = [call.get("id") for call in calls]
    if not calls:
        yield "tool_calls must be left out or hold at least one"
    if not all(isinstance(call_id, str) and call_id for call_id in ids):
        yield f"every call needs an id: {ids}"
    if len(set(ids)) < len(ids):
        yield f"the ids of calls must be unique within a message: {ids}"
    for call in calls:
        function = call["function"]
        if not _TOOL_NAME.fullmatch(function["name"]):
            yield f"the called name {function['name']!r} does not match ^[A-Za-z0-9_-]{{1,64}}$"
        if not _is_json_object(function["arguments"]):
            yield f"the arguments of {function['name']} are not a JSON object: {function['arguments']!r}"


def _order_problems(messages: list[Json]) -> Iterator[str]:
    unanswered: set[str] = set()
    for place, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in unanswered:
                yield f"messages[{place}]: no call {call_id!r} precedes this result, or it already has one"
            unanswered.discard(str(call_id))
            continue
        if unanswered:
            yield f"messages[{place}]: calls without a result: {sorted(unanswered)}"
        unanswered = {str(call.get("id")) for call in message.get("tool_calls") or ()}


def _is_json_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text, parse_constant=_refuse_constant), dict)
    except ValueError:
        return False


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _read(raw: bytes) -> tuple[ChatRequest, str | None]:
    """Return a request and why it cannot be read, if it cannot."""
    arrived_at = asyncio.get_running_loop().time()
    try:
        body = json.loads(raw)
        tools = tuple(tool["function"]["name"] for tool in body.get("tools") or ())
        return ChatRequest(body["model"], body["messages"], tools, body, arrived_at), None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return ChatRequest("", [], (), {}, arrived_at), f"the request cannot be read: {error!r}"


def asked_of(text: str) -> str:
    """Return what a user's text asks: itself, or the `query`, `task` or `text` of a sub-agent's input."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    fields = value if isinstance(value, dict) else {}
    return next((fields[name] for name in ("query", "task", "text") if isinstance(fields.get(name), str)), text)


def _finish_reason(reply: Say | Call | Empty) -> str:
    return "stop" if isinstance(reply, Empty) else reply.finish_reason


def _deltas(message: Json, piece_length: int) -> Iterator[Json]:
    yield {"role": "assistant", "content": None if message.get("content") is None else ""}
    yield from ({"reasoning_content": piece} for piece in _pieces(message.get("reasoning_content"), piece_length))
    yield from ({"content": piece} for piece in _pieces(message.get("content"), piece_length))
    for index, call in enumerate(message.get("tool_calls", ())):
        head = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield {"tool_calls": [head]}
        for piece in _pieces(call["function"]["arguments"], piece_length):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _media(reply: Say | Call | Empty) -> Iterator[Json]:
    """Yield what OpenAI-compatible providers add to a text: pictures as OpenRouter sends them, citations as OpenAI."""
    if isinstance(reply, Say):
        for index, url in enumerate(reply.images):
            yield {"images": [{"type": "image_url", "index": index, "image_url": {"url": url}}]}
        for url in reply.cites:
            cited = {"url": url, "title": "a page", "start_index": 0, "end_index": 1}
            yield {"annotations": [{"type": "url_citation", "url_citation": cited}]}


def _pieces(text: str | None, length: int) -> list[str]:
    return [] if text is None else [text[start : start + length] for start in range(0, len(text), length)]


def _error_body(status: int, text: str) -> Json:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def _error_response(status: int, text: str) -> Response:
    return JSONResponse(_error_body(status, text), status)


def _refusal_response(refusal: Refuse) -> Response:
    if isinstance(refusal.body, str):
        return Response(refusal.body, refusal.status, refusal.headers)
    body = _error_body(refusal.status, "refused by the script") if refusal.body is None else refusal.body
    return JSONResponse(body, refusal.status, refusal.headers)


async def _send_cut(send: Send, begun: bytes, is_streamed: bool) -> None:
    """Send the beginning of an answer; that it is never completed makes uvicorn drop the connection."""
    kind = b"text/event-stream" if is_streamed else b"application/json"
    headers = [(b"content-type", kind)]
    if not is_streamed:
        headers.append((b"content-length", str(len(begun)).encode()))
        begun = begun[: len(begun) // 2]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": begun, "more_body": True})


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
