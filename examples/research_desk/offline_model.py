"""A model without a provider: the example runs on any machine, without a key or a network."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from examples.research_desk.conversation import read_last_turn, tool_names
from examples.research_desk.offline_answers import MARK, answer, answer_to_notice
from examples.research_desk.offline_rules import call_for, understood
from turnkeeper.models import CustomModelReply


class OfflineModel:
    """Answers by fixed rules: one tool call for a prompt that it understands, then an extract of the results."""

    async def complete(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> CustomModelReply:
        """Answer a conversation; the same conversation always gets the same answer."""
        turn = read_last_turn(messages)
        if turn.outcomes:
            return CustomModelReply(text=answer(turn.outcomes))
        told = answer_to_notice(turn.prompt)
        if told is not None:
            return CustomModelReply(text=told)
        offered = tool_names(tools)
        call = call_for(turn.prompt, offered)
        return CustomModelReply(tool_calls=(call,)) if call else CustomModelReply(text=_what_is_understood(offered))


def _what_is_understood(offered: Collection[str]) -> str:
    phrases = "\n".join(f"- `{phrase}`" for phrase in understood(offered))
    return (
        f"{MARK} I am the offline model: I follow fixed rules, and no language model is asked. "
        + (f"I understand:\n\n{phrases}\n\n" if phrases else "")
        + "For a conversation, set TURNKEEPER_MODEL to a model that litellm knows, such as openai/gpt-5-mini."
    )
