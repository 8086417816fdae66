"""Says something into a turn or run that goes on: the two strengths below a cancel."""

from types import NoneType

from turnkeeper import names
from turnkeeper.errors import Conflict, InvalidRequest, NotFound, TooLarge
from turnkeeper.json_values import clean_text
from turnkeeper.turns import MAX_MESSAGE_BYTES, SteerInput, WrapUpInput
from turnkeeper.workflow_requests import WorkflowRequests

_OVER = "it is not going on; send a message to the agent instead"


async def steer(requests: WorkflowRequests, workflow_id: str, text: str, message_id: str) -> None:
    """Put a message before the model, before the next step of a turn or run.

    A turn that was about to end takes one more step for it.

    Args:
        requests: how to reach it.
        workflow_id: the turn's or run's.
        text: what to say.
        message_id: the sender's; the same id again is the same message.

    Raises:
        Conflict: it has not begun, or has ended.
        InvalidRequest: the text says nothing.
        TooLarge: it is over `MAX_MESSAGE_BYTES`.
        Unavailable: nobody answered.
    """
    said = SteerInput(message_id=message_id, text=clean_text(text))
    if not said.text.strip():
        raise InvalidRequest("the message says nothing")
    size = len(said.text.encode())
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge(f"the message is {size:,} bytes, over the limit of {MAX_MESSAGE_BYTES:,}")
    try:
        await requests.update(workflow_id, names.STEER, said, NoneType)
    except NotFound as error:
        raise Conflict(_OVER) from error


async def wrap_up(requests: WorkflowRequests, workflow_id: str, reason: str | None) -> None:
    """Ask a turn or run to finish with what it has: no more tools, one last answer; the runs that it awaits as well.

    Raises:
        Conflict: it has not begun, or has ended.
        Unavailable: Temporal did not answer.
    """
    try:
        await requests.signal(workflow_id, names.WRAP_UP, WrapUpInput(reason=reason))
    except NotFound as error:
        raise Conflict(_OVER) from error
