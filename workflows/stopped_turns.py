"""How a session stops a turn and saves what it had written when it failed or was stopped."""

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.run_watch import RunWatchActivities
from turnkeeper import names
from turnkeeper.frames import TurnAborted, TurnError
from turnkeeper.messages import close_open_calls
from turnkeeper.outcomes import cancel_reason, failure_text
from turnkeeper.steps import PublishInput
from turnkeeper.turns import ContextState, TurnResult, TurnStatus
from workflows import options
from workflows.publishing import publish


async def read_stopped_turn(session_id: str, turn_id: str) -> TurnResult:
    """Return what a turn had written when it failed or was stopped, with its open calls closed."""
    try:
        result = await workflow.execute_activity_method(
            RunWatchActivities.read_stopped_turn,
            names.turn_workflow_id(session_id, turn_id),
            **options.transcript_read(turn_id),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.error("turn %s left nothing that can be read: %s", turn_id, failure_text(error))
        return TurnResult(message=None)
    if result.message is None:
        return result
    closed = close_open_calls(result.message, "The call was stopped: the turn ended.")
    return result.model_copy(update={"message": closed})


async def end_of_turn(turn: workflow.ChildWorkflowHandle[Any, TurnResult]) -> TurnResult:
    """Wait for a turn's end; a cancel of the session reaches it with the session's reason (CX-02)."""
    try:
        return await asyncio.shield(turn)
    except asyncio.CancelledError:
        turn.cancel(cancel_reason(workflow.cancellation_reason()))
        return await turn


def context_of(result: TurnResult, length: int) -> ContextState | None:
    """Return how full a turn left its model's context, in terms of its session's messages.

    Args:
        result: the turn's.
        length: how many messages the session had when the turn began. A turn that had to summarise its own steps knew
            them as messages of their own; the session takes the summary for what came before the turn.
    """
    context = result.context
    if context is None or context.compaction is None or context.compaction.replaces <= length:
        return context
    kept = context.compaction.model_copy(update={"replaces": length})
    return context.model_copy(update={"compaction": kept})


def publish_turn_end(session_id: str, turn_id: str, status: TurnStatus, error: str) -> None:
    """Tell the live log of a turn's end, in case that the turn was terminated before it could."""
    failed, aborted = TurnError(turn_id=turn_id, error=error), TurnAborted(turn_id=turn_id, reason=error)
    event = aborted if status == "aborted" else failed
    publish(PublishInput(source=names.turn_workflow_id(session_id, turn_id), turn=event))
