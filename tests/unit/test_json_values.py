"""The border for JSON that authors, models and users bring."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue

from turnkeeper.dispatches import AgentProfile
from turnkeeper.json_values import MAX_DEPTH, clean_json, clean_text, refuse_non_finite
from turnkeeper.messages import ToolPart, UIMessage
from turnkeeper.turns import LoopState, MessagesPage, TranscriptRef, TurnInput

NAN = float("nan")


def _nested(depth: int, innermost: JsonValue = None) -> JsonValue:
    """Return lists and objects in turn, `depth` levels of them."""
    value = innermost
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("value", [None, True, 0, -7, 1.5, "", "größe 😀", [], {}, {"a": [None, {"b": False}]}])
def test_proper_json_passes_as_it_is(value: JsonValue) -> None:
    """Nothing that can be read again is changed; types are kept, so true does not become 1."""
    passed = clean_json(value)
    assert (passed, type(passed)) == (value, type(value))


def test_a_tuple_passes_as_a_list() -> None:
    """That is what it is in JSON."""
    assert clean_json(({"a": (1,)},)) == [{"a": [1]}]


def test_field_33_halves_of_surrogate_pairs_become_question_marks_in_values_and_keys() -> None:
    """Field case 33: broken text is repaired where it comes in, and whole emoji stay."""
    assert clean_json({"\ud83d": ["\ude00 and 😀"]}) == {"?": ["? and 😀"]}


def test_field_33_a_text_is_repaired_and_none_is_empty() -> None:
    """Field case 33: providers leave texts out."""
    assert (clean_text("half: \ud83d 😀"), clean_text(None), clean_text("")) == ("half: ? 😀", "", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NAN, "the value is nan"),
        ({"a": [0, float("inf")]}, r"the value\.a\[1\] is inf"),
        ([[-float("inf")]], r"the value\[0\]\[0\] is -inf"),
    ],
)
def test_field_33_a_number_that_is_not_finite_is_refused_by_its_place(value: Any, text: str) -> None:
    """Field case 33: never a silent null; the author learns where it is."""
    with pytest.raises(ValueError, match=f"^{text}, which JSON has no number for"):
        clean_json(value)
    with pytest.raises(ValueError, match=f"^{text}"):
        refuse_non_finite(value)


@pytest.mark.parametrize("value", [(NAN,), {NAN}, frozenset([NAN]), {"a": ({"b": NAN},)}])
def test_field_33_a_number_is_found_in_what_python_has_besides(value: Any) -> None:
    """Field case 33: sets and tuples are lists in JSON."""
    with pytest.raises(ValueError, match="nan"):
        refuse_non_finite(value)


def test_what_has_no_numbers_is_not_refused_for_them() -> None:
    """Whether it is JSON at all is another question."""
    refuse_non_finite({"a": [1, 1.5, "nan", None, object(), b"x"]})


def test_field_33_an_integer_that_no_parser_reads_is_refused() -> None:
    """Field case 33: Python and pydantic read 4,300 digits at most, and what is written must be read again."""
    assert clean_json(10**4_000) == 10**4_000
    with pytest.raises(ValueError, match=r"^the value\.a"):
        clean_json({"a": 10**5_000})


def test_field_33_the_text_of_an_error_can_travel_too() -> None:
    """Field case 33: a broken key is repaired where it is quoted."""
    with pytest.raises(ValueError, match="nan") as raised:
        clean_json({"\ud83d": NAN})
    str(raised.value).encode()


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, {"a": object()}])
def test_what_is_no_json_is_refused_by_its_type(value: Any) -> None:
    """Nothing is turned into text unasked."""
    with pytest.raises(ValueError, match="is of type"):
        clean_json(value)


def test_a_value_may_be_nested_up_to_the_limit() -> None:
    """One level more is refused, however many more there are."""
    assert clean_json(_nested(MAX_DEPTH)) == _nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 900):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            clean_json(_nested(depth))


def test_what_passes_can_be_read_wherever_it_is_kept() -> None:
    """The deepest value that passes is read from a page and from the state of a turn that continues as new."""
    part = ToolPart(type="tool-t", tool_call_id="c", state="output-available", output=clean_json(_nested(MAX_DEPTH, 1)))
    message = UIMessage(id="m", role="assistant", parts=(part,))
    page = MessagesPage(messages=(message,), total=1)
    assert MessagesPage.model_validate_json(page.model_dump_json()) == page
    turn = TurnInput(
        instance="t/A/n",
        turn_id="1",
        profile=AgentProfile(agent_type="A"),
        transcript=TranscriptRef(workflow_id="t/A/n", first_temporal_run_id="f", length=1),
        state=LoopState(messages=(message,), started_at=datetime(2026, 1, 2, tzinfo=UTC)),
    )
    assert TurnInput.model_validate_json(turn.model_dump_json()) == turn
