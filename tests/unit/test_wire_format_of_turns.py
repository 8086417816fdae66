"""The JSON of everything that crosses a workflow's edge, letter by letter; see `test_wire_format.py`."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from turnkeeper import turns
from turnkeeper.dispatches import (
    AgentProfile,
    RunRecord,
    RunReported,
)
from turnkeeper.messages import user_message
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress, AgentToolResult, AgentToolRunInfo, Display
from turnkeeper.turns import (
    CancelTurnInput,
    ClearMessagesInput,
    Compaction,
    ContextState,
    GuidanceState,
    InstanceState,
    LoopState,
    MessagesInput,
    MessagesPage,
    QueuedDelivery,
    QueuedNotice,
    QueuedTurn,
    Report,
    ReportInput,
    ReportState,
    RunInput,
    SessionInput,
    SessionSnapshot,
    SetStateInput,
    SteerInput,
    SubmitInput,
    TranscriptRef,
    TurnInfo,
    TurnInput,
    TurnRecord,
    TurnResult,
    WrapUpInput,
)
from turnkeeper.wire import WireModel

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROFILE = AgentProfile(agent_type="A")
MESSAGE = user_message("m", "hi")
INFO = AgentToolRunInfo(run_id="r", agent_type="A", status="starting", started_at=AT)
RESULT = AgentToolResult(run_id="r", agent_type="A", status="completed")
RECORD = RunRecord(info=INFO, input_digest="d")
STATE = LoopState(started_at=AT)
CONTEXT = ContextState(compaction=Compaction(summary="s", replaces=2), tokens=9)
REF = TranscriptRef(workflow_id="t/A/n", first_temporal_run_id="f", length=2)
TURN = TurnInfo(turn_id="1", submission_id="s", message_id="m", status="queued", submitted_at=AT)

# Of each model one instance with everything in it, and one with nothing but what it must have.
TURNS: list[tuple[WireModel, str]] = [
    (
        TranscriptRef(workflow_id="t/A/n", first_temporal_run_id="f", revision=1, length=2),
        """{"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 1, "length": 2}""",
    ),
    (
        TranscriptRef(workflow_id="t/A/n", first_temporal_run_id="f", length=2),
        """{"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 0, "length": 2}""",
    ),
    (
        MessagesInput(after=3),
        """{"after": 3}""",
    ),
    (
        MessagesInput(),
        """{"after": 0}""",
    ),
    (
        MessagesPage(messages=(MESSAGE,), total=2, revision=1),
        """{
            "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
            "total": 2,
            "revision": 1
        }""",
    ),
    (
        MessagesPage(messages=(), total=0),
        """{"messages": [], "total": 0, "revision": 0}""",
    ),
    (
        SubmitInput(submission_id="s", message=MESSAGE, profile=PROFILE),
        """{
            "submissionId": "s",
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []}
        }""",
    ),
    (
        TurnInfo(
            turn_id="1",
            submission_id="s",
            message_id="m",
            status="error",
            submitted_at=AT,
            started_at=AT,
            completed_at=AT,
            error="e",
        ),
        """{
            "turnId": "1",
            "submissionId": "s",
            "messageId": "m",
            "status": "error",
            "submittedAt": "2026-01-02T03:04:05Z",
            "startedAt": "2026-01-02T03:04:05Z",
            "completedAt": "2026-01-02T03:04:05Z",
            "error": "e"
        }""",
    ),
    (
        TurnInfo(turn_id="1", submission_id="s", message_id="m", status="queued", submitted_at=AT),
        """{
            "turnId": "1",
            "submissionId": "s",
            "messageId": "m",
            "status": "queued",
            "submittedAt": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        CancelTurnInput(turn_id="1", reason="r"),
        """{"turnId": "1", "reason": "r"}""",
    ),
    (
        CancelTurnInput(turn_id="1"),
        """{"turnId": "1"}""",
    ),
    (
        SteerInput(message_id="m", text="t"),
        """{"messageId": "m", "text": "t"}""",
    ),
    (
        WrapUpInput(reason="r"),
        """{"reason": "r"}""",
    ),
    (
        WrapUpInput(),
        "{}",
    ),
    (
        GuidanceState(waiting=(SteerInput(message_id="m", text="t"),), seen=("m",), is_wrapping_up=True),
        """{"waiting": [{"messageId": "m", "text": "t"}], "seen": ["m"], "isWrappingUp": true}""",
    ),
    (
        Compaction(summary="s", replaces=2),
        """{"summary": "s", "replaces": 2}""",
    ),
    (
        CONTEXT,
        """{"compaction": {"summary": "s", "replaces": 2}, "tokens": 9}""",
    ),
    (
        ContextState(),
        """{"tokens": 0}""",
    ),
    (
        TurnResult(context=CONTEXT),
        """{
            "runs": [],
            "context": {"compaction": {"summary": "s", "replaces": 2}, "tokens": 9}
        }""",
    ),
    (
        TurnInput(instance="t/A/n", turn_id="1", profile=PROFILE, transcript=REF, context=CONTEXT),
        """{
            "instance": "t/A/n",
            "turnId": "1",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "transcript": {"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 0, "length": 2},
            "context": {"compaction": {"summary": "s", "replaces": 2}, "tokens": 9},
            "openRuns": 0
        }""",
    ),
    (
        SessionInput(profile=PROFILE, context=CONTEXT),
        """{
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "turnsSubmitted": 0,
            "messages": [],
            "queue": [],
            "reports": [],
            "revision": 0,
            "state": {"isSet": false},
            "context": {"compaction": {"summary": "s", "replaces": 2}, "tokens": 9},
            "seenRequests": [],
            "turns": [],
            "runs": []
        }""",
    ),
    (
        LoopState(context=CONTEXT, refused_steps=1, started_at=AT),
        """{
            "messages": [],
            "steps": 0,
            "runs": [],
            "context": {"compaction": {"summary": "s", "replaces": 2}, "tokens": 9},
            "refusedSteps": 1,
            "startedAt": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        GuidanceState(),
        """{"waiting": [], "seen": [], "isWrappingUp": false}""",
    ),
    (
        SessionSnapshot(
            agent_type="A", name="n", active_turn_id="1", queued_turns=2, turns_submitted=4, messages=3, turns=(TURN,)
        ),
        """{
            "agentType": "A",
            "name": "n",
            "activeTurnId": "1",
            "queuedTurns": 2,
            "turnsSubmitted": 4,
            "messages": 3,
            "turns": [
                {
                    "turnId": "1",
                    "submissionId": "s",
                    "messageId": "m",
                    "status": "queued",
                    "submittedAt": "2026-01-02T03:04:05Z"
                }
            ]
        }""",
    ),
    (
        SessionSnapshot(agent_type="A", name="n", queued_turns=0, messages=0, turns=()),
        """{"agentType": "A", "name": "n", "queuedTurns": 0, "turnsSubmitted": 0, "messages": 0, "turns": []}""",
    ),
    (
        QueuedTurn(turn_id="1", message=MESSAGE, profile=PROFILE),
        """{
            "kind": "turn",
            "turnId": "1",
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []}
        }""",
    ),
    (
        QueuedDelivery(path="a/runs/b", slot="give_up"),
        """{"kind": "delivery", "path": "a/runs/b", "slot": "give_up"}""",
    ),
    (
        QueuedNotice(path="r", milestone="found", data={"a": None}),
        """{"kind": "notice", "path": "r", "milestone": "found", "data": {"a": null}}""",
    ),
    (
        TurnRecord(info=TURN, digest="d"),
        """{
            "info": {
                "turnId": "1",
                "submissionId": "s",
                "messageId": "m",
                "status": "queued",
                "submittedAt": "2026-01-02T03:04:05Z"
            },
            "digest": "d"
        }""",
    ),
    (
        SessionInput(
            profile=PROFILE,
            turns_submitted=1,
            messages=(MESSAGE,),
            queue=(
                QueuedTurn(turn_id="2", message=MESSAGE, profile=PROFILE),
                QueuedDelivery(path="r", slot="finish"),
            ),
            reports=(RunReported(path="r", run_id="r", progress=AgentToolProgress(at=TURN.submitted_at)),),
            revision=1,
            state=InstanceState(value={"a": None}, is_set=True),
            seen_requests=("r",),
            turns=(TurnRecord(info=TURN, digest="d"),),
            runs=(RECORD,),
            reconcile_at=TURN.submitted_at,
        ),
        """{
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "turnsSubmitted": 1,
            "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
            "queue": [
                {
                    "kind": "turn",
                    "turnId": "2",
                    "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
                    "profile": {"agentType": "A", "maxSteps": 20, "hooks": []}
                },
                {
                    "kind": "delivery",
                    "path": "r",
                    "slot": "finish"
                }
            ],
            "reports": [
                {"path": "r", "runId": "r", "progress": {"at": "2026-01-02T03:04:05Z"}}
            ],
            "revision": 1,
            "state": {"value": {"a": null}, "isSet": true},
            "seenRequests": ["r"],
            "turns": [
                {
                    "info": {
                        "turnId": "1",
                        "submissionId": "s",
                        "messageId": "m",
                        "status": "queued",
                        "submittedAt": "2026-01-02T03:04:05Z"
                    },
                    "digest": "d"
                }
            ],
            "runs": [
                {
                    "info": {
                        "runId": "r",
                        "agentType": "A",
                        "status": "starting",
                        "displayOrder": 0,
                        "startedAt": "2026-01-02T03:04:05Z"
                    },
                    "inputDigest": "d",
                    "refused": false
                }
            ],
            "reconcileAt": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        SessionInput(profile=PROFILE),
        """{
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "turnsSubmitted": 0,
            "messages": [],
            "queue": [],
            "reports": [],
            "revision": 0,
            "state": {"isSet": false},
            "seenRequests": [],
            "turns": [],
            "runs": []
        }""",
    ),
    (
        InstanceState(value=1, is_set=True),
        """{"value": 1, "isSet": true}""",
    ),
    (
        InstanceState(),
        """{"isSet": false}""",
    ),
    (
        SetStateInput(request_id="r", value=[None]),
        """{"requestId": "r", "value": [null]}""",
    ),
    (
        SetStateInput(request_id="r"),
        """{"requestId": "r"}""",
    ),
    (
        ClearMessagesInput(request_id="r"),
        """{"requestId": "r"}""",
    ),
    (
        TurnInput(instance="t/A/n", turn_id="1", profile=PROFILE, transcript=REF, open_runs=1, state=STATE),
        """{
            "instance": "t/A/n",
            "turnId": "1",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "transcript": {"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 0, "length": 2},
            "openRuns": 1,
            "state": {"messages": [], "steps": 0, "runs": [], "startedAt": "2026-01-02T03:04:05Z"}
        }""",
    ),
    (
        TurnInput(instance="t/A/n", turn_id="1", profile=PROFILE, transcript=REF),
        """{
            "instance": "t/A/n",
            "turnId": "1",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "transcript": {"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 0, "length": 2},
            "openRuns": 0
        }""",
    ),
    (
        TurnResult(message=MESSAGE, runs=(RECORD,)),
        """{
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "runs": [
                {
                    "info": {
                        "runId": "r",
                        "agentType": "A",
                        "status": "starting",
                        "displayOrder": 0,
                        "startedAt": "2026-01-02T03:04:05Z"
                    },
                    "inputDigest": "d",
                    "refused": false
                }
            ]
        }""",
    ),
    (
        TurnResult(message=MESSAGE),
        """{"message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}, "runs": []}""",
    ),
    (
        RunInput(
            run_id="r",
            profile=PROFILE,
            input={"query": None},
            input_preview="p",
            parent_tool_call_id="c",
            display_order=1,
            display=Display(name="D"),
            forwards_progress=True,
            dispatcher="t/A/n",
            depth=1,
            silence_budget=timedelta(seconds=1),
            reports_to="t/A/n",
            state=STATE,
        ),
        """{
            "runId": "r",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "input": {"query": null},
            "inputPreview": "p",
            "parentToolCallId": "c",
            "displayOrder": 1,
            "display": {"name": "D"},
            "forwardsProgress": true,
            "dispatcher": "t/A/n",
            "depth": 1,
            "silenceBudget": "PT1S",
            "reportsTo": "t/A/n",
            "state": {"messages": [], "steps": 0, "runs": [], "startedAt": "2026-01-02T03:04:05Z"}
        }""",
    ),
    (
        RunInput(run_id="r", profile=PROFILE, dispatcher="t/A/n", depth=1),
        """{
            "runId": "r",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "displayOrder": 0,
            "forwardsProgress": false,
            "dispatcher": "t/A/n",
            "depth": 1
        }""",
    ),
    (
        LoopState(
            messages=(MESSAGE,),
            steps=1,
            runs=(RECORD,),
            reports=ReportState(),
            guidance=GuidanceState(),
            started_at=AT,
        ),
        """{
            "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
            "steps": 1,
            "runs": [
                {
                    "info": {
                        "runId": "r",
                        "agentType": "A",
                        "status": "starting",
                        "displayOrder": 0,
                        "startedAt": "2026-01-02T03:04:05Z"
                    },
                    "inputDigest": "d",
                    "refused": false
                }
            ],
            "reports": {"milestones": [], "seen": []},
            "guidance": {"waiting": [], "seen": [], "isWrappingUp": false},
            "startedAt": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        LoopState(started_at=AT),
        """{"messages": [], "steps": 0, "runs": [], "startedAt": "2026-01-02T03:04:05Z"}""",
    ),
]

REPORTS: list[tuple[WireModel, str]] = [
    (
        Report(
            report_id="u", at=AT, milestone="found", fraction=0.5, message="half", phase="reading", data={"a": None}
        ),
        """{
            "reportId": "u",
            "at": "2026-01-02T03:04:05Z",
            "milestone": "found",
            "fraction": 0.5,
            "message": "half",
            "phase": "reading",
            "data": {"a": null}
        }""",
    ),
    (
        Report(report_id="u", at=AT),
        """{"reportId": "u", "at": "2026-01-02T03:04:05Z"}""",
    ),
    (
        ReportInput(reports=(Report(report_id="u", at=AT, fraction=0.0),)),
        """{"reports": [{"reportId": "u", "at": "2026-01-02T03:04:05Z", "fraction": 0.0}]}""",
    ),
    (
        ReportState(
            progress=AgentToolProgress(at=AT, fraction=1),
            milestones=(AgentToolMilestone(name="found", sequence=0, at=AT),),
            seen=("u",),
        ),
        """{
            "progress": {"fraction": 1.0, "at": "2026-01-02T03:04:05Z"},
            "milestones": [{"name": "found", "sequence": 0, "at": "2026-01-02T03:04:05Z"}],
            "seen": ["u"]
        }""",
    ),
    (
        ReportState(),
        """{"milestones": [], "seen": []}""",
    ),
]

GOLDEN = [*TURNS, *REPORTS]
MODULES = [turns]

NULLS: list[WireModel] = [
    TurnResult(message=None),
    RunInput(run_id="r", profile=PROFILE, input=None, dispatcher="t/A/n", depth=1),
]


def _name(value: object) -> str:
    return type(value).__name__ if isinstance(value, WireModel) else "json"


@pytest.mark.parametrize(("model", "text"), GOLDEN, ids=_name)
def test_a_model_is_written_as_it_has_always_been(model: WireModel, text: str) -> None:
    """House rule 7: a golden JSON test per model."""
    assert json.loads(model.model_dump_json()) == json.loads(text)


@pytest.mark.parametrize(("model", "text"), GOLDEN, ids=_name)
def test_a_model_is_read_as_it_was_written(model: WireModel, text: str) -> None:
    """House rule 7: nothing is lost on the way."""
    assert type(model).model_validate_json(text) == model


@pytest.mark.parametrize(("model", "text"), GOLDEN, ids=_name)
def test_a_model_needs_no_field_that_has_a_default(model: WireModel, text: str) -> None:
    """House rule 7: what an older release wrote, without the newer fields, can be read."""
    required = {str(field.alias) for field in type(model).model_fields.values() if field.is_required()}
    older = {name: value for name, value in json.loads(text).items() if name in required}
    assert set(older) == required
    read = json.loads(type(model).model_validate(older).model_dump_json())
    assert {name: read[name] for name in required} == older


@pytest.mark.parametrize("model", NULLS, ids=_name)
def test_a_null_that_is_the_value_survives(model: WireModel) -> None:
    """A run's input, a tool's arguments and a stopped turn's message may be null."""
    assert type(model).model_validate_json(model.model_dump_json()) == model


def test_every_field_of_every_model_has_its_golden_json() -> None:
    """A new model gets its lines here, and so does a new field."""
    expected = {
        (name, field)
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, WireModel) and value.__module__ == module.__name__
        for field in value.model_fields
    }
    seen = {(_name(model), field) for model, text in GOLDEN for field in _fields_in(type(model), text)}
    assert expected - seen == set()


def _fields_in(model: type[WireModel], text: str) -> set[str]:
    names = json.loads(text)
    return {name for name, field in model.model_fields.items() if field.alias in names}
