"""Results that are too long for a model are shortened, and stay JSON."""

import json

import pytest
from pydantic import JsonValue

from activities.large_values import LARGEST_SHOWN, shown_result
from activities.provider_messages import provider_messages
from turnkeeper.messages import StepStartPart, ToolPart, UIMessage

DEEP: JsonValue = "x" * 1_000
for _ in range(40):
    DEEP = [DEEP, DEEP] if len(json.dumps(DEEP)) < 100_000 else [DEEP]

LARGE: dict[str, JsonValue] = {
    "a text": "word " * 100_000,
    "a list": [{"number": number, "text": "y" * 100} for number in range(5_000)],
    "an object": {f"key {number}": "z" * 100 for number in range(5_000)},
    "nested": DEEP,
    "emoji": "🙂" * 100_000,
    "JSON as text": json.dumps([{"number": number, "text": "y" * 100} for number in range(5_000)]),
    "many long keys": {"k" * 1_000 + str(number): 1 for number in range(300)},
}


@pytest.mark.parametrize("case", LARGE)
def test_field_04_a_large_result_is_shortened_and_still_parsable(case: str) -> None:
    """Field case 4: with a marker that says how long it was and where the whole of it is."""
    text = shown_result(LARGE[case], "call-1")
    shown = json.loads(text)
    assert len(text) <= LARGEST_SHOWN
    assert shown["note"]["shortened"] is True
    assert "call-1" in shown["note"]["whole"]
    assert shown["note"]["characters"] > LARGEST_SHOWN
    text.encode()  # No half of a character is left.


@pytest.mark.parametrize("value", ["", "short", 1, None, {"a": [1, "b"]}, "x" * LARGEST_SHOWN])
def test_a_result_that_is_not_large_is_shown_as_it_is(value: JsonValue) -> None:
    """Nothing is added to it."""
    text = shown_result(value, "call-1")
    assert text == value if isinstance(value, str) else json.loads(text) == value


def test_text_that_only_looks_like_json_is_cut_as_text() -> None:
    """Field case 4: nothing is lost by it but its end."""
    shown = json.loads(shown_result("{" + "x" * 200_000, "c"))
    assert shown["value"].startswith("{xxx")
    assert "more characters" in shown["value"]


def test_field_04_the_model_is_shown_the_short_view_and_the_transcript_keeps_the_whole() -> None:
    """Field case 4: it is shortened on its way to the provider only."""
    output = {"rows": ["r" * 100] * 5_000}
    call = ToolPart(type="tool-t", tool_call_id="c", state="output-available", input={}, output=output)
    message = UIMessage(id="m", role="assistant", parts=(StepStartPart(), call))
    (_, result) = provider_messages("", [message])
    assert len(result["content"]) <= LARGEST_SHOWN
    assert json.loads(result["content"])["value"]["rows"][0] == "r" * 100
    assert message.tool_parts[0].output == output
