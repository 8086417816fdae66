"""What a model is shown of a tool's result that is too long for it: shortened, and still JSON (field case 4)."""

import json

from pydantic import JsonValue

from turnkeeper.runs import compact_json

LARGEST_SHOWN = 64 * 1024
"""Characters of one result that the model is shown; the transcript and the API have all of it."""

_FIRST_STRING, _FIRST_ITEMS = 4_096, 256


def shown_result(output: JsonValue, tool_call_id: str, limit: int = LARGEST_SHOWN) -> str:
    """Return a result as text for the model.

    Args:
        output: the result; text that holds JSON is shortened as JSON.
        tool_call_id: names the result in the transcript, where the whole of it is.
        limit: characters.
    """
    text = output if isinstance(output, str) else compact_json(output)
    if len(text) <= limit:
        return text
    marker: JsonValue = {
        "shortened": True,
        "characters": len(text),
        "whole": f"in the transcript, under the call {tool_call_id}",
    }
    value = _parsed(output)
    longest, most = _FIRST_STRING, _FIRST_ITEMS
    while longest:
        shown = compact_json({"note": marker, "value": _cut(value, longest, most)})
        if len(shown) <= limit:
            return shown
        longest, most = longest // 2, max(1, most // 2)
    return compact_json({"note": marker})


def _parsed(output: JsonValue) -> JsonValue:
    if not isinstance(output, str) or output.lstrip()[:1] not in ("{", "["):
        return output
    try:
        value: JsonValue = json.loads(output)
    except (RecursionError, ValueError):
        return output
    return value


def _cut(value: JsonValue, longest: int, most: int) -> JsonValue:
    """Return a value with long texts, lists and objects cut, each with a word on how much is left out."""
    match value:
        case str() if len(value) > longest:
            return f"{value[:longest]}… ({len(value) - longest:,} more characters)"
        case list():
            kept = [_cut(item, longest, most) for item in value[:most]]
            return [*kept, f"… ({len(value) - most:,} more items)"] if len(value) > most else kept
        case dict():
            fields = {key: _cut(item, longest, most) for key, item in list(value.items())[:most]}
            return {**fields, "…": f"{len(value) - most:,} more fields"} if len(value) > most else fields
    return value
