"""The transcript as providers take it: the OpenAI chat-completions format, which litellm turns into the others."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from activities.large_values import shown_result
from turnkeeper.agents import Tool
from turnkeeper.messages import STEERING, DataPart, FilePart, Part, StepStartPart, TextPart, ToolPart, UIMessage
from turnkeeper.runs import compact_json

ProviderMessage = dict[str, Any]


def provider_messages(instructions: str, messages: Sequence[UIMessage]) -> list[ProviderMessage]:
    """Return a conversation for a provider: the system prompt, then each message, each step with its results."""
    converted: list[ProviderMessage] = []
    if instructions:
        converted.append({"role": "system", "content": instructions})
    for message in messages:
        if message.role == "assistant":
            for step in _steps_of(message):
                converted.extend(_step_messages(step))
                converted.extend(_steering(step))
        else:
            converted.append({"role": message.role, "content": _content_of(message)})
    return converted


def provider_tools(tools: Sequence[Tool]) -> list[dict[str, JsonValue]]:
    """Return tools as function declarations."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def _steps_of(message: UIMessage) -> Iterator[list[Part]]:
    step: list[Part] = []
    for part in message.parts:
        if isinstance(part, StepStartPart):
            if step:
                yield step
            step = []
        else:
            step.append(part)
    if step:
        yield step


def _step_messages(step: list[Part]) -> Iterator[ProviderMessage]:
    calls = [part for part in step if isinstance(part, ToolPart)]
    text = "\n".join(_said(part) for part in step if _said(part))
    if not text and not calls:
        return
    message: ProviderMessage = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [_provider_call(call) for call in calls]
    yield message
    for call in calls:
        yield {"role": "tool", "tool_call_id": call.tool_call_id, "content": _result_text(call)}


def _steering(step: list[Part]) -> Iterator[ProviderMessage]:
    """Yield what people said into the turn after a step, in their own role."""
    for part in step:
        if isinstance(part, DataPart) and part.type == STEERING and isinstance(part.data, dict):
            yield {"role": "user", "content": str(part.data.get("text") or "")}


def _said(part: Part) -> str:
    """Return what a part of an answer says. Providers take no files from an assistant, so those are only named."""
    if isinstance(part, FilePart):
        return f"({part.media_type})"
    return part.text if isinstance(part, TextPart) and part.text.strip() else ""


def _provider_call(call: ToolPart) -> ProviderMessage:
    # What goes back to a provider is always a JSON object (field case 12).
    arguments = call.input if isinstance(call.input, dict) else {}
    return {
        "id": call.tool_call_id,
        "type": "function",
        "function": {"name": _provider_name(call.tool_name), "arguments": compact_json(arguments)},
    }


def _provider_name(tool_name: str) -> str:
    """Return a tool's name as a provider accepts it: a model may have made one up that no provider does."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", tool_name)[:64]


def _result_text(call: ToolPart) -> str:
    if call.state == "output-available":
        return shown_result(call.output, call.tool_call_id)
    return call.error_text or "The call has no result."


def _content_of(message: UIMessage) -> Any:
    files = [part for part in message.parts if isinstance(part, FilePart)]
    if not files:
        return message.text
    content: list[dict[str, JsonValue]] = [{"type": "text", "text": message.text}] if message.text else []
    for file in files:
        if file.media_type.startswith("image/"):
            content.append({"type": "image_url", "image_url": {"url": file.url}})
        else:
            content.append({"type": "file", "file": {"file_data": file.url, "filename": file.filename or "file"}})
    return content
