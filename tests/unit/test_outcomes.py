"""How the end of a run is written into a Temporal failure, and read from one."""

from pathlib import Path

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
)

from turnkeeper.errors import RUN_FAILED
from turnkeeper.outcomes import error_result, failure_from_result, failure_text, result_from_failure
from turnkeeper.payloads import data_converter
from turnkeeper.runs import MAX_ERROR_BYTES, AgentToolResult, generic_error

FAILED = AgentToolResult(
    run_id="r",
    agent_type="A",
    status="interrupted",
    summary="so far",
    error="gave up",
    reason="budget-exceeded",
    child_still_running=True,
)


def _caused(error: FailureError, cause: BaseException | None) -> FailureError:
    error.__cause__ = cause
    return error


def _activity_error(cause: BaseException | None) -> FailureError:
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="w",
        activity_type="call_hook",
        activity_id="1",
        retry_state=None,
    )
    return _caused(error, cause)


def _child_error(cause: BaseException) -> FailureError:
    error = ChildWorkflowError(
        "Child Workflow execution failed",
        namespace="default",
        workflow_id="w",
        run_id="r",
        workflow_type="AgentToolRun",
        initiated_event_id=1,
        started_event_id=2,
        retry_state=None,
    )
    return _caused(error, cause)


async def _sent(result: AgentToolResult, folder: Path) -> Failure:
    failure = Failure()
    await data_converter(folder).encode_failure(failure_from_result(result), failure)
    return failure


async def test_a_result_survives_its_way_through_a_failure(tmp_path: Path) -> None:
    """RF-01: everything but the output, whatever the caller thinks the run is called."""
    cause = await data_converter(tmp_path).decode_failure(await _sent(FAILED, tmp_path))
    assert result_from_failure(cause, run_id="other", agent_type="Other", reason="cancelled") == FAILED


def test_a_result_is_read_from_a_failure_that_never_left_the_process() -> None:
    """RF-01: without a converter in between, too."""
    assert result_from_failure(failure_from_result(FAILED), run_id="r", agent_type="A") == FAILED


def test_a_run_that_failed_is_not_tried_again() -> None:
    """RF-04: its failure is final, and says in the Temporal UI what went wrong."""
    failure = failure_from_result(FAILED)
    assert (failure.type, failure.non_retryable, failure.message) == (RUN_FAILED, True, "gave up")


def test_a_failure_without_a_text_says_the_status() -> None:
    """RF-06: never empty."""
    aborted = AgentToolResult(run_id="r", agent_type="A", status="aborted")
    assert failure_from_result(aborted).message == "aborted"


@pytest.mark.parametrize("letter", ["x", "字", "\n", '"', "\x00"])
async def test_a_failure_with_3_mb_of_text_stays_under_4_kib(tmp_path: Path, letter: str) -> None:
    """A failure larger than that is cut by Temporal, details first; every alphabet has the same right."""
    text = letter * 3_000_000
    huge = FAILED.model_copy(update={"error": text, "summary": text, "output": text, "run_id": "r" * 128})
    failure = await _sent(huge, tmp_path)
    assert failure.ByteSize() < 4096
    cause = await data_converter(tmp_path).decode_failure(failure)
    result = result_from_failure(cause, run_id="r", agent_type="A")
    assert (result.status, result.reason, result.child_still_running) == ("interrupted", "budget-exceeded", True)
    assert (result.error or "").startswith(letter * 10)


def test_cx_a_cancelled_run_is_aborted_with_the_reason_that_the_caller_knows() -> None:
    """CX: the reason is the caller's, or at least says what happened."""
    aborted = result_from_failure(CancelledError(), run_id="r", agent_type="A", reason="user left")
    assert aborted == AgentToolResult(run_id="r", agent_type="A", status="aborted", error="user left")
    assert result_from_failure(CancelledError(), run_id="r", agent_type="A").error == "cancelled"


def test_a_terminated_run_is_an_error_that_says_so() -> None:
    """An operator's termination is neither a cancel nor a bug."""
    result = result_from_failure(TerminatedError("terminated"), run_id="r", agent_type="A")
    assert (result.status, result.error) == ("error", "The sub-agent was terminated by an operator.")


def test_rf_04_any_other_failure_is_an_error_with_its_own_words() -> None:
    """RF-04: the original message."""
    result = result_from_failure(ApplicationError("boom", type="Other"), run_id="r", agent_type="A", reason="x")
    assert (result.status, result.reason) == ("error", None)
    assert result.error == "boom"


@pytest.mark.parametrize("cause", [None, ValueError(), ApplicationError("")])
def test_rf_06_a_failure_that_says_nothing_gets_a_sentence(cause: BaseException | None) -> None:
    """RF-06: never empty."""
    assert result_from_failure(cause, run_id="r", agent_type="A").error == "The sub-agent failed without saying why."


def test_an_error_result_is_short_enough_to_travel() -> None:
    """RF-01: an error of 3 MB is cut where it is made."""
    result = error_result("r", "A", "x" * 3_000_000)
    assert (result.status, len((result.error or "").encode())) == ("error", MAX_ERROR_BYTES)


def test_rf_06_an_error_result_without_a_text_gets_a_sentence() -> None:
    """RF-06: never empty."""
    assert error_result("r", "A", "").error == generic_error("error")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("boom"), "boom"),
        (ApplicationError("boom", type="ValueError"), "boom"),
        (_activity_error(ApplicationError("boom", type="ValueError")), "boom"),
        (_child_error(_activity_error(ApplicationError("boom", type="ValueError"))), "boom"),
        (_caused(ApplicationError("our words", type="ModelRefused"), ApplicationError("theirs")), "our words"),
        (_child_error(_caused(ApplicationError("our words"), ValueError("theirs"))), "our words"),
        (_activity_error(None), "Activity task failed"),
        (_child_error(CancelledError("left")), "left"),
    ],
)
def test_rf_20_the_text_of_a_failure_is_its_authors_words(error: BaseException, text: str) -> None:
    """RF-20: what Temporal wraps around them, and the types it puts before them, are not shown to a model."""
    assert failure_text(error) == text


def test_rf_20_a_failure_wrapped_by_temporal_is_a_result_in_its_authors_words() -> None:
    """RF-04, RF-20: the original message, however deep it is."""
    cause = _child_error(_activity_error(ApplicationError("boom", type="ValueError")))
    assert result_from_failure(cause, run_id="r", agent_type="A").error == "boom"
