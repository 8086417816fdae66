"""How workflows tell the live log of their course: in a local activity, which costs one event and no workflow task."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.publishing import PublishActivities
from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.frames import RunError, RunStarted, end_event
from turnkeeper.outcomes import failure_text
from turnkeeper.runs import AgentToolResult, input_preview
from turnkeeper.steps import PublishInput
from turnkeeper.turns import RunInput
from workflows import options


async def publish(told: PublishInput) -> None:
    """Tell the live log; a log that does not take it is no reason to fail, and a cancel does not cut it off."""
    telling = asyncio.create_task(_publish(told))
    try:
        await asyncio.shield(telling)
    except asyncio.CancelledError:
        await telling
        raise


async def publish_refusal(run_workflow_id: str, request: DispatchRunInput, refusal: AgentToolResult) -> None:
    """Tell of a run that was not admitted (CC-06)."""
    error = RunError(run_id=_path(run_workflow_id), error=refusal.error or "", refused=True)
    await publish(
        PublishInput(
            source=run_workflow_id,
            runs=(run_started(run_workflow_id, request), error),
            occasion=f"/refused-{workflow.uuid4().hex[:8]}",
        )
    )


async def publish_end(run_workflow_id: str, request: DispatchRunInput, result: AgentToolResult) -> None:
    """Tell of a run that could not tell itself: one that never started, or was terminated."""
    await publish(
        PublishInput(
            source=run_workflow_id,
            runs=(run_started(run_workflow_id, request), end_event(_path(run_workflow_id), result)),
        )
    )


def run_started(run_workflow_id: str, run: DispatchRunInput | RunInput) -> RunStarted:
    """Return the event that tells of a run's beginning (EV-02)."""
    return RunStarted(
        run_id=_path(run_workflow_id),
        agent_type=run.profile.agent_type,
        input_preview=input_preview(run.input) if run.input_preview is None else run.input_preview,
        order=run.display_order,
        display=run.display,
        parent_tool_call_id=run.parent_tool_call_id,
    )


def _path(run_workflow_id: str) -> str:
    return names.run_path_of(run_workflow_id) or run_workflow_id


async def _publish(told: PublishInput) -> None:
    try:
        await workflow.execute_local_activity_method(PublishActivities.publish, told, **options.publishing())
    except ActivityError as error:
        workflow.logger.warning("the live log was not told: %s", failure_text(error))
