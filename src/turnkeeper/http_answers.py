"""What the HTTP API answers, as its clients read it, and the errors that its refusals are."""

import httpx
from pydantic import AwareDatetime, JsonValue

from turnkeeper.errors import Conflict, InvalidRequest, NotFound, RequestError, TooLarge, TurnkeeperError, Unavailable
from turnkeeper.messages import UIMessage
from turnkeeper.runs import AgentToolRunInfo
from turnkeeper.turns import TurnStatus
from turnkeeper.wire import WireModel

_ERRORS: dict[int, type[TurnkeeperError]] = {
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


class Turn(WireModel):
    """A turn, as the API shows it."""

    turn_id: str
    status: TurnStatus
    url: str
    """Its path in the API."""
    workflow_id: str
    """Its id in the Temporal UI."""
    submission_id: str | None = None
    message_id: str | None = None
    submitted_at: AwareDatetime | None = None
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    error: str | None = None
    message: UIMessage | None = None
    """What the assistant has written; only where one turn is asked for."""
    hint: str | None = None


class Run(AgentToolRunInfo):
    """A run, as the API shows it; its `run_id` is the last one on its path."""

    url: str
    """Its path in the API."""
    workflow_id: str
    """Its id in the Temporal UI."""
    output: JsonValue = None
    steps: int = 0
    hint: str | None = None


class AgentType(WireModel):
    """A kind of agent that the API serves."""

    agent_type: str


def check_answer(answer: httpx.Response) -> None:
    """Raise the error that an answer tells of, if it does.

    Raises:
        TurnkeeperError: the one that its status stands for.
    """
    if answer.is_success:
        return
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"{answer.url} answered {answer.status_code} {answer.reason_phrase}"
    default = RequestError if answer.status_code < 500 else TurnkeeperError
    raise _ERRORS.get(answer.status_code, default)(detail)


def reason_of(error: Exception) -> str:
    """Return why something failed; some exceptions of httpx have no text."""
    return str(error) or type(error).__name__
