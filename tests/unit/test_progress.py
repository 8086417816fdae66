"""What a report of progress may hold, and how it looks on the wire."""

import json
import logging
import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from pydantic import JsonValue, TypeAdapter

from turnkeeper.chunks import UIMessageChunk
from turnkeeper.progress import (
    MAX_REPORT_BYTES,
    ReportFields,
    checked_report,
    milestone_chunk,
    progress_chunk,
    progress_of,
)
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress
from turnkeeper.turns import Report

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOTHING = {"fraction": None, "message": None, "phase": None, "milestone": None, "data": None}


class Phase(StrEnum):
    """Phases as an author may name them."""

    READING = "reading"


def _checked(**given: Any) -> ReportFields:
    return checked_report(**{**NOTHING, **given})


def _report(**fields: Any) -> Report:
    return Report(report_id="u", at=AT, **fields)


def test_pr_01_a_report_has_a_fraction_texts_a_milestone_and_data() -> None:
    """PR-01: all of them are optional."""
    given = {"fraction": 0.5, "message": "half", "phase": "reading", "milestone": "found", "data": {"a": [1, None]}}
    assert _checked(**given) == given
    assert _checked() == NOTHING


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("fraction", "0.5"),
        ("fraction", True),
        ("fraction", [0.5]),
        ("message", 7),
        ("message", b"half"),
        ("phase", {"name": "reading"}),
        ("milestone", 7),
    ],
)
def test_pr_01_a_part_of_a_wrong_type_is_dropped_and_logged(
    caplog: pytest.LogCaptureFixture, part: str, value: object
) -> None:
    """PR-01: a report never breaks the work that it is about; its author reads the log."""
    with caplog.at_level(logging.WARNING, "turnkeeper.progress"):
        assert _checked(**{part: value, "data": "kept"}) == {**NOTHING, "data": "kept"}
    assert f"a report's {part} is dropped" in caplog.text


def test_pr_01_an_authors_own_kind_of_text_is_text() -> None:
    """PR-01: an enum of strings travels as the string that it is."""
    phase = _checked(phase=Phase.READING)["phase"]
    assert (phase, type(phase)) == ("reading", str)


def test_ms_01_an_empty_milestone_is_none() -> None:
    """MS-01: it is ordinary progress."""
    assert _checked(milestone="", fraction=0.5) == {**NOTHING, "fraction": 0.5}


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, 0.0), (1, 1.0), (0.25, 0.25), (-0.1, 0.0), (1.01, 1.0), (7, 1.0), (math.inf, 1.0), (-math.inf, 0.0)],
)
def test_pr_05_a_fraction_is_cut_to_0_and_1(given: float, kept: float) -> None:
    """PR-05 as decided: an infinite one too."""
    fraction = _checked(fraction=given)["fraction"]
    assert (fraction, type(fraction)) == (kept, float)


@pytest.mark.parametrize(("given", "kept"), [(10**400, 1.0), (-(10**400), 0.0)], ids=["above", "below"])
def test_pr_05_a_fraction_beyond_what_a_float_holds_is_cut_as_well(given: int, kept: float) -> None:
    """PR-05 as decided: Python's integers have no end."""
    assert _checked(fraction=given)["fraction"] == kept


def test_pr_05_a_fraction_that_is_no_number_is_refused() -> None:
    """PR-05 as decided: nothing could be shown for it."""
    with pytest.raises(ValueError, match="fraction is not a number"):
        _checked(fraction=math.nan)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"a": [math.nan]}, r"the report's data\.a\[0\] is nan"),
        ([math.inf], r"the report's data\[0\] is inf"),
        ({"a": {1, 2}}, r"the report's data\.a is of type set"),
        (datetime.now(UTC), "the report's data is of type datetime"),
    ],
)
def test_pr_14_data_that_is_no_json_is_refused_with_its_place(data: object, problem: str) -> None:
    """PR-14 as decided: an error in the tool, not a lost report."""
    with pytest.raises(ValueError, match=problem):
        _checked(data=data)


def test_pr_14_data_nested_without_end_is_refused() -> None:
    """PR-14 as decided: no border lets it pass."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        _checked(data=endless)


def test_field_33_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    """Field case 33: in texts, in data and in its keys; the event log and Temporal would refuse it."""
    given = {"message": "\ud83d 😀", "phase": "\udc00", "milestone": "\ud83d", "data": {"\ud83d": ["\udc00"]}}
    assert _checked(**given) == {
        **NOTHING,
        "message": "? 😀",
        "phase": "?",
        "milestone": "?",
        "data": {"?": ["?"]},
    }


@pytest.mark.parametrize("letter", ["x", "é", "😀", '"', "\n"])
def test_pr_14_a_report_is_at_most_16_kib_of_json(letter: str) -> None:
    """PR-14 as decided: bytes count, as JSON has them, and the text says how many there are."""
    empty = len(json.dumps(_checked(message="")).encode())
    size = len(json.dumps(letter, ensure_ascii=False).encode()) - 2
    count, rest = divmod(MAX_REPORT_BYTES - empty, size)
    fitting = letter * count + "x" * rest
    assert _checked(message=fitting)["message"] == fitting
    with pytest.raises(ValueError, match=r"the report is 16,385 bytes of JSON, over the limit of 16,384"):
        _checked(message=fitting + "x")


def test_pr_14_every_part_counts() -> None:
    """PR-14 as decided: the limit is the report's, not a part's."""
    half = "x" * (MAX_REPORT_BYTES // 2)
    with pytest.raises(ValueError, match="over the limit"):
        _checked(message=half, data={"half": half})


SHOWN: dict[str, JsonValue] = {
    "at": 1767323045000,
    "fraction": 0.5,
    "message": "half",
    "phase": "reading",
    "data": {"a": None},
}


def _on_the_wire(chunk: UIMessageChunk) -> Any:
    text = chunk.model_dump_json()
    assert TypeAdapter(UIMessageChunk).validate_json(text) == chunk
    return json.loads(text)


def test_pr_06_a_report_shows_as_transient_data() -> None:
    """PR-06, PR-07: the data is always in the live chunk; the run's path tells the runs of a tree apart."""
    report = _report(fraction=0.5, message="half", phase="reading", data={"a": None})
    assert _on_the_wire(progress_chunk("r/runs/s", report)) == {
        "type": "data-agent-progress",
        "id": "r/runs/s:u",
        "transient": True,
        "data": SHOWN,
    }


def test_ms_06_a_milestone_shows_as_data_that_stays() -> None:
    """MS-06, MS-05: with what its report said; the same milestone has the same id however often it comes."""
    report = _report(fraction=0.5, message="half", phase="reading", data={"a": None}, milestone="found")
    milestone = AgentToolMilestone(name="found", sequence=2, at=AT, data={"a": None})
    assert _on_the_wire(milestone_chunk("r/runs/s", milestone, report)) == {
        "type": "data-agent-milestone",
        "id": "r/runs/s:2",
        "data": {"name": "found", "sequence": 2, **SHOWN},
    }


def test_pr_06_what_a_report_does_not_say_is_absent() -> None:
    """PR-06, MS-06: an absent key, never null (clients.md 1.2)."""
    milestone = AgentToolMilestone(name="found", sequence=0, at=AT)
    assert _on_the_wire(progress_chunk("r", _report()))["data"] == {"at": SHOWN["at"]}
    shown = _on_the_wire(milestone_chunk("r", milestone, _report(milestone="found")))["data"]
    assert shown == {"name": "found", "sequence": 0, "at": SHOWN["at"]}


def test_pr_12_hooks_and_inspections_get_the_report_itself() -> None:
    """PR-12, MS-09: everything but its id, with the milestone that it reached."""
    report = _report(fraction=0.5, message="half", phase="reading", data={"a": None}, milestone="found")
    assert progress_of(report) == AgentToolProgress(
        fraction=0.5, message="half", phase="reading", milestone="found", data={"a": None}, at=AT
    )
    assert progress_of(_report()) == AgentToolProgress(at=AT)
