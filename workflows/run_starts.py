"""How any workflow of ours starts an agent-tool run, follows one, and has the agent's hooks hear of it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.hook_calls import HookActivities
from activities.run_watch import RunWatchActivities
from turnkeeper import names
from turnkeeper.dispatches import AgentProfile, DispatchRunInput
from turnkeeper.outcomes import error_result, failure_text
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, input_digest, run_memo
from turnkeeper.search_attributes import run_attributes
from turnkeeper.steps import AttachRunInput, CallHookInput, StepSource
from turnkeeper.turns import RunInput, TranscriptRef
from workflows import options


@dataclass(frozen=True)
class Dispatcher:
    """Who dispatches: the workflow that owns the runs, and the agent whose hooks hear of them."""

    workflow_id: str
    instance: str
    turn_id: str
    profile: AgentProfile
    depth: int
    """How many runs the dispatcher is nested in."""
    silence_budget: timedelta | None = None
    """How long the dispatcher, if it is a run, may itself be silent."""

    def source(self, step: int = 0) -> StepSource:
        """Return where an activity of this dispatcher belongs."""
        return StepSource(
            workflow_id=self.workflow_id,
            instance=self.instance,
            turn_id=self.turn_id,
            step=step,
            silence_budget=self.silence_budget,
        )


async def call_hook(
    dispatcher: Dispatcher,
    hook: str,
    *arguments: JsonValue,
    about: str = "",
    only_before: str | None = None,
    is_callback: bool = False,
    transcript: tuple[TranscriptRef, ...] = (),
) -> JsonValue:
    """Have a hook of the dispatcher's agent called.

    Args:
        dispatcher: whose agent it is.
        hook: the hook's name.
        arguments: what it is called with, as JSON.
        about: the run that it is about, if any; tells two calls of one hook apart.
        only_before: a workflow id; the hook is not called when that workflow exists already.
        is_callback: whether it is a method of the author's own, named at a dispatch.
        transcript: what the hook finds in `self.messages`.

    Raises:
        ActivityError: it failed at every attempt.
    """
    call = CallHookInput(
        agent_type=dispatcher.profile.agent_type,
        source=dispatcher.source(),
        hook=hook,
        idempotency_key=f"{dispatcher.workflow_id}/{hook}/{about}",
        only_before=only_before,
        is_callback=is_callback,
        arguments=arguments,
        transcript=transcript,
    )
    config = options.progress_hook if hook == "on_progress" else options.hook_call
    result = await workflow.execute_activity_method(HookActivities.call_hook, call, **config(dispatcher.profile, hook))
    return result.value


async def announce_start(dispatcher: Dispatcher, info: AgentToolRunInfo) -> None:
    """Have `on_agent_tool_start` called, if the agent has one and the run is new (DI-17).

    Raises:
        ActivityError: the hook failed at every attempt, and the run must not start (DI-18).
    """
    if "on_agent_tool_start" in dispatcher.profile.hooks:
        run = names.run_workflow_id(dispatcher.instance, info.run_id)
        row = info.model_dump(mode="json")
        # Not the run id alone: a session calls the hooks of nested runs too, whose own runs may have the same id.
        await call_hook(dispatcher, "on_agent_tool_start", row, about=run, only_before=run)


async def announce_end(dispatcher: Dispatcher, info: AgentToolRunInfo, result: AgentToolResult) -> None:
    """Have `on_agent_tool_finish` called, if the agent has one; its failure never changes the result (AW-07)."""
    if "on_agent_tool_finish" not in dispatcher.profile.hooks:
        return
    ended = info.model_copy(
        update={
            "status": result.status,
            "completed_at": workflow.now(),
            "summary": result.summary,
            "error": result.error,
        }
    )
    try:
        row, outcome = ended.model_dump(mode="json"), result.model_dump(mode="json")
        # With its status, for a run that was given up may end again (DV-04).
        about = f"{names.run_workflow_id(dispatcher.instance, info.run_id)}/{result.status}"
        await call_hook(dispatcher, "on_agent_tool_finish", row, outcome, about=about)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.error("on_agent_tool_finish failed for run %s: %s", result.run_id, failure_text(error))


async def start_run(
    dispatcher: Dispatcher, request: DispatchRunInput, *, awaited: bool
) -> workflow.ChildWorkflowHandle[Any, AgentToolResult]:
    """Start the child workflow of a run; returns once its start is recorded (field case 6).

    Args:
        dispatcher: who dispatches it.
        request: the run.
        awaited: whether it ends with its dispatcher; otherwise it lives on, and reports its end by signal.

    Raises:
        WorkflowAlreadyStartedError: a run of this instance already has the id.
    """
    agent_type, run_id = request.profile.agent_type, request.run_id
    config = options.awaited_child if awaited else options.abandoned_child
    child: workflow.ChildWorkflowHandle[Any, AgentToolResult] = await workflow.start_child_workflow(
        names.AGENT_TOOL_RUN,
        RunInput(
            run_id=run_id,
            profile=request.profile,
            input=request.input,
            input_preview=request.input_preview,
            parent_tool_call_id=request.parent_tool_call_id,
            display_order=request.display_order,
            display=request.display,
            forwards_progress="on_progress" in dispatcher.profile.hooks or request.detached is not None,
            dispatcher=dispatcher.workflow_id,
            depth=dispatcher.depth + 1,
            silence_budget=None if request.detached is None else request.detached.no_progress_budget,
            reports_to=None if awaited else dispatcher.workflow_id,
        ),
        result_type=AgentToolResult,
        **config(
            names.run_workflow_id(dispatcher.instance, run_id),
            run_attributes(dispatcher.instance, agent_type, run_id),
            f"{agent_type}: run {run_id} of {dispatcher.profile.agent_type}",
            run_memo(agent_type, request.input),
        ),
    )
    return child


async def request_cancel(run_workflow_id: str, reason: str) -> bool:
    """Ask a run to stop, and tell whether it was reached; without effect when it has ended (CX-12)."""
    try:
        await workflow.get_external_workflow_handle(run_workflow_id).cancel(reason=reason)
    except ApplicationError as error:
        workflow.logger.info("%s could not be cancelled: %s", run_workflow_id, error)
        return False
    return True


async def attach_run(dispatcher: Dispatcher, request: DispatchRunInput) -> AgentToolResult:
    """Wait for a run that this workflow did not start (DI-09); a mismatch is an error result (DI-16)."""
    attached = await workflow.execute_activity_method(
        RunWatchActivities.attach_run,
        AttachRunInput(
            workflow_id=names.run_workflow_id(dispatcher.instance, request.run_id),
            run_id=request.run_id,
            agent_type=request.profile.agent_type,
            input_digest=input_digest(request.input),
            windows=dispatcher.profile.reattach,
        ),
        **options.run_attachment(request.run_id),
    )
    if attached.result is None:
        return error_result(request.run_id, request.profile.agent_type, attached.conflict or "The run is not known.")
    return attached.result
