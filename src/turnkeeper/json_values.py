"""The border for JSON that authors, models and users bring: what passes it can be stored, sent and read again."""

import math
from typing import Any

from pydantic import JsonValue

MAX_DEPTH = 100
"""Levels of lists and objects; the JSON parser on the other side of a payload gives up at 200, ours included."""

MAX_INTEGER_BITS = 14_000
"""About 4,200 digits; Python's and pydantic's parsers stop at 4,300."""


def clean_json(value: Any, path: str = "the value", depth: int = 0) -> JsonValue:
    """Return a JSON value with halves of surrogate pairs replaced by question marks (field case 33).

    Args:
        value: what `json.loads`, or pydantic's JSON mode, gave.
        path: how an error calls the value.
        depth: how many levels it is nested in.

    Raises:
        ValueError: a number is not finite, the value is nested deeper than `MAX_DEPTH`, or it is not JSON at all.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case int():
            return _short_integer(value, path)
        case str():
            return clean_text(value)
        case float():
            refuse_non_finite(value, path)
            return value
        case list() | tuple():
            return [clean_json(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
        case dict():
            items = ((clean_text(str(key)), item) for key, item in value.items())
            return {key: clean_json(item, f"{path}.{key}", depth + 1) for key, item in items}
    raise ValueError(f"{path} is of type {type(value).__name__}")


def _short_integer(value: int, path: str) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise ValueError(f"{path} is an integer of more digits than a JSON parser reads")
    return value


def refuse_non_finite(value: Any, path: str = "the value") -> None:
    """Refuse a Python value that holds a number which JSON lacks.

    Raises:
        ValueError: it does; the text says where.
    """
    match value:
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{path} is {value}, which JSON has no number for")
        case dict():
            for key, item in value.items():
                refuse_non_finite(item, f"{path}.{clean_text(str(key))}")
        case list() | tuple() | set() | frozenset():
            for place, item in enumerate(value):
                refuse_non_finite(item, f"{path}[{place}]")


def clean_text(text: str | None) -> str:
    """Return text without halves of surrogate pairs, which no later border would let pass."""
    return (text or "").encode(errors="replace").decode()
