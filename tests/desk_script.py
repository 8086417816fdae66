"""What the model of the desk's agents does: the model server's default script, and two more words."""

import re

from model_server import ChatRequest, ModelServer, Refuse, Reply, asked_of, default_script, reply_to, text_of

_REPEAT = re.compile(r"repeat (\d+) (call .*)", re.DOTALL)
_REFUSE = re.compile(r"refuse (\d+)")


def desk_script(request: ChatRequest) -> Reply:
    """Do what the last user message says.

    `repeat N call NAME {json}` makes the call in N steps, one after the other; `refuse STATUS` answers with an HTTP
    error; for the rest see `model_server.default_script`.
    """
    asked, steps = _last_question(request)
    if (repeat := _REPEAT.fullmatch(asked)) and steps < int(repeat[1]):
        return reply_to(repeat[2])
    if (refuse := _REFUSE.fullmatch(asked)) and not steps:
        return Refuse(int(refuse[1]))
    if not steps:
        return reply_to(asked)
    return default_script(request)


def start_afresh(model_server: ModelServer) -> None:
    """Have the model server play the desk's model, with nothing on record."""
    model_server.script = desk_script
    model_server.requests.clear()
    model_server.refusals.clear()


def _last_question(request: ChatRequest) -> tuple[str, int]:
    """Return what the last user message asks, and how many steps with tool calls came after it."""
    steps = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            return asked_of(text_of(message)), steps
        steps += bool(message.get("tool_calls"))
    return "", steps
