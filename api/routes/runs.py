"""Agent-tool runs of an instance, at any depth."""

from datetime import timedelta
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Query, Response

from api.dependencies import IdempotencyKey, Instance, InstanceDependency, RunPathDependency
from api.errors import OverLimit
from api.schemas import Cancel, Cleared, DispatchRun, MilestoneView, RunView, Steer
from turnkeeper import guidance, names
from turnkeeper.detached import Detached, Milestones, options_of
from turnkeeper.dispatches import AgentProfile, DetachedOptions, DispatchRunInput
from turnkeeper.errors import InvalidRequest, NotFound
from turnkeeper.messages import UIMessage
from turnkeeper.run_client import RunPath
from turnkeeper.runs import END_STATUSES, AgentToolResult, AgentToolRunInfo, RunStatus

router = APIRouter(prefix="/agents/{agent}/{name}/runs", tags=["runs"])

NOT_KNOWN_YET = "The run has been dispatched and is not known to have begun; is a worker polling?"


@router.post("", status_code=202, response_model=None, responses={200: {"model": AgentToolResult}})
async def dispatch_run(
    instance: InstanceDependency,
    body: DispatchRun,
    response: Response,
    wait: Annotated[bool, Query(description="Answer when the run has ended, with its result.")] = False,
) -> RunView | AgentToolResult:
    """Run an agent as a tool of this instance; the same run id again is the same run (DI-05)."""
    run_id = body.run_id or uuid4().hex[:12]
    request = DispatchRunInput(
        run_id=run_id,
        profile=_profile(instance, body.agent),
        input=body.input,
        input_preview=body.input_preview,
        parent_tool_call_id=body.parent_tool_call_id,
        display_order=body.display_order,
        display=body.display,
        detached=_detached(instance, body),
    )
    own_profile = instance.client.registry.profile(instance.agent)
    dispatched = await instance.client.runs.dispatch(instance.session_id, own_profile, request)
    if dispatched.refused and dispatched.result is not None:
        raise OverLimit(dispatched.result.error or "the run was refused")
    response.headers["Location"] = _url(instance, (run_id,))
    if wait:
        response.status_code = 200
        if dispatched.result is not None and dispatched.result.status != "completed":
            return dispatched.result  # It never started, so there is nothing to wait for.
        return await instance.client.runs.wait(instance.session_id, (run_id,))
    return _view(instance, (run_id,), await instance.client.runs.info(instance.session_id, (run_id,)))


@router.get("")
async def list_runs(instance: InstanceDependency) -> list[RunView]:
    """Return the registry of the instance, oldest run first."""
    rows = await instance.client.runs.registered(instance.session_id)
    return [_view(instance, (row.run_id,), row) for row in rows]


@router.delete("")
async def clear_runs(
    instance: InstanceDependency,
    status: Annotated[tuple[RunStatus, ...], Query(description="Only runs that stand so.")] = (),
    older_than: Annotated[float | None, Query(ge=0, description="Only runs that started so many seconds ago.")] = None,
) -> Cleared:
    """Remove runs from the instance's registry; those that go on are cancelled first (CL-02 to CL-06)."""
    age = None if older_than is None else timedelta(seconds=older_than)
    return Cleared(cleared=await instance.client.runs.clear(instance.session_id, (), status, age))


@router.get("/{run_path:path}/milestones/{milestone}", responses={409: {"description": "It will not be reached."}})
async def wait_for_milestone(
    instance: InstanceDependency,
    path: RunPathDependency,
    milestone: str,
    wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for it.")] = 0.0,
) -> MilestoneView:
    """Return a milestone of a run, having waited until it is reached (MS-11)."""
    found = await instance.client.runs.wait_for_milestone(instance.session_id, path, milestone, timedelta(seconds=wait))
    return MilestoneView(run_id="/runs/".join(path), **dict(found))


@router.get("/{run_path:path}/messages")
async def list_run_messages(instance: InstanceDependency, path: RunPathDependency) -> list[UIMessage]:
    """Return the transcript of a run, with the step that it is at."""
    return await instance.client.runs.messages(instance.session_id, path)


@router.get("/{run_path:path}/runs")
async def list_nested_runs(instance: InstanceDependency, path: RunPathDependency) -> list[RunView]:
    """Return the registry of a run, oldest nested run first."""
    rows = await instance.client.runs.registered(instance.session_id, path)
    return [_view(instance, (*path, row.run_id), row) for row in rows]


@router.post("/{run_path:path}/cancel")
async def cancel_run(instance: InstanceDependency, path: RunPathDependency, body: Cancel | None = None) -> RunView:
    """Cancel a run; without effect on one that has ended (CX-12)."""
    await instance.client.runs.cancel(instance.session_id, path, body.reason if body else None)
    return await get_run(instance, path)


@router.post("/{run_path:path}/steer", responses={409: {"description": "It does not go on."}})
async def steer_run(
    instance: InstanceDependency, path: RunPathDependency, body: Steer, idempotency_key: IdempotencyKey = None
) -> RunView:
    """Put a message before the model, before the next step of a run that goes on."""
    await instance.client.runs.info(instance.session_id, path)
    workflow_id = _workflow_id(instance, path)
    await guidance.steer(instance.client.requests, workflow_id, body.message, idempotency_key or uuid4().hex)
    return await get_run(instance, path)


@router.post("/{run_path:path}/wrap_up", responses={409: {"description": "It does not go on."}})
async def wrap_up_run(instance: InstanceDependency, path: RunPathDependency, body: Cancel | None = None) -> RunView:
    """Ask a run that goes on to finish with what it has: no more tools, one last answer."""
    await instance.client.runs.info(instance.session_id, path)
    await guidance.wrap_up(instance.client.requests, _workflow_id(instance, path), body.reason if body else None)
    return await get_run(instance, path)


@router.get("/{run_path:path}")
async def get_run(instance: InstanceDependency, path: RunPathDependency) -> RunView:
    """Return one run: its registry row, and what it says of itself."""
    info = await instance.client.runs.info(instance.session_id, path)
    view = _view(instance, path, info)
    inspection = await instance.client.runs.inspect(instance.session_id, path)
    if inspection is None:
        return view.model_copy(update={"hint": NOT_KNOWN_YET})
    update: dict[str, object] = {
        "output": inspection.output,
        "steps": inspection.steps,
        "progress": inspection.progress,
        "milestones": inspection.milestones,
    }
    if info.status not in END_STATUSES:
        update |= {
            "status": inspection.status,
            "summary": inspection.summary,
            "error": inspection.error,
            "completed_at": inspection.completed_at,
        }
    return view.model_copy(update=update)


def _detached(instance: Instance, body: DispatchRun) -> DetachedOptions | None:
    if body.detached is False:
        return None
    agent = instance.client.registry.get(instance.agent)
    if body.detached is True:
        return options_of(agent, True)
    asked = body.detached
    budget = asked.max_budget_seconds
    return options_of(
        agent,
        Detached(
            on_finish=asked.on_finish,
            max_budget=None if budget is None else timedelta(seconds=budget),
            no_progress_budget=asked.no_progress_budget_seconds,
            notify=asked.notify,
            on_milestones=Milestones(names=asked.on_milestones, mode=asked.milestone_mode),
            webhook=asked.webhook,
        ),
    )


def _profile(instance: Instance, agent_type: str) -> AgentProfile:
    try:
        return instance.client.registry.profile(agent_type)
    except NotFound as error:
        raise InvalidRequest(str(error)) from error


def _url(instance: Instance, path: RunPath) -> str:
    return f"{instance.url}/runs/{'/runs/'.join(path)}"


def _view(instance: Instance, path: RunPath, info: AgentToolRunInfo) -> RunView:
    return RunView(url=_url(instance, path), workflow_id=_workflow_id(instance, path), **dict(info))


def _workflow_id(instance: Instance, path: RunPath) -> str:
    workflow_id = instance.session_id
    for run_id in path:
        workflow_id = names.run_workflow_id(workflow_id, run_id)
    return workflow_id
