"""Runs as their dispatcher sees them: previews, failures, summaries, fingerprints."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from turnkeeper.runs import (
    MAX_ERROR_BYTES,
    AgentToolFailure,
    AgentToolResult,
    EndStatus,
    InterruptedReason,
    compact_json,
    default_summary,
    failure_of,
    generic_error,
    input_digest,
    input_preview,
    input_text,
    run_memo,
    shorten_error,
)


class Question(BaseModel):
    """An input as an author declares it."""

    query: str


class Opaque:
    """Something that has no JSON."""

    def __str__(self) -> str:
        """Return more than a preview holds."""
        return "opaque" * 100


def _ended(status: EndStatus, **more: Any) -> AgentToolResult:
    return AgentToolResult(run_id="r", agent_type="A", status=status, **more)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ({"query": "größe", "n": [1]}, '{\n  "query": "größe",\n  "n": [\n    1\n  ]\n}'),
        (None, "null"),
        (3, "3"),
    ],
)
def test_in_01_a_string_is_said_verbatim_and_anything_else_as_indented_json(value: JsonValue, text: str) -> None:
    """IN-01: string input verbatim, anything else pretty-printed with two spaces."""
    assert input_text(value) == text


def test_in_04_preview_of_a_string_is_its_first_500_characters() -> None:
    """IN-04."""
    assert input_preview("x" * 501) == "x" * 500
    assert input_preview("short") == "short"


def test_in_05_preview_of_null_is_null() -> None:
    """IN-05."""
    assert input_preview(None) is None


@pytest.mark.parametrize(
    ("value", "preview"),
    [
        ({"query": "ü"}, '{"query":"ü"}'),
        ([1, None], "[1,null]"),
        (7, "7"),
        (False, "false"),
        (Question(query="q"), '{"query":"q"}'),
    ],
)
def test_in_06_preview_of_anything_else_is_its_json(value: Any, preview: str) -> None:
    """IN-06."""
    assert input_preview(value) == preview


def test_in_06_preview_of_long_json_is_497_characters_and_three_dots() -> None:
    """IN-06: over 500 characters, the first 497 and `...`; exactly 500 are kept."""
    assert input_preview(["x" * 497]) == f'["{"x" * 495}...'
    assert input_preview(["x" * 496]) == f'["{"x" * 496}"]'


def test_in_06_preview_of_what_has_no_json_is_its_text_cut_to_500() -> None:
    """IN-06: unserialisable values are shown as text."""
    assert input_preview(Opaque()) == ("opaque" * 100)[:500]
    circular: list[Any] = []
    circular.append(circular)
    assert input_preview(circular) == "[[...]]"


def test_rf_03_an_interrupted_run_is_retryable_and_says_why() -> None:
    """RF-02, RF-03: reason and childStillRunning are copied."""
    result = _ended("interrupted", error="gave up", reason="no-progress", child_still_running=True)
    assert failure_of(result) == AgentToolFailure(
        status="interrupted", error="gave up", retryable=True, reason="no-progress", child_still_running=True
    )


def test_rf_04_a_failed_run_is_not_retryable_and_keeps_its_message() -> None:
    """RF-02, RF-04, RF-13: reason and childStillRunning are absent."""
    assert failure_of(_ended("error", error="boom")).model_dump(mode="json") == {
        "ok": False,
        "status": "error",
        "error": "boom",
        "retryable": False,
    }


def test_rf_05_an_aborted_run_is_not_retryable() -> None:
    """RF-05."""
    assert failure_of(_ended("aborted", error="stop")).retryable is False


@pytest.mark.parametrize("error", [None, ""])
@pytest.mark.parametrize("status", ["error", "aborted", "interrupted"])
def test_rf_06_a_failure_without_a_message_gets_a_sentence(status: EndStatus, error: str | None) -> None:
    """RF-06, RF-25: one sentence for each status, never empty."""
    failure = failure_of(_ended(status, error=error))
    assert failure.error == generic_error(failure.status)
    assert failure.error.endswith(".")


def test_rf_06_the_sentences_differ_by_status() -> None:
    """RF-06."""
    assert len({generic_error("error"), generic_error("aborted"), generic_error("interrupted")}) == 3


def test_a_completed_run_has_no_failure() -> None:
    """Asking for one is a mistake of the caller's."""
    with pytest.raises(ValueError, match="run r completed"):
        failure_of(_ended("completed"))


def test_rf_12_there_are_exactly_seven_interrupt_reasons() -> None:
    """RF-12."""
    assert get_args(InterruptedReason) == (
        "no-progress",
        "window-exceeded",
        "not-tailable",
        "inspect-timeout",
        "inspect-failed",
        "recovery-deadline",
        "budget-exceeded",
    )


@pytest.mark.parametrize("status", ["running", "starting", "cancelled"])
def test_a_result_has_an_end_status(status: str) -> None:
    """RF-01: a run that goes on has no result."""
    with pytest.raises(ValidationError):
        AgentToolResult.model_validate({"runId": "r", "agentType": "A", "status": status})


@pytest.mark.parametrize(
    ("text", "output", "summary"),
    [
        ("the text", {"a": 1}, "the text"),
        ("", "the output", "the output"),
        ("", {"a": 1, "ü": [None]}, '{"a":1,"ü":[null]}'),
        ("", None, ""),
        ("", "", ""),
        ("", 0, "0"),
        ("", False, "false"),
    ],
)
def test_rf_14_the_summary_is_the_text_else_the_output_else_nothing(text: str, output: JsonValue, summary: str) -> None:
    """RF-14, RF-15, RF-16, RF-17 as decided."""
    assert default_summary(text, output) == summary


def test_di_16_the_digest_tells_inputs_apart_but_not_the_order_of_keys() -> None:
    """DI-16: the same input is the same input, whoever wrote its JSON."""
    assert input_digest({"a": 1, "b": "x"}) == input_digest({"b": "x", "a": 1})
    values: list[JsonValue] = [None, "", {}, [], "null", 0, False, {"a": 1}, {"a": "1"}]
    assert len({input_digest(value) for value in values}) == len(values)


def test_di_16_the_digest_is_the_same_in_every_release() -> None:
    """DI-16: digests are kept in histories and memos."""
    assert input_digest({"query": "größe"}) == "ab21a90461e39923a15361c1ea109462"


def test_di_16_a_lone_surrogate_does_not_keep_an_input_from_having_a_digest() -> None:
    """DI-16: a fingerprint exists for every JSON value."""
    assert input_digest("\ud83d") != input_digest("?")


def test_di_16_a_runs_memo_names_its_agent_and_its_input() -> None:
    """DI-16: what is compared when the id is used again."""
    assert run_memo("A", 1) == {"agent_type": "A", "input_digest": input_digest(1)}


def test_a_short_error_text_is_kept_and_a_long_one_cut() -> None:
    """The text of an error travels in failures, which must stay small."""
    assert shorten_error("x" * MAX_ERROR_BYTES) == "x" * MAX_ERROR_BYTES
    shortened = shorten_error("x" * (MAX_ERROR_BYTES + 1))
    assert (len(shortened.encode()), shortened[-2:]) == (MAX_ERROR_BYTES, "x…")


@pytest.mark.parametrize("letter", ["é", "字", "🔎"])
def test_an_error_text_is_cut_by_its_bytes_and_between_letters(letter: str) -> None:
    """What must stay small is counted in bytes, and half a letter is none."""
    fits = letter * (MAX_ERROR_BYTES // len(letter.encode()))
    assert shorten_error(fits) == fits
    shortened = shorten_error(f"{fits}{letter}")
    assert MAX_ERROR_BYTES - len(letter.encode()) < len(shortened.encode()) <= MAX_ERROR_BYTES
    assert shortened.lstrip(letter) == "…"


def test_field_33_half_a_surrogate_pair_in_an_error_text_becomes_a_question_mark() -> None:
    """Field case 33: what a tool raises must be able to travel."""
    assert shorten_error("half: \ud83d") == "half: ?"
    assert shorten_error("\ud83d" * 5_000).encode().startswith(b"???")


def test_compact_json_has_no_spaces_and_keeps_letters() -> None:
    """RF-14: compact JSON."""
    assert compact_json({"ü": [1, None]}) == '{"ü":[1,null]}'
