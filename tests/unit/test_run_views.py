"""What frames add up to: the reducer for whoever shows an instance, row by row."""

import json
import random
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from turnkeeper.frames import (
    AgentToolEventFrame,
    Frame,
    GapFrame,
    ResyncFrame,
    RunAborted,
    RunChunk,
    RunError,
    RunEvent,
    RunFinished,
    RunInterrupted,
    RunStarted,
    SnapshotFrame,
    TurnAborted,
    TurnChunk,
    TurnError,
    TurnEvent,
    TurnEventFrame,
    TurnFinished,
    TurnStarted,
)
from turnkeeper.messages import DataPart, StepStartPart, TextPart
from turnkeeper.run_views import apply_frame, read_frame
from turnkeeper.runs import AgentToolRunInfo, Display
from turnkeeper.turns import TurnInfo
from turnkeeper.watch_state import RunView, Sequences, SubAgent, WatchState

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def of_run(
    event: RunEvent,
    sequence: int,
    *,
    call: str | None = "call",
    step: int | None = None,
    attempt: int | None = None,
    replay: Literal[True] | None = None,
) -> AgentToolEventFrame:
    """Return a frame of a run."""
    return AgentToolEventFrame(
        source=f"t/A/n/runs/{event.run_id}",
        sequence=sequence,
        at=AT + timedelta(seconds=sequence),
        step=step,
        attempt=attempt,
        replay=replay,
        parent_tool_call_id=call,
        event=event,
    )


def of_turn(event: TurnEvent, sequence: int, *, step: int | None = None, attempt: int | None = None) -> TurnEventFrame:
    """Return a frame of a turn."""
    return TurnEventFrame(
        source=f"t/A/n/turns/{event.turn_id}", sequence=sequence, at=AT, step=step, attempt=attempt, event=event
    )


def started(run_id: str = "r", order: int = 0, **more: Any) -> RunStarted:
    """Return a run's beginning."""
    return RunStarted(run_id=run_id, agent_type="Researcher", order=order, **more)


def chunk(type: str, run_id: str = "r", **fields: Any) -> RunChunk:
    """Return something that a run streamed."""
    return RunChunk(run_id=run_id, body=json.dumps({"type": type, **fields}))


def progress(fraction: float, **more: Any) -> RunChunk:
    """Return a report."""
    return chunk("data-agent-progress", id="r", transient=True, data={"fraction": fraction, **more})


def milestone(number: int, name: str = "", **more: Any) -> RunChunk:
    """Return a milestone."""
    data = {"name": name or f"m{number}", "sequence": number, **more}
    return chunk("data-agent-milestone", id=f"r:{number}", data=data)


def said(text: str) -> list[RunChunk]:
    """Return a text as a run streams it."""
    return [chunk("text-start", id="t"), chunk("text-delta", id="t", delta=text), chunk("text-end", id="t")]


def after(*frames: Frame, state: WatchState | None = None) -> WatchState:
    """Return the state after frames."""
    state = WatchState() if state is None else state
    for frame in frames:
        state = apply_frame(state, frame)
    return state


def run_after(*events: RunEvent) -> RunView:
    """Return how the run `r` stands after events, numbered in order."""
    return after(*(of_run(event, sequence) for sequence, event in enumerate(events))).runs_by_id["r"]


def test_cr_01_started_makes_a_running_run_without_parts() -> None:
    """CR-01."""
    run = run_after(started(input_preview="x", display=Display(name="R")))
    assert (run.status, run.parts, run.started_at) == ("running", (), AT)
    assert run.sub_agent == SubAgent(agent="Researcher", name="r")
    assert (run.input_preview, run.display, run.parent_tool_call_id) == ("x", Display(name="R"), "call")


def test_cr_02_runs_of_one_call_are_listed_by_order_then_by_run_id() -> None:
    """CR-02."""
    state = after(*(of_run(started(run_id, order), 0) for run_id, order in (("c", 1), ("b", 0), ("a", 1))))
    assert [run.run_id for run in state.runs_by_tool_call_id["call"]] == ["b", "a", "c"]


@pytest.mark.parametrize("call", [None, ""])
def test_cr_03_a_run_without_a_parent_call_is_only_unbound(call: str | None) -> None:
    """CR-03."""
    state = after(of_run(started(), 0, call=call))
    assert [run.run_id for run in state.unbound_runs] == ["r"]
    assert state.runs_by_tool_call_id == {}


def test_cr_04_chunks_add_up_to_parts() -> None:
    """CR-04."""
    run = run_after(started(), chunk("start-step"), *said("hello"))
    assert run.parts == (StepStartPart(), TextPart(text="hello"))
    assert run.text == "hello"


def test_cr_05_applying_a_chunk_twice_to_the_same_state_gives_the_same_and_leaves_the_state_alone() -> None:
    """CR-05."""
    before = after(of_run(started(), 0), of_run(chunk("text-start", id="t"), 1))
    copy = deepcopy(before)
    frame = of_run(chunk("text-delta", id="t", delta="x"), 2)
    first, second = apply_frame(before, frame), apply_frame(before, frame)
    assert first == second
    assert first.runs_by_id["r"].text == "x"
    assert before == copy


def test_cr_06_progress_replaces_the_report_before_as_a_whole_and_adds_no_part() -> None:
    """CR-06; `at` is when it was reported, or else when it was logged."""
    run = run_after(started(), progress(0.2, phase="p", message="m", at=AT.isoformat()), progress(0.1))
    assert run.progress is not None
    assert (run.progress.fraction, run.progress.phase, run.progress.message) == (0.1, None, None)
    assert run.progress.at == AT + timedelta(seconds=2)
    assert run.parts == ()


def test_latest_wins_by_sequence_whatever_the_order_of_arrival() -> None:
    """CR-06, CR-19: by the run's own count, not by any clock."""
    state = after(of_run(started(), 0), of_run(progress(0.5), 2), of_run(progress(0.4), 1))
    found = state.runs_by_id["r"].progress
    assert found is not None
    assert found.fraction == 0.5


def test_cr_07_milestones_are_sorted_deduplicated_and_mirrored_on_progress() -> None:
    """CR-07."""
    run = run_after(started(), progress(0.2, phase="p"), milestone(1), milestone(0), milestone(1, "again"))
    assert [(known.name, known.sequence) for known in run.milestones] == [("m0", 0), ("m1", 1)]
    assert run.progress is not None
    assert (run.progress.fraction, run.progress.phase, run.progress.milestone) == (0.2, "p", "m0")


def test_cr_08_a_milestone_that_comes_late_does_not_move_progress_back() -> None:
    """CR-08."""
    state = after(of_run(started(), 0), of_run(progress(0.9), 5), of_run(milestone(0, fraction=0.1), 3))
    run = state.runs_by_id["r"]
    assert [known.name for known in run.milestones] == ["m0"]
    assert run.progress is not None
    assert (run.progress.fraction, run.progress.milestone) == (0.9, None)


def test_cr_08_a_milestone_that_its_later_report_overtook_does_not_move_progress_back() -> None:
    """CR-08: it comes by way of the run's workflow; when it was reported counts."""
    late = milestone(0, fraction=0.5, at=(AT + timedelta(seconds=1)).isoformat())
    state = after(of_run(started(), 0), of_run(progress(0.9), 2), of_run(late, 3))
    run = state.runs_by_id["r"]
    assert run.progress is not None
    assert (run.progress.fraction, [known.name for known in run.milestones]) == (0.9, ["m0"])


def test_cr_09_a_milestone_is_a_part_that_a_duplicate_replaces() -> None:
    """CR-09: its chunk has an id, so nothing is appended twice (CR-23)."""
    run = run_after(started(), milestone(0), milestone(0))
    assert [part.type for part in run.parts] == ["data-agent-milestone"]
    assert len(run.milestones) == 1


@pytest.mark.parametrize(
    "event",
    [
        *(chunk("text-start", id="t"), progress(0.1), RunFinished(run_id="r"), RunError(run_id="r", error="x")),
        *(RunAborted(run_id="r"), RunInterrupted(run_id="r", error="x")),
    ],
)
def test_cr_10_what_comes_for_an_unknown_run_leaves_the_very_same_state(event: RunEvent) -> None:
    """CR-10; and the same for a turn."""
    state = after(of_run(started("other"), 0))
    assert apply_frame(state, of_run(event, 1)) is state
    assert apply_frame(state, of_turn(TurnFinished(turn_id="9"), 1)) is state


@pytest.mark.parametrize(
    "end",
    [RunFinished(run_id="r", summary="done"), RunAborted(run_id="r"), RunInterrupted(run_id="r", error="x")],
)
def test_cr_11_started_after_a_terminal_is_ignored(end: RunEvent) -> None:
    """CR-11."""
    state = after(of_run(started(), 0), of_run(end, 1))
    assert apply_frame(state, of_run(started(order=7), 2)) is state


def test_di_15_a_run_that_was_refused_begins_anew_when_it_is_dispatched_again() -> None:
    """DI-15 as decided: a refusal is not remembered."""
    refused = RunError(run_id="r", error="no slot", refused=True)
    state = after(of_run(started(), 0), of_run(refused, 1), of_run(started(order=2), 2))
    run = state.runs_by_id["r"]
    assert (run.status, run.order, run.error) == ("running", 2, None)
    ended = apply_frame(state, of_run(RunFinished(run_id="r", summary="done"), 3))
    assert ended.runs_by_id["r"].status == "completed"


def test_cr_12_started_again_refreshes_what_is_said_of_the_run_and_keeps_what_it_did() -> None:
    """CR-12."""
    run = run_after(started(), *said("x"), progress(0.3), milestone(0), started(order=7, input_preview="new"))
    assert (run.order, run.input_preview, run.text) == (7, "new", "x")
    assert (len(run.milestones), run.progress is not None) == (1, True)


def test_cr_13_a_chunk_after_a_terminal_still_counts() -> None:
    """CR-13."""
    run = run_after(started(), RunFinished(run_id="r", summary="s"), *said("late"))
    assert (run.status, run.text) == ("completed", "late")


@pytest.mark.parametrize("end", [RunFinished(run_id="r"), RunError(run_id="r", error="e"), RunAborted(run_id="r")])
@pytest.mark.parametrize(
    "later",
    [
        RunInterrupted(run_id="r", error="x", reason="no-progress", child_still_running=True),
        *(RunFinished(run_id="r", summary="other"), RunError(run_id="r", error="other"), RunAborted(run_id="r")),
    ],
)
def test_cr_14_completed_error_and_aborted_are_final(end: RunEvent, later: RunEvent) -> None:
    """CR-14 as decided."""
    state = after(of_run(started(), 0), of_run(end, 1))
    assert apply_frame(state, of_run(later, 2)) is state


def test_cr_14_a_real_end_clears_what_an_interruption_said() -> None:
    """CR-14 as decided, EV-17."""
    interrupted = RunInterrupted(run_id="r", error="x", reason="no-progress", child_still_running=True)
    run = run_after(started(), interrupted, RunFinished(run_id="r", summary="s"))
    assert (run.status, run.summary) == ("completed", "s")
    assert (run.error, run.reason, run.child_still_running) == (None, None, None)


@pytest.mark.parametrize(
    ("end", "status", "summary", "error"),
    [
        (RunFinished(run_id="r", summary="s"), "completed", "s", None),
        (RunError(run_id="r", error="e"), "error", None, "e"),
        (RunAborted(run_id="r", reason="why"), "aborted", None, "why"),
        (RunInterrupted(run_id="r", error="e"), "interrupted", None, "e"),
    ],
)
def test_cr_15_terminals_map_to_statuses(end: RunEvent, status: str, summary: str | None, error: str | None) -> None:
    """CR-15."""
    run = run_after(started(), end)
    assert (run.status, run.summary, run.error, run.is_open) == (status, summary, error, False)
    assert run.ended_at == AT + timedelta(seconds=1)


@pytest.mark.parametrize("goes_on", [True, False, None])
def test_cr_15_an_interruption_keeps_its_cause(goes_on: bool | None) -> None:
    """CR-15, EV-14, EV-15."""
    run = run_after(
        started(), RunInterrupted(run_id="r", error="e", reason="budget-exceeded", child_still_running=goes_on)
    )
    assert (run.reason, run.child_still_running) == ("budget-exceeded", goes_on)


@pytest.mark.parametrize(
    "body",
    ["", "{", "null", "[]", '{"type": "unheard-of"}', '{"type": "text-delta"}', '{"type": "data-"}', "[" * 5_000],
)
def test_cr_16_a_bad_body_is_ignored(body: str) -> None:
    """CR-16."""
    state = after(of_run(started(), 0), of_turn(TurnStarted(turn_id="1", message_id="m"), 0))
    assert apply_frame(state, of_run(RunChunk(run_id="r", body=body), 1)) is state
    assert apply_frame(state, of_turn(TurnChunk(turn_id="1", body=body), 1)) is state


@pytest.mark.parametrize("data", [{"fraction": 7}, {"fraction": "half"}, {"at": "yesterday"}])
def test_cr_16_a_report_that_makes_no_sense_is_ignored(data: dict[str, Any]) -> None:
    """CR-16; a bad milestone is only no milestone."""
    state = after(of_run(started(), 0))
    assert apply_frame(state, of_run(chunk("data-agent-progress", data=data), 1)) is state
    told = after(of_run(chunk("data-agent-milestone", data=data), 1), state=state)
    assert told.runs_by_id["r"].milestones == ()


@pytest.mark.parametrize(
    "data",
    ["", "{", "5", '{"type": "other"}', b"\xff", None, 5, {"type": "agent-tool-event"}, {"event": {"kind": "new"}}],
)
def test_cr_17_what_is_no_frame_is_ignored_without_an_exception(data: object) -> None:
    """CR-17."""
    assert read_frame(data) is None


def test_a_frame_is_read_from_what_the_api_sends() -> None:
    """EV-01."""
    frame = of_run(started(), 0)
    assert read_frame(frame.model_dump_json()) == frame
    assert read_frame(json.loads(frame.model_dump_json())) == frame


def test_cr_18_a_frame_counts_once_by_its_source_and_sequence_replayed_or_not() -> None:
    """CR-18: in the state itself."""
    delta = chunk("text-delta", id="t", delta="x")
    state = after(of_run(started(), 0), of_run(chunk("text-start", id="t"), 1), of_run(delta, 2))
    assert apply_frame(state, of_run(delta, 2, replay=True)) is state


def test_cr_19_the_same_content_under_another_sequence_counts_again() -> None:
    """CR-19: also when the numbers arrive out of order, and in each source of its own."""
    delta = chunk("text-delta", id="t", delta="x")
    state = after(of_run(started(), 0), of_run(chunk("text-start", id="t"), 1))
    state = after(*(of_run(delta, sequence) for sequence in (5, 3, 4, 9)), state=state)
    other = [of_run(started("q"), 0), of_run(chunk("text-start", "q", id="t"), 1)]
    state = after(*other, of_run(chunk("text-delta", "q", id="t", delta="y"), 3), state=state)
    assert (state.runs_by_id["r"].text, state.runs_by_id["q"].text) == ("xxxx", "y")


def test_cr_20_a_new_state_takes_the_same_frames_again() -> None:
    """CR-20."""
    events: list[RunEvent] = [started(), *said("x")]
    frames = [of_run(event, sequence) for sequence, event in enumerate(events)]
    assert after(*frames) == after(*frames, state=WatchState())


def test_cr_21_runs_are_looked_up_by_their_call() -> None:
    """CR-21."""
    state = after(of_run(started(), 0))
    assert state.get_runs_for_tool_call("call") == (state.runs_by_id["r"],)
    assert state.get_runs_for_tool_call("another") == ()


def test_cr_22_a_calls_state_never_goes_back() -> None:
    """CR-22."""
    call = {"toolCallId": "c"}
    run = run_after(
        started(),
        chunk("tool-input-start", toolName="f", **call),
        chunk("tool-input-delta", inputTextDelta='{"a": 1}', **call),
        chunk("tool-input-available", toolName="f", input={"a": 1}, **call),
        chunk("tool-output-available", output="so far", preliminary=True, **call),
        chunk("tool-output-available", output="all", **call),
        chunk("tool-input-start", toolName="f", **call),
        chunk("tool-input-delta", inputTextDelta="more", **call),
        chunk("tool-output-available", output="early", preliminary=True, **call),
    )
    (part,) = run.tool_parts
    assert (part.state, part.input, part.output, part.preliminary) == ("output-available", {"a": 1}, "all", None)


def test_cr_23_data_with_an_id_is_updated_in_place_and_transient_data_is_not_kept() -> None:
    """CR-23."""
    run = run_after(
        started(),
        chunk("data-x", id="1", data="old"),
        chunk("data-x", data="a"),
        chunk("data-x", id="1", data="new"),
        chunk("data-x", data="a"),
        chunk("data-x", id="2", data="gone", transient=True),
    )
    assert run.parts == (
        DataPart(type="data-x", id="1", data="new"),
        *[DataPart(type="data-x", data="a")] * 2,
    )


def test_a_chunk_that_refers_to_what_was_lost_adds_nothing() -> None:
    """Design 5: the log may lose entries; also after an error in the stream (RF-20)."""
    run = run_after(started(), chunk("text-delta", id="t", delta="x"), chunk("error", errorText="e"), *said("y"))
    assert (run.status, run.text) == ("running", "y")


def test_a_later_attempt_of_a_step_supersedes_what_the_earlier_streamed() -> None:
    """Design 5: the steps before and the milestones stay, and stragglers of the old attempt are ignored."""
    state = after(
        of_run(started(), 0),
        of_run(chunk("start-step"), 1, step=0),
        *(of_run(event, 2 + place, step=0) for place, event in enumerate(said("first step"))),
        of_run(chunk("start-step"), 5, step=1),
        of_run(chunk("text-start", id="u"), 6, step=1),
        of_run(milestone(0), 7),
        of_run(chunk("text-delta", id="u", delta="half an"), 8, step=1),
        of_run(chunk("start-step"), 9, step=1, attempt=2),
    )
    straggler = of_run(chunk("text-delta", id="t", delta="stale"), 10, step=1)
    assert apply_frame(state, straggler) is state
    state = after(
        of_run(chunk("text-start", id="u"), 11, step=1, attempt=2),
        of_run(chunk("text-delta", id="u", delta="whole"), 12, step=1, attempt=2),
        state=state,
    )
    run = state.runs_by_id["r"]
    assert run.text == "first step\nwhole"
    assert [part.type for part in run.parts] == ["step-start", "text", "data-agent-milestone", "step-start", "text"]
    assert [known.name for known in run.milestones] == ["m0"]


def test_the_outcome_of_a_call_counts_whatever_the_attempt_that_made_it() -> None:
    """Design 5: outcomes are told by the workflow, which knows nothing of attempts."""
    call = {"toolCallId": "c"}
    state = after(
        of_run(started(), 0),
        of_run(chunk("start-step"), 1, step=0, attempt=2),
        of_run(chunk("tool-input-available", toolName="f", input={}, **call), 2, step=0, attempt=2),
        of_run(chunk("tool-output-available", output=1, **call), 3, step=0),
        of_run(chunk("finish-step"), 4, step=0),
    )
    assert [part.output for part in state.runs_by_id["r"].tool_parts] == [1]


def test_a_retry_whose_beginning_was_lost_supersedes_all_the_same() -> None:
    """Design 5: the attempt is on every frame."""
    state = after(
        of_turn(TurnStarted(turn_id="1", message_id="m"), 0),
        of_turn(TurnChunk(turn_id="1", body='{"type": "text-start", "id": "t"}'), 1, step=0),
        of_turn(TurnChunk(turn_id="1", body='{"type": "text-delta", "id": "t", "delta": "old"}'), 2, step=0),
        of_turn(TurnChunk(turn_id="1", body='{"type": "text-start", "id": "t"}'), 9, step=0, attempt=3),
    )
    assert state.turns[0].parts == (TextPart(text=""),)


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        (TurnFinished(turn_id="1"), "completed", None),
        (TurnError(turn_id="1", error="e"), "error", "e"),
        (TurnAborted(turn_id="1", reason="why"), "aborted", "why"),
    ],
)
def test_a_turn_has_its_text_and_its_first_end(end: TurnEvent, status: str, error: str | None) -> None:
    """Design 5: a whole instance can be shown."""
    bodies = [event.body for event in said("hello")]
    state = after(
        of_turn(TurnStarted(turn_id="1", message_id="m"), 0),
        *(of_turn(TurnChunk(turn_id="1", body=body), 1 + place) for place, body in enumerate(bodies)),
        of_turn(end, 4),
    )
    (turn,) = state.turns
    assert (turn.status, turn.error, turn.text, turn.message_id) == (status, error, "hello", "m")
    assert apply_frame(state, of_turn(TurnAborted(turn_id="1"), 5)) is state
    assert apply_frame(state, of_turn(TurnStarted(turn_id="1", message_id="m"), 6)) is state


def test_turns_are_in_the_order_of_their_numbers() -> None:
    """Design 1: turn ids are the session's own count."""
    state = after(*(of_turn(TurnStarted(turn_id=number, message_id="m"), 0) for number in ("10", "9", "2")))
    assert [turn.turn_id for turn in state.turns] == ["2", "9", "10"]


def test_the_paths_of_runs_make_a_tree() -> None:
    """NE-01: at any depth."""
    ids = ("a", "a/runs/b", "a/runs/b/runs/c", "d")
    state = after(*(of_run(started(run_id), 0) for run_id in ids))
    assert [run.run_id for run in state.runs_below(None)] == ["a", "d"]
    assert [run.run_id for run in state.runs_below("a")] == ["a/runs/b"]
    assert [run.run_id for run in state.runs_below("a/runs/b")] == ["a/runs/b/runs/c"]


def test_entries_that_were_lost_are_counted_once() -> None:
    """Design 5: a dead log degrades the live view, and says so."""
    gap = GapFrame(source="t/A/n/turns/1", sequence=3, at=AT, lost=4)
    assert after(gap, gap).lost == 4


def snapshot(status: Any = "completed", **more: Any) -> SnapshotFrame:
    """Return what Temporal knows of one run and one turn."""
    return SnapshotFrame(
        runs=(AgentToolRunInfo(run_id="r", agent_type="Researcher", status=status, started_at=AT, **more),),
        turns=(TurnInfo(turn_id="1", submission_id="s", message_id="m", status="completed", submitted_at=AT),),
    )


def test_a_snapshot_fills_in_what_is_unknown_and_tells_nothing_twice() -> None:
    """Design 5: the log does not go back to the beginning."""
    state = after(snapshot(summary="s", parent_tool_call_id="call"))
    assert [(run.status, run.summary) for run in state.get_runs_for_tool_call("call")] == [("completed", "s")]
    assert [turn.status for turn in state.turns] == ["completed"]
    assert apply_frame(state, snapshot(summary="s", parent_tool_call_id="call")) is state
    assert after(*(of_run(event, 3) for event in said("x")[:1]), state=state).runs_by_id["r"].parts != ()


def test_a_snapshot_ends_what_the_log_shows_as_going_on_and_nothing_else() -> None:
    """Design 4: Temporal is the only source of truth."""
    state = after(
        of_run(started(), 0),
        of_run(progress(0.5), 1),
        of_turn(TurnStarted(turn_id="1", message_id="m"), 0),
        of_turn(TurnError(turn_id="1", error="e"), 1),
    )
    assert [turn.error for turn in after(snapshot("running"), state=state).turns] == ["e"]
    run = after(snapshot("error", error="terminated"), state=state).runs_by_id["r"]
    assert (run.status, run.error, run.progress is not None) == ("error", "terminated", True)


@pytest.mark.parametrize("reason", ["too-old", "unknown"])
def test_a_resync_begins_anew(reason: Any) -> None:
    """Issue B, item 5: what follows is the whole again."""
    state = after(of_run(started(), 0))
    assert after(ResyncFrame(reason=reason), state=state) == WatchState()
    empty = WatchState()
    assert apply_frame(empty, ResyncFrame(reason=reason)) is empty


def test_a_reader_that_was_too_slow_goes_on() -> None:
    """Issue B, item 5: it resumes from its last id."""
    state = after(of_run(started(), 0))
    assert apply_frame(state, ResyncFrame(reason="too-slow")) is state


def test_numbers_that_were_seen_are_ranges() -> None:
    """CR-18: what is never pruned must stay small."""
    numbers = list(range(60))
    random.Random(1).shuffle(numbers)
    seen = Sequences()
    for place, number in enumerate(numbers):
        assert not seen.holds(number)
        seen = seen.plus(number)
        assert all(seen.holds(known) for known in numbers[: place + 1])
    assert seen.ranges == ((0, 59),)


def story() -> list[list[Frame]]:
    """Return the frames of a turn and of three runs, each source in its order."""
    runs: dict[str, list[RunEvent]] = {
        "a": [started("a", 1), chunk("text-start", "a", id="t"), chunk("text-delta", "a", id="t", delta="one ")],
        "b": [started("b", 0), RunInterrupted(run_id="b", error="x", reason="no-progress"), RunFinished(run_id="b")],
        "a/runs/c": [started("a/runs/c"), RunError(run_id="a/runs/c", error="broken")],
    }
    runs["a"] += [chunk("text-delta", "a", id="t", delta=f"{number} ") for number in range(4)]
    frames: list[list[Frame]] = [[of_run(event, place) for place, event in enumerate(told)] for told in runs.values()]
    turn: list[Frame] = [
        of_turn(TurnStarted(turn_id="1", message_id="m"), 0),
        of_turn(TurnChunk(turn_id="1", body='{"type": "start-step"}'), 1, step=0),
        of_turn(TurnChunk(turn_id="1", body='{"type": "text-start", "id": "t"}'), 2, step=0),
        of_turn(TurnChunk(turn_id="1", body='{"type": "start-step"}'), 3, step=0, attempt=2),
        of_turn(TurnChunk(turn_id="1", body='{"type": "text-start", "id": "t"}'), 4, step=0, attempt=2),
        of_turn(TurnFinished(turn_id="1"), 5),
    ]
    return [turn, *frames]


@pytest.mark.parametrize("seed", range(40))
def test_however_sources_interleave_a_replayed_prefix_changes_nothing(seed: int) -> None:
    """CR-05, CR-18, EV-12: at every point, whatever was read may be read again; the end is always the same."""
    chance = random.Random(seed)
    waiting, read, state = story(), list[Frame](), WatchState()
    while any(waiting):
        source = chance.choice([frames for frames in waiting if frames])
        read.append(source.pop(0))
        before = deepcopy(state)
        told = apply_frame(state, read[-1])
        assert state == before
        state = told
        for frame in read[: chance.randint(0, len(read))]:
            assert apply_frame(state, frame) is state
    assert state == after(*(frame for frames in story() for frame in frames))
    assert state.runs_by_id["a"].text == "one 0 1 2 3 "
