"""How workflows tell the live log of their course: beside their work, so that only a workflow that closes waits for it.

By an activity, except for the first and the last thing that a turn or run tells: these are local activities, which cost
one event and no workflow task. Where updates or signals may come in between, the SDK writes histories with local
activities that it cannot replay (design/rfc-lifecycle-entries.md).
"""

import asyncio
from contextlib import suppress
from functools import partial

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


class PublishingWorkflow:
    """A base of workflow classes that tell the live log of their course."""

    untold: int = 0
    """How much of what was to be told has not been told yet."""

    async def all_told(self) -> None:
        """Wait until everything is told, whatever cancels: a workflow that has closed tells nothing any more."""
        while self.untold:
            with suppress(asyncio.CancelledError):
                await workflow.wait_condition(lambda: not self.untold)


def publish(told: PublishInput) -> asyncio.Task[None]:
    """Tell the live log; a log that does not take it is no reason to fail."""
    return _begin(workflow.start_activity_method(PublishActivities.publish, told, **options.publishing()))


def publish_own_course(told: PublishInput) -> None:
    """Tell of the beginning or the end of the workflow itself, before or after everything else that it does."""
    _begin(workflow.start_local_activity_method(PublishActivities.publish, told, **options.publishing_own_course()))


def _begin(telling: workflow.ActivityHandle[None]) -> asyncio.Task[None]:
    teller = workflow.instance()
    assert isinstance(teller, PublishingWorkflow)
    teller.untold += 1
    telling.add_done_callback(partial(_note_told, teller))
    return telling


def publish_refusal(run_workflow_id: str, request: DispatchRunInput, refusal: AgentToolResult) -> None:
    """Tell of a run that was not admitted (CC-06)."""
    error = RunError(run_id=_path(run_workflow_id), error=refusal.error or "", refused=True)
    publish(
        PublishInput(
            source=run_workflow_id,
            runs=(run_started(run_workflow_id, request), error),
            occasion=f"/refused-{workflow.uuid4().hex[:8]}",
        )
    )


def publish_end(run_workflow_id: str, request: DispatchRunInput, result: AgentToolResult) -> None:
    """Tell of a run that could not tell itself: one that never started, or was terminated."""
    publish(
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


def _note_told(teller: PublishingWorkflow, telling: asyncio.Task[None]) -> None:
    teller.untold -= 1
    error = None if telling.cancelled() else telling.exception()
    if isinstance(error, ActivityError):
        workflow.logger.warning("the live log was not told: %s", failure_text(error))
