"""What readers of an instance's events get, letter by letter, and how a run's end is told."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from turnkeeper import frames
from turnkeeper.events import Event
from turnkeeper.frames import (
    END_KINDS,
    AgentToolEventFrame,
    EventFrame,
    Frame,
    GapFrame,
    MessageFrame,
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
    end_event,
)
from turnkeeper.messages import user_message
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, Display
from turnkeeper.turns import TurnInfo
from turnkeeper.wire import WireModel

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUN = "t/A/n/runs/r"

RUN_EVENTS: list[tuple[WireModel, dict[str, JsonValue]]] = [
    (
        RunStarted(
            run_id="r/runs/s",
            agent_type="A",
            input_preview="p",
            order=1,
            display=Display(name="D"),
            parent_tool_call_id="c",
        ),
        {
            "kind": "started",
            "runId": "r/runs/s",
            "agentType": "A",
            "inputPreview": "p",
            "order": 1,
            "display": {"name": "D"},
            "parentToolCallId": "c",
        },
    ),
    (RunStarted(run_id="r", agent_type="A"), {"kind": "started", "runId": "r", "agentType": "A", "order": 0}),
    (RunChunk(run_id="r", body="{}"), {"kind": "chunk", "runId": "r", "body": "{}"}),
    (RunFinished(run_id="r", summary="s"), {"kind": "finished", "runId": "r", "summary": "s"}),
    (RunFinished(run_id="r"), {"kind": "finished", "runId": "r", "summary": ""}),
    (RunError(run_id="r", error="e"), {"kind": "error", "runId": "r", "error": "e"}),
    (RunError(run_id="r", error="e", refused=True), {"kind": "error", "runId": "r", "error": "e", "refused": True}),
    (RunAborted(run_id="r", reason="w"), {"kind": "aborted", "runId": "r", "reason": "w"}),
    (RunAborted(run_id="r"), {"kind": "aborted", "runId": "r"}),
    (
        RunInterrupted(run_id="r", error="e", reason="no-progress", child_still_running=False),
        {"kind": "interrupted", "runId": "r", "error": "e", "reason": "no-progress", "childStillRunning": False},
    ),
    (RunInterrupted(run_id="r", error="e"), {"kind": "interrupted", "runId": "r", "error": "e"}),
]

TURN_EVENTS: list[tuple[WireModel, dict[str, JsonValue]]] = [
    (TurnStarted(turn_id="1", message_id="m"), {"kind": "started", "turnId": "1", "messageId": "m"}),
    (TurnChunk(turn_id="1", body="{}"), {"kind": "chunk", "turnId": "1", "body": "{}"}),
    (TurnFinished(turn_id="1"), {"kind": "finished", "turnId": "1"}),
    (TurnError(turn_id="1", error="e"), {"kind": "error", "turnId": "1", "error": "e"}),
    (TurnAborted(turn_id="1", reason="w"), {"kind": "aborted", "turnId": "1", "reason": "w"}),
    (TurnAborted(turn_id="1"), {"kind": "aborted", "turnId": "1"}),
]

FRAMES: list[tuple[WireModel, dict[str, JsonValue]]] = [
    (
        AgentToolEventFrame(
            source=RUN,
            sequence=3,
            at=AT,
            step=1,
            attempt=2,
            replay=True,
            parent_tool_call_id="c",
            event=RunChunk(run_id="r", body="{}"),
        ),
        {
            "type": "agent-tool-event",
            "source": RUN,
            "sequence": 3,
            "at": "2026-01-02T03:04:05Z",
            "step": 1,
            "attempt": 2,
            "replay": True,
            "parentToolCallId": "c",
            "event": {"kind": "chunk", "runId": "r", "body": "{}"},
        },
    ),
    (
        AgentToolEventFrame(source=RUN, sequence=0, at=AT, event=RunFinished(run_id="r")),
        {
            "type": "agent-tool-event",
            "source": RUN,
            "sequence": 0,
            "at": "2026-01-02T03:04:05Z",
            "event": {"kind": "finished", "runId": "r", "summary": ""},
        },
    ),
    (
        TurnEventFrame(
            source="t/A/n/turns/1", sequence=0, at=AT, step=0, attempt=2, replay=True, event=TURN_EVENTS[2][0]
        ),
        {
            "type": "turn-event",
            "source": "t/A/n/turns/1",
            "sequence": 0,
            "at": "2026-01-02T03:04:05Z",
            "step": 0,
            "attempt": 2,
            "replay": True,
            "event": {"kind": "finished", "turnId": "1"},
        },
    ),
    (
        GapFrame(source=RUN, sequence=1, at=AT, step=0, attempt=2, replay=True, lost=2),
        {
            "type": "gap",
            "source": RUN,
            "sequence": 1,
            "at": "2026-01-02T03:04:05Z",
            "step": 0,
            "attempt": 2,
            "replay": True,
            "lost": 2,
        },
    ),
    (
        MessageFrame(
            source="t/A/n", sequence=0, at=AT, step=0, attempt=2, replay=True, message=user_message("m", "hi")
        ),
        {
            "type": "message",
            "source": "t/A/n",
            "sequence": 0,
            "at": "2026-01-02T03:04:05Z",
            "step": 0,
            "attempt": 2,
            "replay": True,
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        },
    ),
    (
        EventFrame(
            source=RUN,
            sequence=1,
            at=AT,
            step=0,
            attempt=2,
            replay=True,
            event=Event(type="agent_tool:detached:delivery_failed", payload={"callback": None}),
        ),
        {
            "type": "event",
            "source": RUN,
            "sequence": 1,
            "at": "2026-01-02T03:04:05Z",
            "step": 0,
            "attempt": 2,
            "replay": True,
            "event": {"type": "agent_tool:detached:delivery_failed", "payload": {"callback": None}},
        },
    ),
    (
        SnapshotFrame(
            runs=(AgentToolRunInfo(run_id="r", agent_type="A", status="running", started_at=AT),),
            turns=(TurnInfo(turn_id="1", submission_id="s", message_id="m", status="queued", submitted_at=AT),),
        ),
        {
            "type": "snapshot",
            "runs": [
                {
                    "runId": "r",
                    "agentType": "A",
                    "status": "running",
                    "displayOrder": 0,
                    "startedAt": "2026-01-02T03:04:05Z",
                }
            ],
            "turns": [
                {
                    "turnId": "1",
                    "submissionId": "s",
                    "messageId": "m",
                    "status": "queued",
                    "submittedAt": "2026-01-02T03:04:05Z",
                }
            ],
        },
    ),
    (ResyncFrame(reason="too-old"), {"type": "resync", "reason": "too-old"}),
]

GOLDEN = [
    *((model, wire, RunEvent) for model, wire in RUN_EVENTS),
    *((model, wire, TurnEvent) for model, wire in TURN_EVENTS),
    *((model, wire, Frame) for model, wire in FRAMES),
]


@pytest.mark.parametrize(("model", "wire", "union"), GOLDEN)
def test_ev_01_an_event_is_written_without_a_null_and_read_as_what_it_was(
    model: WireModel, wire: dict[str, JsonValue], union: Any
) -> None:
    """EV-01 to EV-07, EV-15: what is not known is an absent key, never null."""
    assert json.loads(model.model_dump_json()) == wire
    assert TypeAdapter(union).validate_json(json.dumps(wire)) == model


def test_every_field_of_every_event_and_frame_has_its_golden_json() -> None:
    """A new frame gets its lines here, and so does a new field."""
    models = [value for value in vars(frames).values() if isinstance(value, type) and issubclass(value, WireModel)]
    ours = [model for model in models if model.__module__ == frames.__name__ and not model.__name__.startswith("_")]
    expected = {(model.__name__, str(field.alias)) for model in ours for field in model.model_fields.values()}
    assert expected - {(type(model).__name__, name) for model, wire, _ in GOLDEN for name in wire} == set()


def test_ev_08_there_are_no_other_kinds() -> None:
    """EV-08: progress and milestones travel inside `chunk`."""
    for kind in ("progress", "milestone", "running"):
        with pytest.raises(ValidationError):
            TypeAdapter(RunEvent).validate_python({"kind": kind, "runId": "r", "body": "{}"})


def test_ev_10_a_frame_is_marked_as_replayed_or_not_at_all() -> None:
    """EV-10: clients know `replay: true` and nothing else."""
    with pytest.raises(ValidationError):
        TypeAdapter(Frame).validate_python({**FRAMES[0][1], "replay": False})


def _result(**fields: Any) -> AgentToolResult:
    return AgentToolResult(run_id="r", agent_type="A", **fields)


@pytest.mark.parametrize(
    ("result", "event"),
    [
        (_result(status="completed", summary="s", output={"a": 1}), RunFinished(run_id="r/runs/s", summary="s")),
        (_result(status="completed"), RunFinished(run_id="r/runs/s", summary="")),
        (_result(status="error", error="e"), RunError(run_id="r/runs/s", error="e")),
        (_result(status="aborted", error="w"), RunAborted(run_id="r/runs/s", reason="w")),
        (_result(status="aborted"), RunAborted(run_id="r/runs/s")),
        (
            _result(status="interrupted", error="e", reason="budget-exceeded", child_still_running=True),
            RunInterrupted(run_id="r/runs/s", error="e", reason="budget-exceeded", child_still_running=True),
        ),
    ],
)
def test_cr_15_a_runs_end_is_told_by_its_result(result: AgentToolResult, event: WireModel) -> None:
    """CR-15, EV-04 to EV-07, EV-14: under the run's path, with what the result says."""
    assert end_event("r/runs/s", result) == event


@pytest.mark.parametrize("status", ["error", "interrupted"])
def test_ev_05_an_end_without_a_text_gets_a_generic_one(status: str) -> None:
    """EV-05, EV-16: a person reads it, so it is never empty."""
    event = end_event("r", _result(status=status, error=""))
    assert isinstance(event, RunError | RunInterrupted)
    assert event.error.startswith("The sub-agent ")


def test_ev_17_only_being_given_up_may_be_followed_by_another_end() -> None:
    """EV-17, CR-14: an interrupted run may be repaired; the other ends are final."""
    kinds = {str(wire["kind"]) for _, wire in (*RUN_EVENTS, *TURN_EVENTS)}
    assert kinds - END_KINDS == {"started", "chunk", "interrupted"}
