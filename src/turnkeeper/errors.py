"""What can go wrong, named for what the caller can do about it.

    TurnkeeperError
    ├── AgentDefinitionError     an agent class or a settings value is wrong: mend the code
    ├── RequestError             a request was refused; nothing was changed
    │   ├── InvalidRequest       the request itself is wrong: mend it
    │   ├── NotFound             no such thing, or not yours
    │   ├── Conflict             the id is taken by something else: choose another
    │   └── TooLarge             over a size limit: send less
    ├── Unavailable              nobody could answer in time: try again, with the same key
    ├── MilestoneMissed          a run did not reach a milestone, and says why
    ├── RollingOver              a session is about to continue as new: the client tries again by itself
    └── TranscriptUnreadable     an activity could not read the conversation that it was pointed at

The constants are the `type` strings of Temporal's application failures, which is how these errors cross a workflow's
edge; `turnkeeper.client` turns them back into the classes.
"""

from typing import ClassVar

TURN_FAILED = "TurnFailed"
RUN_FAILED = "RunFailed"
MODEL_REFUSED = "ModelRefused"
MODEL_UNAVAILABLE = "ModelUnavailable"
CONTEXT_OVERFLOW = "ContextOverflow"
UNKNOWN_AGENT = "UnknownAgent"


class TurnkeeperError(Exception):
    """Something that this package noticed and can explain."""

    wire_type: ClassVar[str] = "TurnkeeperError"


class AgentDefinitionError(TurnkeeperError):
    """An agent class, a tool or a setting is not usable as it was written."""

    wire_type = "AgentDefinitionError"


class RequestError(TurnkeeperError):
    """A request was refused and changed nothing."""

    wire_type = "RequestError"


class InvalidRequest(RequestError):
    """The request is malformed or asks for something that cannot be."""

    wire_type = "InvalidRequest"


class NotFound(RequestError):
    """The thing does not exist, or belongs to somebody else."""

    wire_type = "NotFound"


class Conflict(RequestError):
    """An id or key is already used for something else (DI-16)."""

    wire_type = "Conflict"


class TooLarge(RequestError):
    """A value is over its size limit."""

    wire_type = "TooLarge"


class Unavailable(TurnkeeperError):
    """Temporal or its workers did not answer in time."""

    wire_type = "Unavailable"


class MilestoneMissed(TurnkeeperError):
    """A run did not reach a milestone in time, or ended or was given up without it."""

    wire_type = "MilestoneMissed"


class RollingOver(TurnkeeperError):
    """A session admits nothing that would put its continue-as-new off."""

    wire_type = "RollingOver"


class TranscriptUnreadable(TurnkeeperError):
    """The transcript that a reference points at could not be read."""

    wire_type = "TranscriptUnreadable"


REQUEST_ERRORS: dict[str, type[RequestError]] = {
    error.wire_type: error for error in (InvalidRequest, NotFound, Conflict, TooLarge)
}
"""Request errors by the wire type they cross a workflow's edge with."""
