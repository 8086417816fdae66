"""Makes room in a conversation that is too long for its model: the older part gives way to a summary of it.

What people read stays whole; only what the model is shown is shortened. The cut is between messages, and a turn's steps
are messages of their own while it goes on, so that a call is never parted from its result or from its reasoning.
"""

import json
from collections.abc import Awaitable, Callable, Sequence

from activities.provider_messages import ProviderMessage, provider_messages
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.runs import compact_json
from turnkeeper.turns import Compaction

SUMMARY_PROMPT = (
    "Summarise the conversation below for the assistant that has to go on with it and will not see it again. Keep what "
    "the user wants, what was decided, names, numbers, identifiers and open questions, and what tools found. Write "
    "only the summary."
)
SUMMARY_OPENING = "This is a summary of the conversation so far, whose messages are left out:"
SUMMARY_ID = "compaction"

LONGEST_RESULT = 2_000
"""Characters of one message or tool result that the summary is made from."""

SMALLEST_EXCERPT = 2_000
"""Characters: a conversation of which not even so much can be summarised cannot be helped."""

Summarise = Callable[[list[ProviderMessage]], Awaitable[str | None]]
"""Asks the model; None when even that was too long for it."""


def shown(messages: Sequence[UIMessage], compaction: Compaction | None) -> list[UIMessage]:
    """Return a conversation as the model is to see it."""
    if compaction is None or compaction.replaces > len(messages):
        return list(messages)
    summary = user_message(SUMMARY_ID, f"{SUMMARY_OPENING}\n\n{compaction.summary}")
    return [summary, *messages[compaction.replaces :]]


async def compact(messages: Sequence[UIMessage], before: Compaction | None, summarise: Summarise) -> Compaction | None:
    """Return a shorter view of a conversation, or None if there is none.

    Args:
        messages: the whole conversation, each step of the turn that goes on a message.
        before: how it was shortened already.
        summarise: asks the model for a summary.
    """
    already = before.replaces if before is not None else 0
    cut = _cut(messages, already)
    if cut is None:
        return None
    old = provider_messages("", shown(messages[:cut], before))
    excerpt = "\n\n".join(_line(message) for message in old)
    summary = None
    while summary is None and len(excerpt) >= min(SMALLEST_EXCERPT, len(excerpt)):
        summary = await summarise([{"role": "system", "content": SUMMARY_PROMPT}, {"role": "user", "content": excerpt}])
        if summary is None and len(excerpt) <= SMALLEST_EXCERPT:
            return None
        excerpt = _halved(excerpt)
    compaction = Compaction(summary=summary or "", replaces=cut)
    is_shorter = _size(shown(messages, compaction)) < _size(shown(messages, before))
    return compaction if summary and summary.strip() and is_shorter else None


def _cut(messages: Sequence[UIMessage], already: int) -> int | None:
    """Return how many messages to replace: all before the user's last one, or else all before the last step."""
    last_user = max((place for place, message in enumerate(messages) if message.role == "user"), default=0)
    for cut in (last_user, len(messages) - 1):
        if cut > already:
            return cut
    return None


def _line(message: ProviderMessage) -> str:
    said = message.get("content") or ""
    text = said if isinstance(said, str) else compact_json(said)
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls", ())]
    whole = " ".join((text, *calls)).strip()
    return f"{message['role']}: {whole[:LONGEST_RESULT]}{'…' if len(whole) > LONGEST_RESULT else ''}"


def _halved(text: str) -> str:
    """Return the beginning and the end of a text, half of it in all."""
    quarter = len(text) // 4
    return f"{text[:quarter]}\n…\n{text[-quarter:]}"


def _size(messages: list[UIMessage]) -> int:
    return len(json.dumps(provider_messages("", messages), ensure_ascii=False))
