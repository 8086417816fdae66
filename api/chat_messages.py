"""What a chat client posts, and what of it counts."""

from hashlib import blake2b
from typing import Any

from pydantic import TypeAdapter, ValidationError

from turnkeeper import names
from turnkeeper.errors import InvalidRequest
from turnkeeper.messages import FilePart, TextPart, UIMessage

_PARTS: TypeAdapter[list[TextPart | FilePart]] = TypeAdapter(list[TextPart | FilePart])


def new_message(body: Any) -> tuple[UIMessage, str]:
    """Return the user message that a chat client posts, and the id under which posting it again is the same.

    The client may send its whole history (`messages`) or only the newest message (`message`). Of either only the last
    message counts, of that only its text and files: what an assistant or a tool is said to have said is not trusted.

    Raises:
        InvalidRequest: there is no new user message in it.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be an object with `messages` or `message`")
    if body.get("trigger") == "regenerate-message":
        raise InvalidRequest("an answer cannot be written anew; send another message instead")
    posted = body.get("message")
    if posted is None and isinstance(body.get("messages"), list) and body["messages"]:
        posted = body["messages"][-1]
    if not isinstance(posted, dict):
        raise InvalidRequest("`messages` must end with the new message, or `message` must hold it")
    if posted.get("role") != "user":
        raise InvalidRequest("the last message is not the user's, so there is nothing to answer")
    return _stored(posted), _submission_id(posted)


def _stored(posted: dict[str, Any]) -> UIMessage:
    parts = [part for part in _list(posted.get("parts")) if _kind(part) in ("text", "file")]
    if not parts and isinstance(posted.get("content"), str):
        parts = [{"type": "text", "text": posted["content"]}]
    metadata = posted.get("metadata")
    try:
        return UIMessage(
            id=_submission_id(posted),
            role="user",
            parts=tuple(_PARTS.validate_python(parts)),
            metadata=metadata if isinstance(metadata, dict) else None,
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(place) for place in first["loc"])
        raise InvalidRequest(f"the message's parts: {where}: {first['msg']}") from error


def _submission_id(posted: dict[str, Any]) -> str:
    """Return the message's id, or where it has none that can be one of ours, a fingerprint of it."""
    given = posted.get("id")
    if not isinstance(given, str) or not given:
        raise InvalidRequest("the message needs an `id`, by which it is recognised when it is posted again")
    if names.is_name(given) and not given.startswith(names.assistant_message_id("")):
        return given
    return f"m-{blake2b(given.encode(errors='replace'), digest_size=12).hexdigest()}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None
