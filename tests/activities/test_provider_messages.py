"""The transcript as providers take it."""

from typing import Any

import pytest
from model_server import problem_of
from pydantic import BaseModel, JsonValue

from activities.provider_messages import ProviderMessage, provider_messages, provider_tools
from turnkeeper.agents import Agent
from turnkeeper.messages import (
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
    UIMessage,
    user_message,
)
from turnkeeper.tools import agent_tool, tool


class Question(BaseModel):
    """An agent tool's input."""

    query: str


class Both(Agent):
    """An agent with both kinds of tools."""

    @tool
    async def add(self, a: int) -> int:
        """Add."""
        return a

    ask = agent_tool("Both", description="Ask yourself.", input=Question)


def _assistant(*parts: Part) -> UIMessage:
    return UIMessage(id="turn-1", role="assistant", parts=parts)


def _user(*parts: Part) -> UIMessage:
    return UIMessage(id="u", role="user", parts=parts)


def _done(call_id: str, output: JsonValue, value: JsonValue = None, name: str = "add") -> ToolPart:
    return ToolPart(type=f"tool-{name}", tool_call_id=call_id, state="output-available", input=value, output=output)


def _converted(*messages: UIMessage) -> list[ProviderMessage]:
    """Return the messages for a provider, which a strict one accepts after a user's."""
    converted = provider_messages("", messages)
    opening = {"role": "user", "content": "hi"}
    assert problem_of({"messages": [opening, *converted]}) is None
    return converted


def _call(call_id: str, arguments: str = "{}", name: str = "add") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_instructions_are_the_system_prompt() -> None:
    """They come first, and are left out where there are none."""
    messages = [user_message("m", "hi")]
    said = {"role": "user", "content": "hi"}
    assert provider_messages("Be brief.", messages) == [{"role": "system", "content": "Be brief."}, said]
    assert provider_messages("", messages) == [said]


def test_a_turn_is_split_into_its_steps_each_with_its_results() -> None:
    """A provider wants results right after their calls, and then the next step."""
    turn = _assistant(
        StepStartPart(),
        TextPart(text="Let me see."),
        _done("a", 1, {"x": 1}),
        _done("b", "two", {}),
        StepStartPart(),
        _done("c", None),
        StepStartPart(),
        TextPart(text="Done."),
    )
    assert _converted(turn) == [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [_call("a", '{"x":1}'), _call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "assistant", "content": None, "tool_calls": [_call("c")]},
        {"role": "tool", "tool_call_id": "c", "content": "null"},
        {"role": "assistant", "content": "Done."},
    ]


def test_steps_that_are_messages_of_their_own_give_the_same() -> None:
    """A turn that goes on holds one message a step; a finished one holds them joined."""
    first, second = (StepStartPart(), _done("a", 1)), (StepStartPart(), TextPart(text="Done."))
    assert _converted(_assistant(*first), _assistant(*second)) == _converted(_assistant(*first, *second))


def test_messages_keep_their_order() -> None:
    """User and assistant take turns as they did."""
    converted = _converted(_user(TextPart(text="1")), _assistant(TextPart(text="2")), _user(TextPart(text="3")))
    assert [(message["role"], message["content"]) for message in converted] == [
        ("user", "1"),
        ("assistant", "2"),
        ("user", "3"),
    ]


def test_a_systems_message_keeps_its_role() -> None:
    """A transcript may hold one."""
    message = UIMessage(id="s", role="system", parts=(TextPart(text="Be kind."),))
    assert _converted(message) == [{"role": "system", "content": "Be kind."}]


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (StepStartPart(),),
        (StepStartPart(), TextPart(text="")),
        (StepStartPart(), TextPart(text=" \n\t"), TextPart(text="\u00a0")),
        (StepStartPart(), ReasoningPart(text="hm")),
        (StepStartPart(), StepStartPart(), DataPart(type="data-chart", data=1)),
        (StepStartPart(), SourceUrlPart(source_id="1", url="https://x")),
    ],
)
def test_field_19_an_assistant_message_without_anything_to_say_is_left_out(parts: tuple[Part, ...]) -> None:
    """Field case 19: no empty assistant message goes to the provider."""
    assert _converted(_assistant(*parts)) == []


def test_field_19_white_space_beside_a_call_or_a_text_is_left_out() -> None:
    """Field case 19: providers refuse blank text beside a call; what has letters keeps its white space."""
    [call, _] = _converted(_assistant(TextPart(text="\n\n"), _done("a", 1)))
    assert call == {"role": "assistant", "content": None, "tool_calls": [_call("a")]}
    [said] = _converted(_assistant(TextPart(text=" "), TextPart(text=" so \n")))
    assert said["content"] == " so \n"


def test_what_only_people_see_is_not_sent() -> None:
    """Reasoning, sources and data of an application are no part of the conversation."""
    step = (
        ReasoningPart(text="hm"),
        SourceUrlPart(source_id="1", url="https://x"),
        DataPart(type="data-chart", data=1),
        TextPart(text="one"),
        TextPart(text=""),
        TextPart(text="two"),
    )
    assert _converted(_assistant(*step)) == [{"role": "assistant", "content": "one\ntwo"}]


@pytest.mark.parametrize("value", ['{"cut', '{"a": 1}', "", None, [], ["a"], 7, True])
def test_field_12_an_input_that_is_no_object_is_sent_back_as_an_empty_one(value: JsonValue) -> None:
    """Field case 12: what goes back to the provider is always a JSON object."""
    [call, _] = _converted(_assistant(_done("a", 1, value)))
    assert call["tool_calls"] == [_call("a", "{}")]


def test_field_12_an_input_that_is_an_object_is_sent_back_as_it_was() -> None:
    """Field case 12: nulls, other alphabets and nested values too."""
    [call, _] = _converted(_assistant(_done("a", 1, {"größe": None, "b": [{"c": 1.5}]})))
    assert call["tool_calls"] == [_call("a", '{"größe":null,"b":[{"c":1.5}]}')]


@pytest.mark.parametrize(
    ("output", "content"),
    [("as it is", "as it is"), ("", ""), ({"ü": [None]}, '{"ü":[null]}'), (None, "null"), (0, "0"), (False, "false")],
)
def test_an_output_is_sent_as_text(output: JsonValue, content: str) -> None:
    """Text verbatim, anything else as compact JSON."""
    [_, result] = _converted(_assistant(_done("a", output)))
    assert result == {"role": "tool", "tool_call_id": "a", "content": content}


def test_an_error_is_sent_as_its_text() -> None:
    """The model reads what went wrong."""
    failed = ToolPart(type="tool-add", tool_call_id="a", state="output-error", error_text="no such file")
    [_, result] = _converted(_assistant(failed))
    assert result["content"] == "no such file"


def test_field_12_a_call_without_a_result_gets_one() -> None:
    """Field case 12: a provider refuses a call that was never answered."""
    open_call = ToolPart(type="tool-add", tool_call_id="a", state="input-available", input={})
    [_, result] = _converted(_assistant(open_call))
    assert result == {"role": "tool", "tool_call_id": "a", "content": "The call has no result."}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("get weather", "get_weather"),
        ("weather.now", "weather_now"),
        ("погода", "______"),
        ("a\n", "a_"),
        ("A-b_9", "A-b_9"),
        ("w" * 90, "w" * 64),
        ("п" * 90, "_" * 64),
    ],
)
def test_field_14_a_made_up_name_is_sent_back_as_one_that_providers_accept(name: str, sent: str) -> None:
    """Field case 14: the model called what does not exist; the turn goes on, and so does every later one."""
    made_up = ToolPart(
        type=f"tool-{name}", tool_call_id="a", state="output-error", input={}, error_text="There is no such tool."
    )
    [call, result] = _converted(_assistant(made_up))
    assert (call["tool_calls"], result["tool_call_id"]) == ([_call("a", name=sent)], "a")


def test_an_image_is_sent_as_an_image() -> None:
    """By its address, after the text."""
    content = _converted(_user(FilePart(media_type="image/png", url="data:image/png;base64,x"), TextPart(text="What?")))
    assert content[0]["content"] == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}},
    ]


def test_a_file_is_sent_as_a_file_with_a_name() -> None:
    """Its own name, or one that stands in for it."""
    pdf = FilePart(media_type="application/pdf", url="data:application/pdf;base64,x", filename="a.pdf")
    text = FilePart(media_type="text/plain", url="data:text/plain,x")
    assert _converted(_user(pdf, text))[0]["content"] == [
        {"type": "file", "file": {"file_data": pdf.url, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": text.url, "filename": "file"}},
    ]


def test_in_10_tools_are_sent_as_function_declarations() -> None:
    """IN-10: name, description and JSON schema of both kinds of tools, which a strict provider accepts."""
    tools = provider_tools(list(Both.tools.values()))
    assert problem_of({"messages": [{"role": "user", "content": "hi"}], "tools": tools}) is None
    assert tools == [
        {
            "type": "function",
            "function": {"name": found.name, "description": found.description, "parameters": found.parameters},
        }
        for found in (Both.tools["add"], Both.tools["ask"])
    ]


def test_a_file_of_the_assistants_own_is_named() -> None:
    """Providers take none from an assistant, and an answer that is one file must not vanish."""
    picture = FilePart(url="data:image/png;base64,iVBORw0KGgo=", media_type="image/png")
    assert _converted(_assistant(picture)) == [{"role": "assistant", "content": "(image/png)"}]
    assert _converted(_assistant(TextPart(text="see"), picture))[0]["content"] == "see\n(image/png)"
