"""How the end of a run is written into a Temporal failure, and read from one."""

from temporalio.exceptions import ApplicationError, CancelledError, FailureError, TerminatedError

from turnkeeper.errors import RUN_FAILED
from turnkeeper.runs import AgentToolResult, generic_error, shorten_error


def failure_from_result(result: AgentToolResult) -> ApplicationError:
    """Return the failure that a run ends with; it carries the result without its large parts (under 4 KiB)."""
    brief = result.model_copy(
        update={
            "output": None,
            "summary": None if result.summary is None else shorten_error(result.summary),
            "error": None if result.error is None else shorten_error(result.error),
        }
    )
    return ApplicationError(brief.error or brief.status, brief, type=RUN_FAILED, non_retryable=True)


def result_from_failure(
    cause: BaseException | None, *, run_id: str, agent_type: str, reason: str | None = None
) -> AgentToolResult:
    """Return how a run ended, from the cause of its failure.

    Args:
        cause: what Temporal reports.
        run_id: the run.
        agent_type: its agent.
        reason: why it was cancelled, where the caller knows.
    """
    if isinstance(cause, ApplicationError) and is_own_failure(cause) and cause.details:
        return AgentToolResult.model_validate(cause.details[0])
    if isinstance(cause, CancelledError):
        return AgentToolResult(run_id=run_id, agent_type=agent_type, status="aborted", error=reason or "cancelled")
    if isinstance(cause, TerminatedError):
        return error_result(run_id, agent_type, "The sub-agent was terminated by an operator.")
    return error_result(run_id, agent_type, failure_text(cause) if cause else "")


def is_own_failure(cause: BaseException | None) -> bool:
    """Tell whether a run ended in an error that it reported itself, and was not stopped from outside."""
    return isinstance(cause, ApplicationError) and cause.type == RUN_FAILED


def error_result(run_id: str, agent_type: str, error: str) -> AgentToolResult:
    """Return the result of a run that failed with `error`; without a text it gets a generic one (RF-06)."""
    text = shorten_error(error) or generic_error("error")
    return AgentToolResult(run_id=run_id, agent_type=agent_type, status="error", error=text)


def cancel_reason(given: str | None) -> str:
    """Return why a workflow was cancelled, in its author's words: Temporal adds whose request it was."""
    reason = given or ""
    if reason.startswith("Cancel requested by workflow"):
        reason = reason.partition("with reason: ")[2]
    return reason or "cancelled"


def failure_text(error: BaseException) -> str:
    """Return what went wrong in its author's words, without the types that Temporal wraps around them (RF-20)."""
    while isinstance(error, FailureError):
        if isinstance(error, ApplicationError) or error.cause is None:
            return error.message
        error = error.cause
    return str(error)
