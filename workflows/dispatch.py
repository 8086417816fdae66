"""How one tool call is carried out: by an activity, by an agent-tool run, or not at all."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.hook_calls import HookActivities
from activities.run_watch import RunWatchActivities
from activities.tool_calls import ToolCallActivities
from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput, RunOwner
from turnkeeper.errors import UNKNOWN_AGENT
from turnkeeper.messages import ToolPart
from turnkeeper.outcomes import error_result, failure_text
from turnkeeper.runs import AgentToolResult, failure_of
from turnkeeper.steps import (
    AgentToolDispatch,
    CallToolInput,
    CheckOutputInput,
    Dispatch,
    DispatchDetachedInput,
    FunctionToolDispatch,
    ToolResult,
)
from workflows import options
from workflows.awaited_runs import AwaitedRuns
from workflows.run_starts import Dispatcher

INTERRUPTED_CALL = "The call was interrupted and may have taken effect."


async def carry_out(runs: AwaitedRuns, call: ToolPart, dispatch: Dispatch, step: int, position: int) -> ToolPart:
    """Carry out one tool call and return it with its result; a failure is a result too."""
    if isinstance(dispatch, FunctionToolDispatch):
        result = await _call_function_tool(runs.dispatcher, call, dispatch, step, position)
    elif isinstance(dispatch, AgentToolDispatch):
        result = await _call_agent_tool(runs, call, dispatch, step, position)
    else:
        result = ToolResult(error=dispatch.error)
    return result.settle(call)


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
        # What the tool itself raises is already a result, so this is a lost worker, a time-out, or nobody to run it.
        if isinstance(error.cause, ApplicationError) and error.cause.type == UNKNOWN_AGENT:
            return ToolResult(error=failure_text(error))
        detail = (
            failure_text(error) if isinstance(error.cause, ApplicationError) else "Its worker was lost or too slow."
        )
        return ToolResult(error=f"{INTERRUPTED_CALL} {detail}")


async def _call_agent_tool(
    runs: AwaitedRuns, call: ToolPart, dispatch: AgentToolDispatch, step: int, position: int
) -> ToolResult:
    request = DispatchRunInput(
        run_id=names.model_run_id(runs.dispatcher.turn_id, step, position),
        profile=dispatch.profile,
        input=dispatch.input,
        input_preview=dispatch.input_preview,
        parent_tool_call_id=call.tool_call_id,
        display_order=position,
        display=dispatch.display,
        detached=dispatch.detached,
    )
    if request.detached is not None:
        return await _dispatch_detached(runs.dispatcher, request)
    result = await runs.run_to_end(request)
    if result.status != "completed":
        return ToolResult(output=failure_of(result).model_dump(mode="json"))
    if not dispatch.checks_output:
        return ToolResult(output=result.summary or "")
    return await _check_output(runs.dispatcher, call.tool_name, result)


async def _dispatch_detached(dispatcher: Dispatcher, request: DispatchRunInput) -> ToolResult:
    """Have the session of the root instance start a run that outlives this one, and return its handle (DD-01)."""
    session_id = names.root_instance(dispatcher.instance)
    if dispatcher.instance != session_id:
        owner = RunOwner(instance=dispatcher.instance, profile=dispatcher.profile)
        request = request.model_copy(update={"owner": owner})
    try:
        handle = await workflow.execute_activity_method(
            RunWatchActivities.dispatch_detached,
            DispatchDetachedInput(session_id=session_id, request=request),
            **options.detached_dispatch(request.run_id),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        failure = failure_of(error_result(request.run_id, request.profile.agent_type, failure_text(error)))
        return ToolResult(output=failure.model_dump(mode="json"))
    return ToolResult(output=handle.model_dump(mode="json"))


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
