"""The transcript's format and the operations on it."""

from typing import Any

import pytest
from pydantic import ValidationError

from turnkeeper.messages import (
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolPartState,
    UIMessage,
    close_open_calls,
    last_assistant_text,
    merge_steps,
    settle_call,
    user_message,
)


def _assistant(*parts: Part, message_id: str = "turn-1") -> UIMessage:
    return UIMessage(id=message_id, role="assistant", parts=parts)


def _call(call_id: str, state: ToolPartState = "input-available", **more: Any) -> ToolPart:
    return ToolPart(type="tool-add", tool_call_id=call_id, state=state, **more)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "text", "text": "hi"}, TextPart),
        ({"type": "reasoning", "text": "hm"}, ReasoningPart),
        ({"type": "step-start"}, StepStartPart),
        ({"type": "file", "mediaType": "image/png", "url": "data:,x"}, FilePart),
        ({"type": "source-url", "sourceId": "1", "url": "https://x"}, SourceUrlPart),
        ({"type": "source-document", "sourceId": "1", "mediaType": "a/b", "title": "t"}, SourceDocumentPart),
        (
            {
                "type": "tool-add",
                "toolCallId": "c",
                "state": "input-available",
                "input": None,
                "providerExecuted": True,
            },
            ToolPart,
        ),
        ({"type": "data-chart", "data": None}, DataPart),
    ],
)
def test_a_part_is_told_by_its_type_and_comes_back_as_it_was(part: dict[str, Any], kind: type) -> None:
    """Every part of the AI SDK that we write can be read again, unchanged."""
    message = UIMessage.model_validate({"id": "m", "role": "assistant", "parts": [part]})
    assert type(message.parts[0]) is kind
    assert message.model_dump(mode="json", by_alias=True)["parts"] == [part]


@pytest.mark.parametrize("kind", ["", "tool", "tool-", "data", "data-", "texts", "dynamic"])
def test_a_part_of_an_unknown_type_is_refused(kind: str) -> None:
    """A type that no part has is an error, not a guess."""
    with pytest.raises(ValidationError):
        UIMessage.model_validate({"id": "m", "role": "user", "parts": [{"type": kind, "text": "x", "data": 1}]})


def test_a_tools_null_output_is_kept_in_the_json() -> None:
    """A tool that returned nothing has the output null, not no output."""
    part = _call("c", "output-available", input={}, output=None)
    assert part.model_dump(mode="json")["output"] is None
    assert "output" not in _call("c", "output-error", error_text="no").model_dump(mode="json")


def test_the_text_of_a_message_is_its_text_parts_joined_by_newlines() -> None:
    """RF-14: parts joined by a newline; other parts and empty ones do not count."""
    message = _assistant(TextPart(text="one"), ReasoningPart(text="hm"), TextPart(text=""), TextPart(text="two"))
    assert message.text == "one\ntwo"


def test_a_tool_part_knows_its_tool_by_name() -> None:
    """The name is what follows the first `tool-`, hyphens and all."""
    assert ToolPart(type="tool-tool-a-b", tool_call_id="c", state="input-available").tool_name == "tool-a-b"


@pytest.mark.parametrize(
    ("state", "is_settled"),
    [("input-streaming", False), ("input-available", False), ("output-available", True), ("output-error", True)],
)
def test_a_call_is_settled_once_it_has_an_output_or_an_error(state: ToolPartState, is_settled: bool) -> None:
    """A call is open until it has its result."""
    assert _call("c", state).is_settled is is_settled


def test_in_01_a_user_message_says_its_text_in_one_part() -> None:
    """IN-01: one user message with one text part."""
    message = user_message("m", "hi")
    assert (message.id, message.role, message.parts) == ("m", "user", (TextPart(text="hi"),))


def test_results_take_the_place_of_their_calls() -> None:
    """A call is replaced where it stands; everything else stays, and one that no result came for stays open."""
    message = _assistant(StepStartPart(), _call("a"), TextPart(text="and"), _call("b"))
    result = _call("b", "output-error", error_text="no")
    assert settle_call(message, result).parts == (StepStartPart(), _call("a"), TextPart(text="and"), result)


def test_a_settled_call_keeps_its_result_whatever_comes() -> None:
    """Only open calls are replaced."""
    message = _assistant(_call("a", "output-available", output=1))
    assert settle_call(message, _call("a", "output-error", error_text="no")) == message


def test_field_12_calls_left_open_are_closed_with_the_reason() -> None:
    """Only open calls get the error; a provider refuses a call without a result."""
    done = _call("a", "output-available", output=1)
    closed = close_open_calls(_assistant(done, _call("b", input={"x": 1})), "stopped")
    assert closed.parts == (done, _call("b", "output-error", input={"x": 1}, error_text="stopped"))


def test_the_steps_of_a_turn_are_joined_into_one_message() -> None:
    """Neighbours with one id are one message, parts in order."""
    merged = merge_steps(
        [user_message("u", "hi"), _assistant(TextPart(text="1")), _assistant(TextPart(text="2")), user_message("v", "")]
    )
    assert [message.id for message in merged] == ["u", "turn-1", "v"]
    assert merged[1].parts == (TextPart(text="1"), TextPart(text="2"))


def test_messages_that_are_no_neighbours_are_not_joined() -> None:
    """The order of a conversation is never changed."""
    messages = [user_message("a", "1"), user_message("b", "2"), user_message("a", "3")]
    assert merge_steps(messages) == messages


def test_rf_14_the_last_assistant_text_is_that_of_the_last_message_with_text() -> None:
    """RF-14 as decided: the last assistant message that has text; user messages do not count."""
    messages = [
        _assistant(TextPart(text="first")),
        _assistant(TextPart(text="last"), TextPart(text="words")),
        _assistant(_call("a")),
        user_message("u", "thanks"),
    ]
    assert last_assistant_text(messages) == "last\nwords"


def test_rf_15_without_any_text_the_last_assistant_text_is_empty() -> None:
    """RF-15: no text gives an empty summary."""
    assert last_assistant_text([user_message("u", "hi"), _assistant(StepStartPart())]) == ""


def test_a_message_cannot_be_changed() -> None:
    """What crosses an edge is frozen."""
    message = user_message("m", "hi")
    with pytest.raises(ValidationError):
        message.id = "n"  # type: ignore[misc]  # that is the point
