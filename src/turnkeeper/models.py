"""Custom models: an author's own code behind a model name, reached through litellm like any provider."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue

from turnkeeper.wire import WireModel


class CustomModelToolCall(WireModel):
    """A tool call that a custom model makes."""

    name: str
    arguments: dict[str, JsonValue]


class CustomModelReply(WireModel):
    """What a custom model answers: text, tool calls, or both."""

    text: str | None = None
    tool_calls: tuple[CustomModelToolCall, ...] = ()


class CustomModel(Protocol):
    """Answers model calls in the worker's own process.

    A module of agents offers some as `custom_models = {"provider": model}`; an agent whose `model` is
    `"provider/anything"` then uses it.
    """

    async def complete(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> CustomModelReply:
        """Answer a conversation.

        Args:
            model: what follows the provider's name.
            messages: the conversation in the OpenAI chat-completions format.
            tools: the tools in the same format.
        """
