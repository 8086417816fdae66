"""Which tool the offline model calls for a prompt: a few patterns, tried in order."""

import json
import re
from collections.abc import Callable, Collection

from pydantic import JsonValue

from turnkeeper.models import CustomModelToolCall

Arguments = dict[str, JsonValue]

_COMPARE = re.compile(r"(?:please\s+)?compare\s+(.+?)\s+(?:and|with|vs\.?|versus)\s+(.+)", re.IGNORECASE | re.DOTALL)
_BACKGROUND = re.compile(r"(?:please\s+)?research\s+(.+?)\s+in\s+the\s+background", re.IGNORECASE | re.DOTALL)
_RESEARCH = re.compile(r"(?:please\s+)?research\s+(.+)", re.IGNORECASE | re.DOTALL)
_PLAN = re.compile(r"(?:please\s+)?plan\s+(.+)", re.IGNORECASE | re.DOTALL)
_IMPORT = re.compile(r"(?:please\s+)?import\b.*", re.IGNORECASE | re.DOTALL)
_DATABASE = re.compile(r"[^\s'\"`]+\.(?:db|sqlite3?)\b", re.IGNORECASE)


def call_for(prompt: str, offered: Collection[str]) -> CustomModelToolCall | None:
    """Return the call that a prompt asks for, or None when no rule of an offered tool fits it."""
    for tool, arguments_of in _RULES.items():
        arguments = arguments_of(prompt) if tool in offered else None
        if arguments is not None:
            return CustomModelToolCall(name=tool, arguments=arguments)
    return None


def understood(offered: Collection[str]) -> list[str]:
    """Return the phrases that have a rule among the offered tools."""
    return [phrase for tool, phrase in _PHRASES.items() if tool in offered]


def _matching(pattern: re.Pattern[str], *names: str) -> Callable[[str], Arguments | None]:
    """Return a rule whose arguments are the groups of a pattern that the whole prompt must match."""

    def arguments_of(prompt: str) -> Arguments | None:
        match = pattern.fullmatch(prompt.strip().rstrip(".?! "))
        return dict(zip(names, match.groups(), strict=True)) if match else None

    return arguments_of


def _field(name: str) -> Callable[[str], Arguments | None]:
    """Return a rule that takes a field of the run's input, or the whole text of a follow-up question."""

    def arguments_of(prompt: str) -> Arguments | None:
        value = _input_of(prompt).get(name)
        text = value if isinstance(value, str) else prompt
        return {name: text} if text else None

    return arguments_of


def _import_arguments(prompt: str) -> Arguments | None:
    return _database_arguments(prompt) if _IMPORT.fullmatch(prompt) else None


def _database_arguments(prompt: str) -> Arguments:
    value = _input_of(prompt).get("database")
    if isinstance(value, str):
        return {"database": value}
    named = _DATABASE.search(prompt)
    return {"database": named.group()} if named else {}


def _input_of(prompt: str) -> Arguments:
    """Return a run's input, which is the JSON text of its first user message, or nothing for any other text."""
    try:
        value = json.loads(prompt)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


_RULES: dict[str, Callable[[str], Arguments | None]] = {
    "compare": _matching(_COMPARE, "left", "right"),
    "research_background": _matching(_BACKGROUND, "query"),
    "research": _matching(_RESEARCH, "query"),
    "plan": _matching(_PLAN, "goal"),
    "import_records": _import_arguments,
    "search": _field("query"),
    "inspect_distributions": _field("goal"),
    "load_records": _database_arguments,
}

_PHRASES = {
    "research": "Research <topic>",
    "research_background": "Research <topic> in the background",
    "compare": "Compare <one topic> and <another>",
    "plan": "Plan <goal>",
    "import_records": "Import the records into <name>.db",
}
