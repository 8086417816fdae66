"""How one workflow carries out tool calls: by an activity, by an agent-tool run, or not at all."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from activities.hook_calls import HookActivities
from activities.run_watch import RunWatchActivities
from activities.tool_calls import ToolCallActivities
from turnkeeper import names
from turnkeeper.errors import Conflict
from turnkeeper.messages import ToolPart
from turnkeeper.outcomes import error_result, result_from_failure
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, failure_of, input_digest, run_memo
from turnkeeper.search_attributes import run_attributes
from turnkeeper.steps import (
    AgentToolDispatch,
    AttachRunInput,
    CallHookInput,
    CallToolInput,
    CheckOutputInput,
    Dispatch,
    FunctionToolDispatch,
    StepSource,
    ToolResult,
)
from turnkeeper.turns import AgentProfile, DispatchRunInput, RunInput, RunRecord, TranscriptRef
from workflows import options
from workflows.run_registry import RunRegistry

INTERRUPTED_CALL = "The call was interrupted and may have taken effect."


@dataclass(frozen=True)
class Dispatcher:
    """Who dispatches: the workflow that owns the runs, and the agent whose hooks hear of them."""

    workflow_id: str
    instance: str
    turn_id: str
    profile: AgentProfile
    depth: int
    """How many runs the dispatcher is nested in."""

    def source(self, step: int = 0) -> StepSource:
        """Return where an activity of this dispatcher belongs."""
        return StepSource(workflow_id=self.workflow_id, instance=self.instance, turn_id=self.turn_id, step=step)


async def call_hook(
    dispatcher: Dispatcher, hook: str, *arguments: JsonValue, transcript: tuple[TranscriptRef, ...] = ()
) -> JsonValue:
    """Have a hook of the dispatcher's agent called, with `self.messages` from `transcript`.

    Raises:
        ActivityError: it failed at every attempt.
    """
    call = CallHookInput(
        agent_type=dispatcher.profile.agent_type,
        source=dispatcher.source(),
        hook=hook,
        arguments=arguments,
        transcript=transcript,
    )
    result = await workflow.execute_activity_method(
        HookActivities.call_hook, call, **options.hook_call(dispatcher.profile, hook)
    )
    return result.value


class AwaitedRuns:
    """The agent-tool runs that a turn or run waits for: it starts them, and they end with it."""

    def __init__(self, dispatcher: Dispatcher, records: tuple[RunRecord, ...], open_elsewhere: int) -> None:
        """Begin with the rows from before a continue-as-new."""
        self.dispatcher = dispatcher
        self.registry = RunRegistry(records, open_elsewhere)
        self._tasks: dict[str, asyncio.Task[AgentToolResult]] = {}

    async def dispatch(self, request: DispatchRunInput) -> AgentToolResult | None:
        """Start a run, or meet the one that already has this id.

        Returns:
            None once the run has started; its result when it was refused, failed to start, or had already ended.

        Raises:
            Conflict: the id is taken by another run (DI-16).
        """
        known = self.registry.find(request)
        if known is None:
            refusal = self.registry.admit(
                request,
                depth=self.dispatcher.depth + 1,
                cap=self.dispatcher.profile.max_concurrent_agent_tools,
                now=workflow.now(),
            )
            if refusal is not None:
                return refusal
            self._tasks[request.run_id] = asyncio.create_task(self._carry(request))
        await workflow.wait_condition(lambda: not self.registry.is_starting(request.run_id))
        return self.registry.result(request.run_id)

    async def run_to_end(self, request: DispatchRunInput) -> AgentToolResult:
        """Start a run and wait for its end; the same id again is the same run."""
        try:
            await self.dispatch(request)
        except Conflict as conflict:
            return error_result(request.run_id, request.profile.agent_type, str(conflict))
        refusal = self.registry.result(request.run_id)
        if refusal is not None and self.registry.is_refused(request.run_id):
            return refusal
        task = self._tasks.get(request.run_id)
        if task is None:
            # It ended before this workflow continued as new, and a registry keeps no outputs.
            return await attach_run(self.dispatcher.instance, request)
        # Whoever cancels a run gives it a reason (`cancel`); a cancelled wait has none.
        return await asyncio.shield(task)

    def cancel(self, run_id: str, reason: str) -> None:
        """Cancel one run; without effect when it has ended (CX-12)."""
        task = self._tasks.get(run_id)
        if task is not None and not task.done():
            task.cancel(reason)

    async def cancel_all(self, reason: str) -> None:
        """Cancel every run that is still open, and wait for their ends."""
        for run_id in self._tasks:
            self.cancel(run_id, reason)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _carry(self, request: DispatchRunInput) -> AgentToolResult:
        """Take one run from its registry row to its end."""
        result = await self._result_of(request)
        await self._announce_end(result)
        self.registry.mark_ended(result, workflow.now())
        return result

    async def _result_of(self, request: DispatchRunInput) -> AgentToolResult:
        run_id, agent_type = request.run_id, request.profile.agent_type
        try:
            await self._announce_start(self.registry.info(run_id))
            return await self._follow_child(request)
        except WorkflowAlreadyStartedError:
            return await self._follow_foreign(request)
        except ChildWorkflowError as error:
            return result_from_failure(error.cause, run_id=run_id, agent_type=agent_type, reason=_reason_now())
        except (FailureError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                return result_from_failure(CancelledError(), run_id=run_id, agent_type=agent_type, reason=_reason_now())
            # DI-18: whatever keeps a run from starting is its result, and frees its slot.
            return error_result(run_id, agent_type, _text_of(error))

    async def _follow_child(self, request: DispatchRunInput) -> AgentToolResult:
        child = await start_run(self.dispatcher, request, awaited=True)
        self.registry.mark_running(request.run_id)
        return await child

    async def _follow_foreign(self, request: DispatchRunInput) -> AgentToolResult:
        """Wait for a run of this instance that an earlier turn dispatched under the same id (DI-09)."""
        self.registry.mark_running(request.run_id)
        return await attach_run(self.dispatcher.instance, request)

    async def _announce_start(self, info: AgentToolRunInfo) -> None:
        if "on_agent_tool_start" in self.dispatcher.profile.hooks:
            await call_hook(self.dispatcher, "on_agent_tool_start", info.model_dump(mode="json"))

    async def _announce_end(self, result: AgentToolResult) -> None:
        await announce_end(self.dispatcher, self.registry.info(result.run_id), result)


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
        await call_hook(
            dispatcher, "on_agent_tool_finish", ended.model_dump(mode="json"), result.model_dump(mode="json")
        )
    except ActivityError as error:
        workflow.logger.error("on_agent_tool_finish failed for run %s: %s", result.run_id, _text_of(error))


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
            dispatcher=dispatcher.workflow_id,
            depth=dispatcher.depth + 1,
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


async def attach_run(instance: str, request: DispatchRunInput) -> AgentToolResult:
    """Wait for a run that this workflow did not start; a mismatch is an error result (DI-16)."""
    attached = await workflow.execute_activity_method(
        RunWatchActivities.attach_run,
        AttachRunInput(
            workflow_id=names.run_workflow_id(instance, request.run_id),
            run_id=request.run_id,
            agent_type=request.profile.agent_type,
            input_digest=input_digest(request.input),
        ),
        **options.run_attachment(request.run_id),
    )
    if attached.result is None:
        return error_result(request.run_id, request.profile.agent_type, attached.conflict or "The run is not known.")
    return attached.result


async def carry_out(runs: AwaitedRuns, call: ToolPart, dispatch: Dispatch, step: int, position: int) -> ToolPart:
    """Carry out one tool call and return it with its result; a failure is a result too."""
    if isinstance(dispatch, FunctionToolDispatch):
        return settle(call, await _call_function_tool(runs.dispatcher, call, dispatch, step, position))
    if isinstance(dispatch, AgentToolDispatch):
        return settle(call, await _call_agent_tool(runs, call, dispatch, step, position))
    return settle(call, ToolResult(error=dispatch.error))


def settle(call: ToolPart, result: ToolResult) -> ToolPart:
    """Return a tool call with its result."""
    if result.error is not None:
        return call.model_copy(update={"state": "output-error", "error_text": result.error})
    return call.model_copy(update={"state": "output-available", "output": result.output})


async def _call_function_tool(
    dispatcher: Dispatcher, call: ToolPart, dispatch: FunctionToolDispatch, step: int, position: int
) -> ToolResult:
    try:
        return await workflow.execute_activity_method(
            ToolCallActivities.call_tool,
            CallToolInput(
                agent_type=dispatcher.profile.agent_type,
                source=dispatcher.source(step),
                tool_name=call.tool_name,
                tool_call_id=call.tool_call_id,
                arguments=call.input,
                idempotency_key=f"{dispatcher.workflow_id}/{step}/{position}",
            ),
            **options.tool_call(dispatcher.profile, call.tool_name, dispatch),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        # A lost worker or a time-out. What the tool itself raises is already a result.
        detail = _text_of(error) if isinstance(error.cause, ApplicationError) else "Its worker was lost or too slow."
        return ToolResult(error=f"{INTERRUPTED_CALL} {detail}")


async def _call_agent_tool(
    runs: AwaitedRuns, call: ToolPart, dispatch: AgentToolDispatch, step: int, position: int
) -> ToolResult:
    run_id = names.model_run_id(runs.dispatcher.turn_id, step, position)
    result = await runs.run_to_end(
        DispatchRunInput(
            run_id=run_id,
            profile=dispatch.profile,
            input=dispatch.input,
            input_preview=dispatch.input_preview,
            parent_tool_call_id=call.tool_call_id,
            display_order=position,
            display=dispatch.display,
        )
    )
    if result.status != "completed":
        return ToolResult(output=failure_of(result).model_dump(mode="json"))
    if not dispatch.checks_output:
        return ToolResult(output=result.summary or "")
    return await _check_output(runs.dispatcher, call.tool_name, result)


async def _check_output(dispatcher: Dispatcher, tool_name: str, result: AgentToolResult) -> ToolResult:
    """Return the run's output if it is what the agent tool declares, else a failure (RF-08 to RF-10)."""
    error = "The sub-agent gave no structured output."
    if result.output is not None:
        checked = await workflow.execute_activity_method(
            HookActivities.check_output,
            CheckOutputInput(agent_type=dispatcher.profile.agent_type, tool_name=tool_name, output=result.output),
            **options.hook_call(dispatcher.profile, f"output of {tool_name}"),
        )
        if checked.error is None:
            return checked
        error = checked.error
    failure = failure_of(error_result(result.run_id, result.agent_type, error))
    return ToolResult(output=failure.model_dump(mode="json"))


def _reason_now() -> str | None:
    return workflow.cancellation_reason()


def _text_of(error: BaseException) -> str:
    cause = error.cause if isinstance(error, FailureError) else None
    return str(cause or error)
