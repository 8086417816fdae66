"""Models are called through litellm, over HTTP, once a call."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from model_server import Call, Cut, Empty, Hold, ModelServer, Refuse, Reply, Say, ToolCall, in_turn
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from activities.model_replies import ModelReply, ModelToolCall, ReplyBuilder
from activities.provider_messages import ProviderMessage
from turnkeeper.chunks import TextDelta, UIMessageChunk
from turnkeeper.dev_server import free_port
from turnkeeper.errors import MODEL_REFUSED, MODEL_UNAVAILABLE
from turnkeeper.messages import FilePart, SourceUrlPart, TextPart
from turnkeeper.models import CustomModelReply, CustomModelToolCall
from turnkeeper.runs import MAX_ERROR_BYTES
from turnkeeper.steps import Usage

if TYPE_CHECKING:
    from activities.litellm_client import LiteLLMClient

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL: dict[str, JsonValue] = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}},
}


class Echo:
    """A custom model that does what the last message says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[Mapping[str, Any]], list[Mapping[str, Any]]]] = []

    async def complete(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> CustomModelReply:
        """Answer."""
        self.asked.append((model, list(messages), list(tools)))
        match messages[-1]["content"]:
            case "call":
                return CustomModelReply(tool_calls=(CustomModelToolCall(name="add", arguments={"a": 1}),) * 2)
            case "fail":
                raise ValueError("out of ideas")
            case text:
                return CustomModelReply(text=f"you said: {text}")


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[ModelServer]:
    """A provider of this module's own."""
    async with ModelServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _afresh(server: ModelServer) -> None:
    server.reset()


@pytest.fixture(scope="module")
def echo() -> Echo:
    """The custom model behind the provider `echo`."""
    return Echo()


@pytest.fixture(scope="module")
def client(echo: Echo) -> "LiteLLMClient":
    """The real client."""
    from activities.litellm_client import LiteLLMClient  # takes seconds, which collecting the tests should not

    return LiteLLMClient({"echo": echo})


async def _ask(
    client: "LiteLLMClient", server: ModelServer, reply: Reply, *tools: Mapping[str, JsonValue], **options: Any
) -> ModelReply:
    """Have one call answered by `reply`."""
    server.script = in_turn(reply)
    options = {"api_base": server.url, "api_key": "test", **options}
    return await _whole(client, "openai/small", MESSAGES, tools, options)


async def _whole(
    client: "LiteLLMClient",
    model: str,
    messages: Sequence[ProviderMessage],
    tools: Sequence[Mapping[str, JsonValue]],
    options: Mapping[str, Any],
) -> ModelReply:
    """Have one call answered, and return the whole answer."""
    builder = ReplyBuilder(0, lambda chunk: None)
    async for delta in client.stream(model, messages, tools, options):
        builder.add(delta)
    return builder.finish()


async def _fail(client: "LiteLLMClient", server: ModelServer, reply: Reply, **options: Any) -> ApplicationError:
    """Have one call fail by `reply`, at the first request."""
    with pytest.raises(ApplicationError) as raised:
        await _ask(client, server, reply, **options)
    assert len(server.requests) == 1
    return raised.value


async def test_an_answer_has_its_text_usage_and_model(client: "LiteLLMClient", server: ModelServer) -> None:
    """One call is one request."""
    reply = await _ask(client, server, Say("hello"))
    assert reply == ModelReply(
        items=(TextPart(text="hello"),),
        usage=Usage(input_tokens=11, output_tokens=7),
        finish_reason="stop",
        model="small",
    )
    assert len(server.requests) == 1


async def test_what_is_asked_arrives_as_it_is(client: "LiteLLMClient", server: ModelServer) -> None:
    """Model, messages, tools and options reach the provider."""
    await _ask(client, server, Say("hello"), TOOL, temperature=0.5)
    [request] = server.requests
    assert (request.model, request.messages, request.body["tools"]) == ("small", MESSAGES, [TOOL])
    assert request.body["temperature"] == 0.5
    assert request.is_streamed is True


async def test_without_tools_none_are_sent(client: "LiteLLMClient", server: ModelServer) -> None:
    """Providers refuse an empty list."""
    await _ask(client, server, Say("hello"))
    assert "tools" not in server.requests[0].body
    assert server.refusals == []


async def test_calls_come_with_ids_names_and_arguments(client: "LiteLLMClient", server: ModelServer) -> None:
    """Parallel calls keep their order; text beside them is kept."""
    reply = await _ask(
        client, server, Call(ToolCall("add", {"a": 1}, id="x"), ToolCall("now", id="y"), text="hm"), TOOL
    )
    assert reply.text == "hm"
    assert reply.tool_calls == (
        ModelToolCall(id="x", name="add", arguments='{"a": 1}'),
        ModelToolCall(id="y", name="now", arguments="{}"),
    )


@pytest.mark.parametrize("arguments", ["", "null", "[]", '{"cut', '"{}"'])
async def test_field_12_odd_arguments_are_passed_on_as_they_came(
    client: "LiteLLMClient", server: ModelServer, arguments: str
) -> None:
    """Field case 12: judging them is the model step's business."""
    reply = await _ask(client, server, Call(ToolCall("add", arguments)), TOOL)
    assert [call.arguments for call in reply.tool_calls] == [arguments]


async def test_field_13_a_call_without_an_id_is_not_lost(client: "LiteLLMClient", server: ModelServer) -> None:
    """Field case 13: no id and an empty id are two calls."""
    reply = await _ask(client, server, Call(ToolCall("add", id=None), ToolCall("now", id="")), TOOL)
    assert [call.name for call in reply.tool_calls] == ["add", "now"]


async def test_field_19_an_empty_answer_is_passed_on_as_empty(client: "LiteLLMClient", server: ModelServer) -> None:
    """Field case 19: null content is no text, and reasoning is not taken for it."""
    assert (await _ask(client, server, Empty())).text == ""
    reply = await _ask(client, server, Say("", reasoning="hm"))
    assert (reply.text, reply.reasoning) == ("", "hm")


async def test_an_answer_that_was_cut_off_by_its_length_says_so(client: "LiteLLMClient", server: ModelServer) -> None:
    """Its calls may be incomplete."""
    reply = await _ask(client, server, Call(ToolCall("add", '{"a": '), finish_reason="length"), TOOL)
    assert reply.is_cut_off
    assert not (await _ask(client, server, Say("hello"))).is_cut_off


async def test_field_33_half_a_surrogate_pair_in_an_answer_is_mended(
    client: "LiteLLMClient", server: ModelServer
) -> None:
    """Field case 33: what cannot be written as JSON would fail the step at every attempt."""
    made = ToolCall("add\ud83d", '{"text": "\ud83d 😀"}', id="x\ude00")
    reply = await _ask(client, server, Call(made, text="half: \ud83d"), TOOL)
    assert reply.text == "half: ?"
    assert reply.tool_calls == (ModelToolCall(id="x?", name="add?", arguments='{"text": "? 😀"}'),)
    assert (await _ask(client, server, Say("hi", reasoning="\ud83d"))).reasoning == "?"
    reply.model_dump_json().encode()


@pytest.mark.parametrize(
    ("hint", "wait"),
    [
        ("2", timedelta(seconds=2)),
        ("0.5", timedelta(seconds=0.5)),
        ("-1", None),
        ("0", None),
        ("junk", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None),
        ("100000", timedelta(minutes=5)),
    ],
)
async def test_field_17_a_hint_how_long_to_wait_is_honoured_where_it_makes_sense(
    client: "LiteLLMClient", server: ModelServer, hint: str, wait: timedelta | None
) -> None:
    """Field case 17: valid hints are kept, invalid ones left to our own backoff, huge ones capped."""
    error = await _fail(client, server, Refuse(429, headers={"retry-after": hint}))
    assert (error.type, error.non_retryable, error.next_retry_delay) == (MODEL_UNAVAILABLE, False, wait)


async def test_field_17_a_hint_that_is_a_date_is_never_shortened(client: "LiteLLMClient", server: ModelServer) -> None:
    """Field case 17: the next attempt comes no earlier than asked."""
    asked = (datetime.now(UTC) + timedelta(seconds=60)).replace(microsecond=0)
    error = await _fail(client, server, Refuse(429, headers={"retry-after": format_datetime(asked, usegmt=True)}))
    assert error.next_retry_delay is not None
    assert asked <= datetime.now(UTC) + error.next_retry_delay < asked + timedelta(seconds=30)


async def test_field_17_without_a_hint_our_own_backoff_counts(client: "LiteLLMClient", server: ModelServer) -> None:
    """Field case 17: 429 without a header."""
    error = await _fail(client, server, Refuse(429))
    assert (error.non_retryable, error.next_retry_delay) == (False, None)


async def test_field_17_an_overloaded_provider_may_name_a_time_too(
    client: "LiteLLMClient", server: ModelServer
) -> None:
    """Field case 17: 503 with a header."""
    assert (await _fail(client, server, Refuse(503, headers={"retry-after": "2"}))).next_retry_delay == timedelta(
        seconds=2
    )


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_field_17_what_may_pass_is_retryable_after_one_request(
    client: "LiteLLMClient", server: ModelServer, status: int
) -> None:
    """Field case 17: litellm never retries by itself; Temporal alone does."""
    error = await _fail(client, server, Refuse(status))
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
async def test_field_17_what_will_not_pass_is_final_after_one_request(
    client: "LiteLLMClient", server: ModelServer, status: int
) -> None:
    """Field case 17: 401 is one request, and the text names the model and the provider's words."""
    error = await _fail(client, server, Refuse(status))
    assert (error.type, error.non_retryable) == (MODEL_REFUSED, True)
    assert "openai/small" in error.message
    assert "refused by the script" in error.message


async def test_a_long_failure_is_cut(client: "LiteLLMClient", server: ModelServer) -> None:
    """A provider's error page does not fill a history."""
    body = {"error": {"message": "x" * 50_000, "type": "invalid_request_error"}}
    message = (await _fail(client, server, Refuse(400, body))).message
    assert (len(message.encode()), message[-2:]) == (MAX_ERROR_BYTES, "x…")


async def test_field_19_a_dropped_connection_is_retryable_after_one_request(
    client: "LiteLLMClient", server: ModelServer
) -> None:
    """Field case 19: an answer that was cut is a failed attempt."""
    error = await _fail(client, server, Cut("half of"))
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)


async def test_a_provider_that_is_not_there_is_retryable(client: "LiteLLMClient", server: ModelServer) -> None:
    """Nothing listens on the port."""
    with pytest.raises(ApplicationError) as raised:
        await _ask(client, server, Say("never"), api_base=f"http://127.0.0.1:{free_port()}/v1")
    assert (raised.value.type, raised.value.non_retryable) == (MODEL_UNAVAILABLE, False)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>maintenance</html>",
        {"error": {"message": "overloaded", "code": 529}},
        {"id": "x", "object": "chat.completion", "created": 1, "model": "small", "choices": []},
    ],
)
async def test_field_19_an_answer_that_is_none_is_an_empty_one(
    client: "LiteLLMClient", server: ModelServer, body: dict[str, Any] | str
) -> None:
    """Field case 19: HTTP 200 with nothing, a web page, an error or no choices in it; a model step tries that again."""
    reply = await _ask(client, server, Refuse(200, body))
    assert (reply.text, reply.tool_calls) == ("", ())


@pytest.mark.parametrize("arguments", ["[" * 100_000, f'{{"a": {"9" * 5_000}}}'], ids=["brackets", "digits"])
async def test_field_12_arguments_that_no_parser_takes_are_passed_on(
    client: "LiteLLMClient", server: ModelServer, arguments: str
) -> None:
    """Field case 12: the model step, which knows the tool, tells the model what is wrong with them."""
    reply = await _ask(client, server, Call(ToolCall("add", arguments)))
    assert [call.arguments for call in reply.tool_calls] == [arguments]


async def test_an_error_in_mid_stream_is_a_failed_attempt_in_its_own_words(
    client: "LiteLLMClient", server: ModelServer
) -> None:
    """Field case 18: a stream that began with 200 and ends in an error event."""
    event = 'data: {"error": {"message": "overloaded"}}\n\n'
    error = await _fail(client, server, Refuse(200, event, {"content-type": "text/event-stream"}))
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert error.message.count("overloaded") == 1


async def test_pieces_come_while_the_model_still_writes(client: "LiteLLMClient", server: ModelServer) -> None:
    """Design 5: text, reasoning and the input of calls are shown as they come, each part begun and ended once."""
    shown: list[UIMessageChunk] = []
    builder = ReplyBuilder(3, shown.append)
    for reply in (Say("hello there, you", reasoning="hm"), Call(ToolCall("add", {"left": 1}, id="c"))):
        server.script = in_turn(reply)
        options = {"api_base": server.url, "api_key": "test"}
        async for delta in client.stream("openai/small", MESSAGES, [TOOL], options):
            builder.add(delta)
    builder.finish()
    assert [chunk.type for chunk in shown] == [
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-delta",
    ]
    assert "".join(chunk.delta for chunk in shown if isinstance(chunk, TextDelta)) == "hello there, you"


async def test_a_time_out_is_retryable_and_closes_the_connection(client: "LiteLLMClient", server: ModelServer) -> None:
    """The agent's own `timeout` option counts, and the provider need not go on."""
    error = await _fail(client, server, Hold(asyncio.Event(), Say("never")), timeout=0.2)
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)
    await server.until(lambda: server.requests[0].closed_by_client is True)


async def test_a_cancelled_call_closes_its_connection(client: "LiteLLMClient", server: ModelServer) -> None:
    """CX: a provider that nobody listens to any more stops writing."""
    asking = asyncio.create_task(_ask(client, server, Hold(asyncio.Event(), Say("never"))))
    await server.until(lambda: server.open_requests == 1)
    asking.cancel()
    await server.until(lambda: server.requests[0].closed_by_client is True)
    assert (await asyncio.gather(asking, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_calls_that_overlap_are_answered_each_for_itself(client: "LiteLLMClient", server: ModelServer) -> None:
    """A fan-out of agents asks many questions at once."""
    server.script = lambda request: Say(request.last_text)
    options = {"api_base": server.url, "api_key": "test"}
    asked = [[{"role": "user", "content": str(number)}] for number in range(20)]
    replies = await asyncio.gather(*(_whole(client, "openai/small", messages, [], options) for messages in asked))
    assert [reply.text for reply in replies] == [str(number) for number in range(20)]


async def test_a_model_without_a_known_provider_is_final(client: "LiteLLMClient", server: ModelServer) -> None:
    """The text says what is wrong with the name."""
    with pytest.raises(ApplicationError, match="nobody/small") as raised:
        await _whole(client, "nobody/small", MESSAGES, [], {})
    assert raised.value.non_retryable


async def test_a_custom_model_answers_for_its_provider(
    client: "LiteLLMClient", echo: Echo, server: ModelServer
) -> None:
    """It sees its own name, the conversation and the tools, once, and no HTTP is spoken."""
    echo.asked.clear()
    reply = await _whole(client, "echo/any", MESSAGES, [TOOL], {})
    assert (reply.text, reply.tool_calls) == ("you said: hi", ())
    assert echo.asked == [("any", MESSAGES, [TOOL])]
    assert server.requests == []


async def test_a_custom_model_calls_tools(client: "LiteLLMClient") -> None:
    """Its calls get ids of their own; without tools it is told so."""
    reply = await _whole(client, "echo/any", [{"role": "user", "content": "call"}], [], {})
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("add", '{"a":1}')] * 2
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.text == ""


async def test_a_custom_model_that_raises_is_asked_once_and_quoted(client: "LiteLLMClient", echo: Echo) -> None:
    """An author's bug is final: the text has the type and the words of what was raised, and no traceback."""
    echo.asked.clear()
    with pytest.raises(ApplicationError, match="ValueError: out of ideas") as raised:
        await _whole(client, "echo/any", [{"role": "user", "content": "fail"}], [], {})
    assert len(echo.asked) == 1
    assert (raised.value.type, raised.value.non_retryable) == (MODEL_REFUSED, True)
    assert "Traceback" not in raised.value.message
    assert ".py" not in raised.value.message


async def test_pictures_and_cited_pages_come_with_the_text(client: "LiteLLMClient", server: ModelServer) -> None:
    """Issue B, item 2: as litellm maps what providers send; a picture without its own type is an image."""
    picture, page = "data:image/png;base64,iVBORw0KGgo=", "https://a.example/page"
    reply = await _ask(client, server, Say("see", images=(picture, "https://a.example/i.png"), cites=(page,)))
    assert [item for item in reply.items if isinstance(item, FilePart | SourceUrlPart)] == [
        FilePart(url=picture, media_type="image/png"),
        FilePart(url="https://a.example/i.png", media_type="image/*"),
        SourceUrlPart(source_id=page, url=page, title="a page"),
    ]
    assert reply.text == "see"


async def test_a_picture_alone_is_an_answer(client: "LiteLLMClient", server: ModelServer) -> None:
    """It is not taken for an empty one."""
    reply = await _ask(client, server, Say("", images=("data:image/png;base64,iVBORw0KGgo=",)))
    assert not reply.is_empty
