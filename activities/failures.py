"""How activities fail: final where trying again cannot help, with a text that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from turnkeeper.errors import UNKNOWN_AGENT, NotFound
from turnkeeper.runs import shorten_error


@contextmanager
def agents_known_here() -> Iterator[None]:
    """Turn an agent class that this worker lacks into a failure that another worker may still mend."""
    try:
        yield
    except NotFound as error:
        # During a deploy another worker may have the class; the retry policy ends it if none has.
        raise ApplicationError(f"This worker cannot run the agent: {error}", type=UNKNOWN_AGENT) from error


def final_failure(text: str, failure_type: str) -> ApplicationError:
    """Return a failure that is not retried."""
    return ApplicationError(shorten_error(text), type=failure_type, non_retryable=True)


def passing_failure(text: str, failure_type: str, retry_after: timedelta | None = None) -> ApplicationError:
    """Return a failure that is retried, after `retry_after` where the other side named a time."""
    return ApplicationError(shorten_error(text), type=failure_type, next_retry_delay=retry_after)
