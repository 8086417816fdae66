"""Agent tools for Temporal workflows of an author's own: they run agents of a Turnkeeper deployment.

Such a workflow runs on its author's worker, which needs nothing of Turnkeeper's but its data converter
(`turnkeeper.payloads.data_converter`); what is done for it is done by activities of Turnkeeper's workers.
"""

import asyncio
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from pydantic import BaseModel, JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from turnkeeper import names
from turnkeeper.author_dispatches import AuthorDispatchInput, AuthorDispatchResult, CancelAuthorRunInput
from turnkeeper.detached import Detached, DetachedRequest
from turnkeeper.dispatches import ReattachWindows
from turnkeeper.outcomes import cancel_reason, error_result
from turnkeeper.runs import AgentToolResult, AgentToolRunHandle, Display
from turnkeeper.steps import AttachRunInput, AttachRunResult

ResultT = TypeVar("ResultT")

HEARTBEAT_TIMEOUT = timedelta(seconds=20)
REQUEST_TIMEOUT = timedelta(minutes=5)
"""One attempt of a dispatch, the wait for a start hook included, or of a cancel."""

ATTEMPTS = 20
"""Of a dispatch or a cancel; the same run id makes it safe to repeat."""

FOLLOW_TIMEOUT = timedelta(days=30)
FOLLOW_ATTEMPTS = 1_000
"""Of following a run: each deploy of Turnkeeper's workers costs one."""


@overload
async def run_agent_tool(
    agent: str,
    *,
    instance: tuple[str, str],
    input: BaseModel | JsonValue,
    run_id: str | None = None,
    input_preview: JsonValue = None,
    display: Display | None = None,
    detached: Literal[False] = False,
    task_queue: str = names.DEFAULT_TASK_QUEUE,
) -> AgentToolResult: ...


@overload
async def run_agent_tool(
    agent: str,
    *,
    instance: tuple[str, str],
    input: BaseModel | JsonValue,
    run_id: str | None = None,
    input_preview: JsonValue = None,
    display: Display | None = None,
    detached: Detached | Literal[True],
    task_queue: str = names.DEFAULT_TASK_QUEUE,
) -> AgentToolRunHandle: ...


async def run_agent_tool(
    agent: str,
    *,
    instance: tuple[str, str],
    input: BaseModel | JsonValue,
    run_id: str | None = None,
    input_preview: JsonValue = None,
    display: Display | None = None,
    detached: Detached | bool = False,
    task_queue: str = names.DEFAULT_TASK_QUEUE,
) -> AgentToolResult | AgentToolRunHandle:
    """Run an agent as a tool of an instance and wait for its end, or with `detached` go on without it.

    The run is in the instance's registry like any other, under the same rules (DI rows). Cancelling the wait cancels
    the run (CX-02); a detached run is left alone.

    Args:
        agent: the registered name of the agent that is to run.
        instance: the agent type and name of the instance whose run it is; it begins to exist if it does not yet.
        input: what to work on.
        run_id: 1 to 128 of `A-Z a-z 0-9 . _ ~ -`; 12 characters of the workflow's own randomness if not given (DI-01).
        input_preview: what the registry shows instead of the beginning of the input (IN-07).
        display: how user interfaces present the run.
        detached: who is told of the end instead; `on_finish` is the name of a method of the instance's class (DD rows).
        task_queue: where Turnkeeper's workers poll.

    Returns:
        How the run ended; a run that failed, was cancelled or was refused is a result, not an exception (AW-05).
        Detached: a handle, as soon as the run is recorded and has started, or was refused (DD-01).

    Raises:
        ApplicationError: the request was refused; its `type` is `Conflict` (DI-16), `InvalidRequest` (DD-03),
            `NotFound` (no such agent) or `TooLarge`. Uncaught, it fails the workflow.
        CancelledError: the wait was cancelled, and the run with it.
    """
    request = AuthorDispatchInput(
        agent=agent,
        instance=instance,
        run_id=run_id or workflow.uuid4().hex[:12],
        input=input.model_dump(mode="json", by_alias=True) if isinstance(input, BaseModel) else input,
        input_preview=input_preview,
        display=display,
        detached=None if detached is False else DetachedRequest.of(Detached() if detached is True else detached),
    )
    dispatched = await _carry_out(names.DISPATCH_FOR_AUTHOR, request, AuthorDispatchResult, task_queue)
    if dispatched.handle is not None:
        return dispatched.handle
    if dispatched.result is not None:
        return dispatched.result
    try:
        return await _follow(request, dispatched, task_queue)
    except (ActivityError, asyncio.CancelledError) as error:
        if is_cancelled_exception(error):
            reason = cancel_reason(workflow.cancellation_reason())
            cancel = CancelAuthorRunInput(instance=instance, run_id=request.run_id, reason=reason)
            await asyncio.shield(_carry_out(names.CANCEL_FOR_AUTHOR, cancel, bool, task_queue))
            raise asyncio.CancelledError from error
        raise


async def _follow(request: AuthorDispatchInput, dispatched: AuthorDispatchResult, task_queue: str) -> AgentToolResult:
    follow = AttachRunInput(
        workflow_id=dispatched.workflow_id,
        run_id=request.run_id,
        agent_type=request.agent,
        input_digest=dispatched.input_digest,
        # Somebody else's is followed as long as it shows signs of life (DI-09), an own one to its end.
        windows=None if dispatched.joined else ReattachWindows(),
    )
    attached: AttachRunResult = await workflow.execute_activity(
        names.ATTACH_RUN,
        follow,
        result_type=AttachRunResult,
        task_queue=task_queue,
        start_to_close_timeout=FOLLOW_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30), maximum_attempts=FOLLOW_ATTEMPTS),
        summary=f"follow run {request.run_id}",
    )
    return attached.result or error_result(request.run_id, request.agent, attached.conflict or "The run is not known.")


async def _carry_out(name: str, request: Any, result_type: type[ResultT], task_queue: str) -> ResultT:
    try:
        result: ResultT = await workflow.execute_activity(
            name,
            request,
            result_type=result_type,
            task_queue=task_queue,
            start_to_close_timeout=REQUEST_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30), maximum_attempts=ATTEMPTS),
            summary=f"{name} {request.run_id}",
        )
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError):
            raise error.cause from error
        raise
    return result
