"""The registry of runs that one workflow dispatched, and who is admitted."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from turnkeeper.dispatches import AgentProfile, DispatchRunInput, RunRecord
from turnkeeper.errors import Conflict
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, Display, EndStatus, input_digest
from turnkeeper.turns import MAX_DEPTH
from workflows.run_registry import RunRegistry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def _request(run_id: str, *, agent_type: str = "A", value: JsonValue = "input") -> DispatchRunInput:
    return DispatchRunInput(run_id=run_id, profile=AgentProfile(agent_type=agent_type), input=value)


def _admit(registry: RunRegistry, run_id: str, cap: int | None = None, depth: int = 1) -> AgentToolResult | None:
    return registry.admit(_request(run_id), depth=depth, cap=cap, now=NOW)


def _end(registry: RunRegistry, run_id: str, status: EndStatus = "completed") -> None:
    registry.mark_ended(run_id, AgentToolResult(run_id=run_id, agent_type="A", status=status), LATER)


def _registry(*run_ids: str) -> RunRegistry:
    registry = RunRegistry()
    for run_id in run_ids:
        _admit(registry, run_id)
    return registry


def test_di_03_an_admitted_run_has_a_row_that_is_starting() -> None:
    """DI-03, DI-04, DI-22: the row is there before the child is."""
    registry = _registry("r")
    assert registry.info("r") == AgentToolRunInfo(
        run_id="r", agent_type="A", status="starting", input_preview="input", display_order=0, started_at=NOW
    )
    assert (registry.is_starting("r"), registry.is_open("r"), registry.result("r")) == (True, True, None)


def test_in_08_a_row_keeps_only_the_preview_and_the_digest_of_the_input() -> None:
    """IN-08: never the raw input."""
    registry = RunRegistry()
    registry.admit(_request("r", value="x" * 10_000), depth=1, cap=None, now=NOW)
    [record] = registry.records
    assert record.info.input_preview == "x" * 500
    assert record.input_digest == input_digest("x" * 10_000)
    assert len(record.model_dump_json()) < 1000


def test_in_07_a_preview_of_the_callers_is_kept_untouched() -> None:
    """IN-07: no limit; display and call id are kept too."""
    registry = RunRegistry()
    request = _request("r").model_copy(
        update={
            "input_preview": "p" * 2000,
            "display": Display(name="D"),
            "parent_tool_call_id": "c",
            "display_order": 3,
        }
    )
    registry.admit(request, depth=1, cap=None, now=NOW)
    info = registry.info("r")
    assert (info.input_preview, info.display, info.parent_tool_call_id, info.display_order) == (
        "p" * 2000,
        Display(name="D"),
        "c",
        3,
    )


def test_di_24_a_run_starts_runs_and_ends() -> None:
    """DI-24: starting, running, completed."""
    registry = _registry("r")
    registry.mark_running("r")
    assert (registry.info("r").status, registry.is_starting("r"), registry.is_open("r")) == ("running", False, True)
    _end(registry, "r")
    assert (registry.info("r").status, registry.info("r").completed_at) == ("completed", LATER)
    assert registry.is_open("r") is False


def test_rf_01_a_row_tells_how_its_run_ended() -> None:
    """RF-01, RF-03: summary, error, reason and childStillRunning are in the row and in the result."""
    registry = _registry("r")
    result = AgentToolResult(
        run_id="r",
        agent_type="A",
        status="interrupted",
        summary="so far",
        error="gave up",
        reason="no-progress",
        child_still_running=True,
    )
    registry.mark_ended("r", result, LATER)
    info = registry.info("r")
    assert (info.summary, info.error, info.reason, info.child_still_running) == (
        "so far",
        "gave up",
        "no-progress",
        True,
    )
    assert registry.result("r") == result


def test_a_registry_keeps_no_outputs() -> None:
    """RF-07: an output stays with its run; a registry is carried from execution to execution."""
    registry = _registry("r")
    registry.mark_ended("r", AgentToolResult(run_id="r", agent_type="A", status="completed", output={"big": 1}), LATER)
    assert registry.result("r") == AgentToolResult(run_id="r", agent_type="A", status="completed")


@pytest.mark.parametrize(
    ("hard", "then"), [("completed", "aborted"), ("error", "completed"), ("aborted", "interrupted")]
)
def test_di_24_a_hard_end_is_never_overwritten(hard: EndStatus, then: EndStatus) -> None:
    """DI-24: completed, error and aborted are final."""
    registry = _registry("r")
    _end(registry, "r", hard)
    _end(registry, "r", then)
    assert registry.info("r").status == hard


@pytest.mark.parametrize("then", ["completed", "error", "aborted"])
def test_di_24_an_interruption_may_be_replaced_by_a_real_end(then: EndStatus) -> None:
    """DI-24, RF-13: and then has no reason any more."""
    registry = _registry("r")
    registry.mark_ended(
        "r", AgentToolResult(run_id="r", agent_type="A", status="interrupted", reason="no-progress"), NOW
    )
    _end(registry, "r", then)
    assert (registry.info("r").status, registry.info("r").reason) == (then, None)


def test_di_24_a_run_whose_end_came_first_is_not_running_again() -> None:
    """DI-24: Temporal hands a workflow the end's signal before the start's acknowledgement of the same task."""
    registry = _registry("r")
    _end(registry, "r")
    registry.mark_running("r")
    assert registry.info("r").status == "completed"
    assert registry.open_count == 0


@pytest.mark.parametrize("status", ["completed", "error", "aborted", "interrupted"])
def test_di_24_only_a_run_that_is_starting_begins_to_run(status: EndStatus) -> None:
    """DI-24: whatever end is known stays, and a run that is unknown gets no row."""
    registry = _registry("r")
    _end(registry, "r", status)
    registry.mark_running("r")
    registry.mark_running("unknown")
    assert [record.info.status for record in registry.records] == [status]


def test_di_24_a_hard_end_keeps_its_result_and_its_time() -> None:
    """DI-24: nothing of a later word is taken over."""
    registry = _registry("r")
    _end(registry, "r")
    [record] = registry.records
    failed = AgentToolResult(run_id="r", agent_type="A", status="error", error="late", summary="late")
    registry.mark_ended("r", failed, LATER + timedelta(minutes=1))
    assert registry.records == (record,)


def test_di_15_a_refusal_is_not_ended_by_a_late_word() -> None:
    """DI-15, DI-24: a refused run stays refused until it is dispatched again."""
    registry = RunRegistry()
    refusal = _admit(registry, "r", cap=0)
    _end(registry, "r")
    assert (registry.result("r"), registry.is_refused("r")) == (refusal, True)


def test_an_end_of_an_unknown_run_is_ignored() -> None:
    """A late signal of a run that was cleared changes nothing."""
    registry = RunRegistry()
    _end(registry, "r")
    assert registry.records == ()
    assert (registry.is_open("r"), registry.is_starting("r"), registry.result("r")) == (False, False, None)


def test_di_05_the_same_id_for_the_same_work_is_the_same_row() -> None:
    """DI-05, DI-09: found while it goes on and after it ended; the order of keys does not matter."""
    registry = RunRegistry()
    registry.admit(_request("r", value={"a": 1, "b": 2}), depth=1, cap=None, now=NOW)
    again = _request("r", value={"b": 2, "a": 1})
    assert registry.find(again) == registry.records[0]
    _end(registry, "r")
    assert registry.find(again) == registry.records[0]
    assert registry.find(_request("s")) is None


@pytest.mark.parametrize(
    "request_again", [_request("r", agent_type="B"), _request("r", value="else"), _request("r", value=None)]
)
def test_di_16_the_same_id_for_other_work_is_a_conflict(request_again: DispatchRunInput) -> None:
    """DI-16 as decided: another agent type or another input, never the old result."""
    registry = _registry("r")
    with pytest.raises(Conflict, match="'r' is taken by a run of A"):
        registry.find(request_again)


def test_cc_02_a_run_over_the_cap_is_refused_with_the_cap_in_the_text() -> None:
    """CC-02: two of three are admitted; nothing queues."""
    registry = RunRegistry()
    assert [_admit(registry, run_id, cap=2) for run_id in ("a", "b")] == [None, None]
    refusal = _admit(registry, "c", cap=2)
    assert refusal is not None
    assert (refusal.run_id, refusal.status) == ("c", "error")
    assert "maxConcurrentAgentTools (2) exceeded" in (refusal.error or "")


def test_cc_06_a_refused_run_has_a_row_with_its_error_and_end() -> None:
    """CC-06: kept as `error` with completion time; it holds no slot."""
    registry = RunRegistry()
    refusal = _admit(registry, "r", cap=0)
    assert refusal is not None
    info = registry.info("r")
    assert (info.status, info.completed_at, info.error) == ("error", NOW, refusal.error)
    assert (registry.open_count, registry.is_open("r"), registry.is_starting("r")) == (0, False, False)


def test_di_15_a_refusal_is_not_remembered() -> None:
    """DI-15 as decided: the same id may be dispatched again, with other input too."""
    registry = RunRegistry()
    _admit(registry, "r", cap=0)
    request = _request("r", value="another")
    assert registry.find(request) is None
    assert registry.admit(request, depth=1, cap=1, now=LATER) is None
    assert (registry.info("r").status, registry.info("r").started_at) == ("starting", LATER)


def test_a_run_that_was_refused_and_dispatched_again_is_the_newest_row() -> None:
    """Rows are in the order in which their runs were dispatched."""
    registry = RunRegistry()
    _admit(registry, "r", cap=0)
    _admit(registry, "s")
    _admit(registry, "r")
    assert [record.info.run_id for record in registry.records] == ["s", "r"]


def test_cc_03_slots_are_free_again_after_an_end() -> None:
    """CC-03."""
    registry = _registry("a")
    assert _admit(registry, "b", cap=1) is not None
    _end(registry, "a")
    assert _admit(registry, "c", cap=1) is None


def test_cc_04_an_interrupted_run_holds_no_slot() -> None:
    """CC-04."""
    registry = _registry("a")
    _end(registry, "a", "interrupted")
    assert registry.open_count == 0


def test_cc_05_starting_and_running_runs_hold_slots() -> None:
    """CC-05."""
    registry = _registry("a", "b")
    registry.mark_running("b")
    assert registry.open_count == 2


def test_cc_05_runs_of_the_instance_elsewhere_hold_slots_too() -> None:
    """CC-05: a turn and its session share the instance's cap."""
    registry = RunRegistry(open_elsewhere=1)
    assert _admit(registry, "a", cap=2) is None
    assert _admit(registry, "b", cap=2) is not None


def test_field_24_a_run_that_is_nested_too_deep_is_refused() -> None:
    """Field case 24: the text tells the model what to do instead."""
    registry = RunRegistry()
    assert _admit(registry, "a", depth=MAX_DEPTH) is None
    refusal = _admit(registry, "b", depth=MAX_DEPTH + 1)
    assert refusal is not None
    assert refusal.error == "Agents may be nested 5 deep and A would be number 6. Do the work yourself."


def test_a_registry_goes_on_after_a_continue_as_new() -> None:
    """Its rows are its whole state."""
    before = _registry("a", "b")
    _end(before, "a")
    after = RunRegistry(RunRecord.model_validate_json(record.model_dump_json()) for record in before.records)
    assert after.records == before.records
    assert (after.open_count, after.is_open("b"), after.is_open("a")) == (1, True, False)


def test_rows_of_a_workflow_that_ended_are_taken_over() -> None:
    """A session keeps the rows of its turns; a run that the turn still awaited has ended with it."""
    session, turn = _registry("a"), _registry("b", "c")
    _end(turn, "b")
    session.take_over(turn.records, NOW)
    assert [record.info.run_id for record in session.records] == ["a", "b", "c"]
    assert session.info("b").status == "completed"
    assert (session.info("c").status, session.info("c").error) == ("aborted", "what awaited it has ended")
    assert session.open_count == 1


def test_a_row_that_is_known_is_not_overwritten_by_who_only_joined_the_run() -> None:
    """DI-09, DI-14: the run goes on, although the turn that joined it has ended."""
    session, turn = _registry("a"), _registry("a")
    session.take_over(turn.records, NOW)
    assert session.is_open("a")


def test_a_row_of_somebody_elses_run_is_forgotten() -> None:
    """The slot is free again, and forgetting twice is no error."""
    registry = _registry("r")
    registry.forget("r")
    registry.forget("r")
    assert (registry.records, registry.open_count) == ((), 0)
