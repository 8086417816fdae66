"""The JSON of dispatches and of what their dispatcher keeps, letter by letter; see `test_wire_format.py`."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from turnkeeper import author_dispatches, dispatches, events
from turnkeeper.author_dispatches import AuthorDispatchInput, AuthorDispatchResult, CancelAuthorRunInput
from turnkeeper.detached import DetachedRequest
from turnkeeper.dispatches import (
    USUAL_WINDOWS,
    AgentProfile,
    CancelRunInput,
    ClearRunsInput,
    Delivery,
    DetachedOptions,
    DispatchRunInput,
    DispatchRunResult,
    Posting,
    ReattachWindows,
    RunFinished,
    RunOwner,
    RunRecord,
    RunReported,
    RunWatch,
)
from turnkeeper.events import Event
from turnkeeper.runs import AgentToolProgress, AgentToolResult, AgentToolRunHandle, AgentToolRunInfo, Display
from turnkeeper.wire import WireModel

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROFILE = AgentProfile(agent_type="A")
INFO = AgentToolRunInfo(run_id="r", agent_type="A", status="starting", started_at=AT)
RESULT = AgentToolResult(run_id="r", agent_type="A", status="completed")
OWNER = RunOwner(instance="t/A/n/runs/a", profile=PROFILE)
OPTIONS = DetachedOptions()

# Of each model one instance with everything in it, and one with nothing but what it must have.
GOLDEN: list[tuple[WireModel, str]] = [
    (
        AgentProfile(
            agent_type="A",
            task_queue="q",
            model="openai/small",
            max_steps=3,
            max_concurrent_agent_tools=2,
            hooks=("on_agent_tool_start",),
        ),
        """{
            "agentType": "A",
            "taskQueue": "q",
            "model": "openai/small",
            "maxSteps": 3,
            "maxConcurrentAgentTools": 2,
            "hooks": ["on_agent_tool_start"]
        }""",
    ),
    (
        AgentProfile(agent_type="A"),
        """{"agentType": "A", "maxSteps": 20, "hooks": []}""",
    ),
    (
        DetachedOptions(
            on_finish="filed",
            max_budget=timedelta(hours=24),
            no_progress_budget=timedelta(hours=1),
            notify_source="s",
            milestones=("found",),
            milestone_mode="react",
            webhook="https://a.example/w",
        ),
        """{
            "onFinish": "filed",
            "maxBudget": "P1D",
            "noProgressBudget": "PT1H",
            "notifySource": "s",
            "milestones": ["found"],
            "milestoneMode": "react",
            "webhook": "https://a.example/w"
        }""",
    ),
    (
        DetachedOptions(),
        """{"milestones": [], "milestoneMode": "narrate"}""",
    ),
    (
        RunOwner(instance="t/A/n/runs/a", profile=PROFILE),
        """{"instance": "t/A/n/runs/a", "profile": {"agentType": "A", "maxSteps": 20, "hooks": []}}""",
    ),
    (
        DispatchRunInput(
            run_id="r",
            profile=PROFILE,
            input={"query": None},
            input_preview="p",
            parent_tool_call_id="c",
            display_order=1,
            display=Display(name="D"),
            detached=OPTIONS,
            owner=OWNER,
        ),
        """{
            "runId": "r",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "input": {"query": null},
            "inputPreview": "p",
            "parentToolCallId": "c",
            "displayOrder": 1,
            "display": {"name": "D"},
            "detached": {"milestones": [], "milestoneMode": "narrate"},
            "owner": {"instance": "t/A/n/runs/a", "profile": {"agentType": "A", "maxSteps": 20, "hooks": []}}
        }""",
    ),
    (
        DispatchRunInput(run_id="r", profile=PROFILE),
        """{
            "runId": "r",
            "profile": {"agentType": "A", "maxSteps": 20, "hooks": []},
            "displayOrder": 0
        }""",
    ),
    (
        DispatchRunResult(
            run_id="r", workflow_id="t/A/n/runs/r", result=RESULT, refused=True, joined=True, status="completed"
        ),
        """{
            "runId": "r",
            "workflowId": "t/A/n/runs/r",
            "result": {"runId": "r", "agentType": "A", "status": "completed"},
            "refused": true,
            "joined": true,
            "status": "completed"
        }""",
    ),
    (
        DispatchRunResult(run_id="r", workflow_id="t/A/n/runs/r"),
        """{"runId": "r", "workflowId": "t/A/n/runs/r", "refused": false, "joined": false}""",
    ),
    (
        CancelRunInput(run_id="r", reason="r"),
        """{"runId": "r", "reason": "r"}""",
    ),
    (
        CancelRunInput(run_id="r"),
        """{"runId": "r"}""",
    ),
    (
        ClearRunsInput(owner="a/runs/b", status=("completed", "error"), older_than=timedelta(days=1)),
        """{"owner": "a/runs/b", "status": ["completed", "error"], "olderThan": "P1D"}""",
    ),
    (
        ClearRunsInput(),
        """{"status": []}""",
    ),
    (
        RunFinished(path="a/runs/r", result=RESULT, at=AT),
        """{
            "path": "a/runs/r",
            "result": {"runId": "r", "agentType": "A", "status": "completed"},
            "at": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        RunReported(path="a/runs/r", run_id="r", progress=AgentToolProgress(at=AT, message="half")),
        """{"path": "a/runs/r", "runId": "r", "progress": {"message": "half", "at": "2026-01-02T03:04:05Z"}}""",
    ),
    (
        Delivery(
            slot="give_up",
            result=RESULT,
            is_hook_done=True,
            outcome="delivered",
            attempts=2,
            due_at=AT,
            error="e",
            at=AT,
            posting=Posting(),
        ),
        """{
            "slot": "give_up",
            "result": {"runId": "r", "agentType": "A", "status": "completed"},
            "isHookDone": true,
            "outcome": "delivered",
            "attempts": 2,
            "dueAt": "2026-01-02T03:04:05Z",
            "error": "e",
            "at": "2026-01-02T03:04:05Z",
            "posting": {"attempts": 0}
        }""",
    ),
    (
        Posting(attempts=1, due_at=AT, outcome="dead", error="e"),
        """{"attempts": 1, "dueAt": "2026-01-02T03:04:05Z", "outcome": "dead", "error": "e"}""",
    ),
    (
        Posting(),
        """{"attempts": 0}""",
    ),
    (
        ReattachWindows(no_progress=timedelta(seconds=1), max_window=timedelta(hours=1)),
        """{"noProgress": "PT1S", "maxWindow": "PT1H"}""",
    ),
    (
        ReattachWindows(),
        """{}""",
    ),
    (
        AgentProfile(agent_type="A", run_retention=timedelta(days=1), reattach=USUAL_WINDOWS),
        """{
            "agentType": "A",
            "maxSteps": 20,
            "runRetention": "P1D",
            "reattach": {"noProgress": "PT2M"},
            "hooks": []
        }""",
    ),
    (
        Delivery(slot="finish", result=RESULT, at=AT),
        """{
            "slot": "finish",
            "result": {"runId": "r", "agentType": "A", "status": "completed"},
            "isHookDone": false,
            "attempts": 0,
            "at": "2026-01-02T03:04:05Z"
        }""",
    ),
    (
        RunWatch(
            options=OPTIONS,
            owner=OWNER,
            deadline=AT,
            last_signal_at=AT,
            noticed=("found",),
            deliveries=(Delivery(slot="finish", result=RESULT, at=AT),),
        ),
        """{
            "options": {"milestones": [], "milestoneMode": "narrate"},
            "owner": {"instance": "t/A/n/runs/a", "profile": {"agentType": "A", "maxSteps": 20, "hooks": []}},
            "deadline": "2026-01-02T03:04:05Z",
            "lastSignalAt": "2026-01-02T03:04:05Z",
            "noticed": ["found"],
            "deliveries": [
                {
                    "slot": "finish",
                    "result": {"runId": "r", "agentType": "A", "status": "completed"},
                    "isHookDone": false,
                    "attempts": 0,
                    "at": "2026-01-02T03:04:05Z"
                }
            ]
        }""",
    ),
    (
        RunWatch(options=OPTIONS),
        """{"options": {"milestones": [], "milestoneMode": "narrate"}, "noticed": [], "deliveries": []}""",
    ),
    (
        RunRecord(info=INFO, input_digest="d", result=RESULT, refused=True, watch=RunWatch(options=OPTIONS)),
        """{
            "info": {
                "runId": "r",
                "agentType": "A",
                "status": "starting",
                "displayOrder": 0,
                "startedAt": "2026-01-02T03:04:05Z"
            },
            "inputDigest": "d",
            "result": {"runId": "r", "agentType": "A", "status": "completed"},
            "refused": true,
            "watch": {
                "options": {"milestones": [], "milestoneMode": "narrate"},
                "noticed": [],
                "deliveries": []
            }
        }""",
    ),
    (
        RunRecord(info=INFO, input_digest="d"),
        """{
            "info": {
                "runId": "r",
                "agentType": "A",
                "status": "starting",
                "displayOrder": 0,
                "startedAt": "2026-01-02T03:04:05Z"
            },
            "inputDigest": "d",
            "refused": false
        }""",
    ),
    (
        AuthorDispatchInput(
            agent="A",
            instance=("B", "n"),
            run_id="r",
            input=None,
            input_preview="p",
            display=Display(name="D"),
            detached=DetachedRequest(),
        ),
        """{
            "agent": "A",
            "instance": ["B", "n"],
            "runId": "r",
            "inputPreview": "p",
            "display": {"name": "D"},
            "detached": {"notify": false, "milestones": {"names": [], "mode": "narrate"}}
        }""",
    ),
    (
        AuthorDispatchInput(agent="A", instance=("B", "n"), run_id="r", input={"q": None}),
        """{"agent": "A", "instance": ["B", "n"], "runId": "r", "input": {"q": null}}""",
    ),
    (
        AuthorDispatchResult(
            workflow_id="t/B/n/runs/r",
            input_digest="d",
            joined=True,
            handle=AgentToolRunHandle(run_id="r", agent_type="A", status="running"),
            result=RESULT,
        ),
        """{
            "workflowId": "t/B/n/runs/r",
            "inputDigest": "d",
            "joined": true,
            "handle": {"runId": "r", "agentType": "A", "status": "running"},
            "result": {"runId": "r", "agentType": "A", "status": "completed"}
        }""",
    ),
    (
        AuthorDispatchResult(workflow_id="t/B/n/runs/r", input_digest="d"),
        """{"workflowId": "t/B/n/runs/r", "inputDigest": "d", "joined": false}""",
    ),
    (
        CancelAuthorRunInput(instance=("B", "n"), run_id="r", reason="why"),
        """{"instance": ["B", "n"], "runId": "r", "reason": "why"}""",
    ),
    (
        Event(type="agent_tool:detached:delivery_failed", payload={"runId": "r", "callback": None}),
        """{"type": "agent_tool:detached:delivery_failed", "payload": {"runId": "r", "callback": null}}""",
    ),
]

MODULES = [author_dispatches, dispatches, events]

NULLS: list[WireModel] = [DispatchRunInput(run_id="r", profile=PROFILE, input=None)]


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
    """A run's input may be null."""
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
