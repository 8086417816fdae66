"""What a rule-based model reads of a conversation in the OpenAI chat-completions format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolOutcome:
    """A tool call and what came back, which may be an error's text."""

    tool: str
    arguments: Mapping[str, Any]
    text: str


@dataclass(frozen=True)
class LastTurn:
    """The last user message, and what the tools gave since."""

    prompt: str
    outcomes: tuple[ToolOutcome, ...]


def read_last_turn(messages: Sequence[Mapping[str, Any]]) -> LastTurn:
    """Return the turn that is to be answered."""
    starts = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not starts:
        return LastTurn(prompt="", outcomes=())
    turn = messages[starts[-1] :]
    calls = {call["id"]: call["function"] for message in turn for call in message.get("tool_calls") or ()}
    return LastTurn(
        prompt=_text_of(turn[0]).strip(),
        outcomes=tuple(
            _outcome_of(calls[message["tool_call_id"]], message)
            for message in turn
            if message["role"] == "tool" and message["tool_call_id"] in calls
        ),
    )


def tool_names(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the tools that are offered."""
    return frozenset(str(tool["function"]["name"]) for tool in tools)


def _outcome_of(call: Mapping[str, Any], message: Mapping[str, Any]) -> ToolOutcome:
    return ToolOutcome(tool=call["name"], arguments=json.loads(call["arguments"] or "{}"), text=_text_of(message))


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    # With files, the content is a list of parts.
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
