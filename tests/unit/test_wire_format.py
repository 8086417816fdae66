"""The JSON of runs and of everything that crosses an activity's edge, letter by letter.

Histories, clients in other languages and workers of other releases read it. A test that fails here says that they would
not understand each other: a new field needs a default, and no field may change its name.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

from turnkeeper import runs, steps
from turnkeeper.dispatches import AgentProfile, DetachedOptions, DispatchRunInput, ReattachWindows
from turnkeeper.events import Event
from turnkeeper.frames import RunFinished, TurnFinished
from turnkeeper.messages import ToolPart, user_message
from turnkeeper.runs import (
    AgentToolFailure,
    AgentToolMilestone,
    AgentToolProgress,
    AgentToolResult,
    AgentToolRunHandle,
    AgentToolRunInfo,
    AgentToolRunInspection,
    DeliveryInfo,
    Display,
)
from turnkeeper.steps import (
    AgentToolDispatch,
    AttachRunInput,
    AttachRunResult,
    CallHookInput,
    CallModelInput,
    CallToolInput,
    CheckOutputInput,
    DispatchDetachedInput,
    FunctionToolDispatch,
    HookResult,
    InspectRunsInput,
    InspectRunsResult,
    PublishInput,
    ReachedMilestone,
    RefusedDispatch,
    SettledStep,
    StepResult,
    StepSource,
    ToolResult,
    Usage,
)
from turnkeeper.turns import Compaction, ContextState, Report, TranscriptRef
from turnkeeper.wire import WireModel

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROFILE = AgentProfile(agent_type="A")
MESSAGE = user_message("m", "hi")
FULL = ContextState(tokens=9)
SOURCE = StepSource(workflow_id="t/A/n/turns/1", instance="t/A/n", turn_id="1")
RESULT = AgentToolResult(run_id="r", agent_type="A", status="completed")
REF = TranscriptRef(workflow_id="t/A/n", first_temporal_run_id="f", length=2)
CALL = ToolPart(type="tool-add", tool_call_id="c", state="output-available")
REACHED = ReachedMilestone(
    milestone=AgentToolMilestone(name="found", sequence=0, at=AT), report=Report(report_id="u", at=AT)
)

# Of each model one instance with everything in it, and one with nothing but what it must have.
RUNS: list[tuple[WireModel, str]] = [
    (
        AgentToolRunHandle(run_id="r", agent_type="A", status="error", error="e"),
        """{"runId": "r", "agentType": "A", "status": "error", "error": "e"}""",
    ),
    (
        AgentToolRunHandle(run_id="r", agent_type="A", status="running"),
        """{"runId": "r", "agentType": "A", "status": "running"}""",
    ),
    (
        DeliveryInfo(to="webhook", slot="give_up", status="dead", attempts=2, error="e"),
        """{"to": "webhook", "slot": "give_up", "status": "dead", "attempts": 2, "error": "e"}""",
    ),
    (
        DeliveryInfo(slot="finish", status="pending"),
        """{"to": "agent", "slot": "finish", "status": "pending", "attempts": 0}""",
    ),
    (
        Display(name="Desk", icon="🔎"),
        """{"name": "Desk", "icon": "🔎"}""",
    ),
    (
        Display(),
        """{}""",
    ),
    (
        AgentToolResult(
            run_id="r",
            agent_type="A",
            status="interrupted",
            output={"a": None},
            summary="s",
            error="e",
            reason="no-progress",
            child_still_running=True,
        ),
        """{
            "runId": "r",
            "agentType": "A",
            "status": "interrupted",
            "output": {"a": null},
            "summary": "s",
            "error": "e",
            "reason": "no-progress",
            "childStillRunning": true
        }""",
    ),
    (
        AgentToolResult(run_id="r", agent_type="A", status="completed"),
        """{"runId": "r", "agentType": "A", "status": "completed"}""",
    ),
    (
        AgentToolFailure(
            status="interrupted", error="e", retryable=True, reason="no-progress", child_still_running=False
        ),
        """{
            "ok": false,
            "status": "interrupted",
            "error": "e",
            "retryable": true,
            "reason": "no-progress",
            "childStillRunning": false
        }""",
    ),
    (
        AgentToolFailure(status="error", error="e", retryable=False),
        """{"ok": false, "status": "error", "error": "e", "retryable": false}""",
    ),
    (
        AgentToolRunInfo(
            run_id="r",
            agent_type="A",
            status="interrupted",
            input_preview="p",
            parent_tool_call_id="c",
            display_order=1,
            display=Display(name="D"),
            started_at=AT,
            completed_at=AT,
            summary="s",
            error="e",
            reason="window-exceeded",
            child_still_running=True,
            detached=True,
            notify_source="s",
            deliveries=(DeliveryInfo(slot="finish", status="pending"),),
        ),
        """{
            "runId": "r",
            "agentType": "A",
            "status": "interrupted",
            "inputPreview": "p",
            "parentToolCallId": "c",
            "displayOrder": 1,
            "display": {"name": "D"},
            "startedAt": "2026-01-02T03:04:05Z",
            "completedAt": "2026-01-02T03:04:05Z",
            "summary": "s",
            "error": "e",
            "reason": "window-exceeded",
            "childStillRunning": true,
            "detached": true,
            "notifySource": "s",
            "deliveries": [{"to": "agent", "slot": "finish", "status": "pending", "attempts": 0}]
        }""",
    ),
    (
        AgentToolRunInfo(run_id="r", agent_type="A", status="starting", started_at=AT),
        """{
            "runId": "r",
            "agentType": "A",
            "status": "starting",
            "displayOrder": 0,
            "startedAt": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        AgentToolRunInspection(
            run_id="r",
            agent_type="A",
            status="error",
            output=[1],
            summary="s",
            error="e",
            started_at=AT,
            completed_at=AT,
            steps=2,
            progress=AgentToolProgress(at=AT, phase="reading"),
            milestones=(AgentToolMilestone(name="found", sequence=0, at=AT),),
        ),
        """{
            "runId": "r",
            "agentType": "A",
            "status": "error",
            "output": [1],
            "summary": "s",
            "error": "e",
            "startedAt": "2026-01-02T03:04:05Z",
            "completedAt": "2026-01-02T03:04:05Z",
            "steps": 2,
            "progress": {"phase": "reading", "at": "2026-01-02T03:04:05Z"},
            "milestones": [{"name": "found", "sequence": 0, "at": "2026-01-02T03:04:05Z"}]
        }""",
    ),
    (
        AgentToolRunInspection(run_id="r", agent_type="A", status="running", started_at=AT),
        """{
            "runId": "r",
            "agentType": "A",
            "status": "running",
            "startedAt": "2026-01-02T03:04:05Z",
            "steps": 0
        }""",
    ),
    (
        AgentToolProgress(fraction=0.5, message="half", phase="reading", milestone="found", data={"a": None}, at=AT),
        """{
            "fraction": 0.5,
            "message": "half",
            "phase": "reading",
            "milestone": "found",
            "data": {"a": null},
            "at": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        AgentToolProgress(at=AT),
        """{"at": "2026-01-02T03:04:05Z"}""",
    ),
    (
        AgentToolMilestone(name="found", sequence=1, at=AT, data=[None]),
        """{"name": "found", "sequence": 1, "at": "2026-01-02T03:04:05Z", "data": [null]}""",
    ),
    (
        AgentToolMilestone(name="found", sequence=0, at=AT),
        """{"name": "found", "sequence": 0, "at": "2026-01-02T03:04:05Z"}""",
    ),
]

STEPS: list[tuple[WireModel, str]] = [
    (
        StepSource(
            workflow_id="t/A/n/turns/1", instance="t/A/n", turn_id="1", step=2, silence_budget=timedelta(seconds=1)
        ),
        """{
            "workflowId": "t/A/n/turns/1",
            "instance": "t/A/n",
            "turnId": "1",
            "step": 2,
            "silenceBudget": "PT1S"
        }""",
    ),
    (
        StepSource(workflow_id="t/A/n/turns/1", instance="t/A/n", turn_id="1"),
        """{"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0}""",
    ),
    (
        CallModelInput(
            agent_type="A", source=SOURCE, transcript=(REF,), message_id="turn-1", context=FULL, is_last=True
        ),
        """{
            "agentType": "A",
            "source": {"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0},
            "transcript": [{"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 0, "length": 2}],
            "messageId": "turn-1",
            "context": {"tokens": 9},
            "isLast": true
        }""",
    ),
    (
        CallModelInput(agent_type="A", source=SOURCE, transcript=(), message_id="turn-1"),
        """{
            "agentType": "A",
            "source": {"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0},
            "transcript": [], "messageId": "turn-1", "isLast": false
        }""",
    ),
    (
        FunctionToolDispatch(timeout=timedelta(minutes=10), attempts=3),
        """{"kind": "function", "timeout": "PT10M", "attempts": 3}""",
    ),
    (
        FunctionToolDispatch(timeout=timedelta(seconds=1.5)),
        """{"kind": "function", "timeout": "PT1.5S", "attempts": 1}""",
    ),
    (
        AgentToolDispatch(
            profile=PROFILE,
            input={"query": None},
            input_preview="p",
            display=Display(icon="i"),
            detached=DetachedOptions(),
            checks_output=True,
        ),
        """{
            "kind": "agent",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "input": {"query": null},
            "inputPreview": "p",
            "display": {"icon": "i"},
            "detached": {"milestones": [], "milestoneMode": "narrate"},
            "checksOutput": true
        }""",
    ),
    (
        AgentToolDispatch(profile=PROFILE),
        """{
            "kind": "agent",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "checksOutput": false
        }""",
    ),
    (
        RefusedDispatch(error="e"),
        """{"kind": "refused", "error": "e"}""",
    ),
    (
        Usage(input_tokens=1, output_tokens=2),
        """{"inputTokens": 1, "outputTokens": 2}""",
    ),
    (
        Usage(),
        """{"inputTokens": 0, "outputTokens": 0}""",
    ),
    (
        StepResult(
            message=MESSAGE,
            dispatches=(RefusedDispatch(error="e"), FunctionToolDispatch(timeout=timedelta(seconds=1))),
            usage=Usage(input_tokens=1),
            model="small",
            compaction=Compaction(summary="s", replaces=2),
        ),
        """{
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "dispatches": [{"kind": "refused", "error": "e"}, {"kind": "function", "timeout": "PT1S", "attempts": 1}],
            "usage": {"inputTokens": 1, "outputTokens": 0},
            "model": "small",
            "compaction": {"summary": "s", "replaces": 2}
        }""",
    ),
    (
        StepResult(message=MESSAGE),
        """{
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "dispatches": [], "usage": {"inputTokens": 0, "outputTokens": 0}
        }""",
    ),
    (
        CallToolInput(
            agent_type="A", source=SOURCE, tool_name="add", tool_call_id="c", arguments={"a": None}, idempotency_key="k"
        ),
        """{
            "agentType": "A",
            "source": {"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0},
            "toolName": "add",
            "toolCallId": "c",
            "arguments": {"a": null},
            "idempotencyKey": "k"
        }""",
    ),
    (
        CallToolInput(agent_type="A", source=SOURCE, tool_name="add", tool_call_id="c", idempotency_key="k"),
        """{
            "agentType": "A",
            "source": {"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0},
            "toolName": "add",
            "toolCallId": "c",
            "idempotencyKey": "k"
        }""",
    ),
    (
        ToolResult(output={"a": None}, error="e"),
        """{"output": {"a": null}, "error": "e"}""",
    ),
    (
        ToolResult(),
        """{}""",
    ),
    (
        CallHookInput(
            agent_type="A",
            source=SOURCE,
            hook="on_agent_tool_start",
            idempotency_key="k",
            only_before="t/A/n/runs/r",
            is_callback=True,
            arguments=({"a": None}, None),
            transcript=(REF,),
        ),
        """{
            "agentType": "A",
            "source": {"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0},
            "hook": "on_agent_tool_start",
            "idempotencyKey": "k",
            "onlyBefore": "t/A/n/runs/r",
            "isCallback": true,
            "arguments": [{"a": null}, null],
            "transcript": [{"workflowId": "t/A/n", "firstTemporalRunId": "f", "revision": 0, "length": 2}]
        }""",
    ),
    (
        CallHookInput(agent_type="A", source=SOURCE, hook="on_agent_tool_start", idempotency_key="k"),
        """{
            "agentType": "A",
            "source": {"workflowId": "t/A/n/turns/1", "instance": "t/A/n", "turnId": "1", "step": 0},
            "hook": "on_agent_tool_start",
            "idempotencyKey": "k",
            "isCallback": false,
            "arguments": [],
            "transcript": []
        }""",
    ),
    (
        HookResult(value=[None]),
        """{"value": [null]}""",
    ),
    (
        HookResult(),
        """{}""",
    ),
    (
        CheckOutputInput(agent_type="A", tool_name="ask", output={"a": None}),
        """{"agentType": "A", "toolName": "ask", "output": {"a": null}}""",
    ),
    (
        CheckOutputInput(agent_type="A", tool_name="ask"),
        """{"agentType": "A", "toolName": "ask"}""",
    ),
    (
        AttachRunInput(workflow_id="t/A/n/runs/r", run_id="r", agent_type="A", input_digest="d"),
        """{"workflowId": "t/A/n/runs/r", "runId": "r", "agentType": "A", "inputDigest": "d"}""",
    ),
    (
        AttachRunInput(
            workflow_id="t/A/n/runs/r",
            run_id="r",
            agent_type="A",
            input_digest="d",
            windows=ReattachWindows(no_progress=None),
        ),
        """{"workflowId": "t/A/n/runs/r", "runId": "r", "agentType": "A", "inputDigest": "d", "windows": {}}""",
    ),
    (
        InspectRunsInput(workflow_ids=("t/A/n/runs/r",)),
        """{"workflowIds": ["t/A/n/runs/r"]}""",
    ),
    (
        InspectRunsResult(results=(RESULT, None)),
        """{"results": [{"runId": "r", "agentType": "A", "status": "completed"}, null]}""",
    ),
    (
        DispatchDetachedInput(session_id="t/A/n", request=DispatchRunInput(run_id="r", profile=PROFILE)),
        """{
            "sessionId": "t/A/n",
            "request": {
                "runId": "r",
                "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
                "displayOrder": 0
            }
        }""",
    ),
    (
        AttachRunResult(result=RESULT, conflict="c"),
        """{"result": {"runId": "r", "agentType": "A", "status": "completed"}, "conflict": "c"}""",
    ),
    (
        AttachRunResult(),
        """{}""",
    ),
]

TOLD: list[tuple[WireModel, str]] = [
    (
        SettledStep(step=2, calls=(CALL,)),
        """{
            "step": 2,
            "calls": [
                {
                    "type": "tool-add",
                    "toolCallId": "c",
                    "state": "output-available",
                    "input": null,
                    "output": null,
                    "providerExecuted": true
                }
            ]
        }""",
    ),
    (
        SettledStep(step=0),
        """{"step": 0, "calls": []}""",
    ),
    (
        REACHED,
        """{
            "milestone": {"name": "found", "sequence": 0, "at": "2026-01-02T03:04:05Z"},
            "report": {"reportId": "u", "at": "2026-01-02T03:04:05Z"}
        }""",
    ),
    (
        PublishInput(
            source="t/A/n/runs/r",
            settled=SettledStep(step=0),
            milestones=(REACHED,),
            runs=(RunFinished(run_id="r"),),
            occasion="/o",
            turn=TurnFinished(turn_id="1"),
            message=MESSAGE,
            events=(Event(type="agent_tool:detached:delivery_failed", payload={"callback": None}),),
        ),
        """{
            "source": "t/A/n/runs/r",
            "settled": {"step": 0, "calls": []},
            "milestones": [
                {
                    "milestone": {"name": "found", "sequence": 0, "at": "2026-01-02T03:04:05Z"},
                    "report": {"reportId": "u", "at": "2026-01-02T03:04:05Z"}
                }
            ],
            "runs": [{"kind": "finished", "runId": "r", "summary": ""}],
            "occasion": "/o",
            "turn": {"kind": "finished", "turnId": "1"},
            "message": {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "events": [{"type": "agent_tool:detached:delivery_failed", "payload": {"callback": null}}]
        }""",
    ),
    (
        PublishInput(source="t/A/n/runs/r"),
        """{"source": "t/A/n/runs/r", "milestones": [], "runs": [], "occasion": "", "events": []}""",
    ),
]

GOLDEN = [*RUNS, *STEPS, *TOLD]
MODULES = [runs, steps]

NULLS: list[WireModel] = [
    AgentToolDispatch(profile=PROFILE, input=None),
    CallToolInput(
        agent_type="A", source=SOURCE, tool_name="add", tool_call_id="c", arguments=None, idempotency_key="k"
    ),
    CheckOutputInput(agent_type="A", tool_name="ask", output=None),
    CallHookInput(agent_type="A", source=SOURCE, hook="h", idempotency_key="k", arguments=(None,)),
    ToolResult(output=None),
    HookResult(value=None),
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
