"""UIMessage and its parts: the transcript's format, as the AI SDK defines it.

A turn writes one assistant message; each of its steps begins with a `step-start` part. While the turn runs, each step
is a message of its own under the same id (`merge_steps` joins them), because a step whose tools answered never changes.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from turnkeeper.wire import WireModel

Role = Literal["system", "user", "assistant"]


class TextPart(WireModel):
    """Text that a person or a model wrote."""

    type: Literal["text"] = "text"
    text: str
    state: Literal["streaming", "done"] | None = None


class ReasoningPart(WireModel):
    """What a model showed of its reasoning."""

    type: Literal["reasoning"] = "reasoning"
    text: str
    state: Literal["streaming", "done"] | None = None
    provider_metadata: dict[str, JsonValue] | None = None


class StepStartPart(WireModel):
    """The border between two steps of a turn."""

    type: Literal["step-start"] = "step-start"


class FilePart(WireModel):
    """A file by URL (also a `data:` URL)."""

    type: Literal["file"] = "file"
    media_type: str
    url: str
    filename: str | None = None


class SourceUrlPart(WireModel):
    """A web page that an answer rests on."""

    type: Literal["source-url"] = "source-url"
    source_id: str
    url: str
    title: str | None = None


class SourceDocumentPart(WireModel):
    """A document that an answer rests on."""

    type: Literal["source-document"] = "source-document"
    source_id: str
    media_type: str
    title: str
    filename: str | None = None


class DataPart(WireModel):
    """An application's own data, of type `data-<name>`."""

    type: Annotated[str, Field(pattern=r"^data-.+")]
    id: str | None = None
    data: JsonValue = None

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"data"})


ToolPartState = Literal["input-streaming", "input-available", "output-available", "output-error"]


class ToolPart(WireModel):
    """A tool call, of type `tool-<name>`, and its result once there is one."""

    type: Annotated[str, Field(pattern=r"^tool-.+")]
    tool_call_id: str
    state: ToolPartState
    input: JsonValue = None
    output: JsonValue = None
    """The result, meaningful only in state `output-available`."""
    error_text: str | None = None
    preliminary: bool | None = None
    """True while the output is what a run that goes on has come to so far."""
    input_text: Annotated[str | None, Field(exclude=True)] = None
    """The text of an input that is still streaming; never stored."""
    provider_executed: bool | None = True
    """True for tools that the server runs, which keeps a browser from trying to run them (clients.md 1.2, rule 4)."""

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"input", "output"} if self.state == "output-available" else {"input"})

    @property
    def tool_name(self) -> str:
        """The name by which the model called the tool."""
        return self.type.removeprefix("tool-")

    @property
    def is_settled(self) -> bool:
        """Whether the call has its result."""
        return self.state in ("output-available", "output-error") and not self.preliminary


def _part_kind(part: Any) -> str:
    kind = part.get("type", "") if isinstance(part, dict) else getattr(part, "type", "")
    prefix = str(kind).partition("-")[0]
    return prefix if prefix in ("tool", "data") else str(kind)


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ReasoningPart, Tag("reasoning")]
    | Annotated[StepStartPart, Tag("step-start")]
    | Annotated[FilePart, Tag("file")]
    | Annotated[SourceUrlPart, Tag("source-url")]
    | Annotated[SourceDocumentPart, Tag("source-document")]
    | Annotated[ToolPart, Tag("tool")]
    | Annotated[DataPart, Tag("data")],
    Discriminator(_part_kind),
]
"""Any part of a message."""


class UIMessage(WireModel):
    """One message of a conversation."""

    id: str
    role: Role
    metadata: dict[str, JsonValue] | None = None
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        """The message's text parts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart) and part.text)

    @property
    def tool_parts(self) -> list[ToolPart]:
        """The message's tool calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolPart)]


STEERING = "data-steering"
"""The type of the parts that keep what was said into a turn, inside the assistant's message."""


def user_message(message_id: str, text: str) -> UIMessage:
    """Return a user message that says `text`."""
    return UIMessage(id=message_id, role="user", parts=(TextPart(text=text),))


def settle_call(message: UIMessage, settled: ToolPart) -> UIMessage:
    """Return `message` with one of its open tool calls replaced by what it came to."""
    parts = tuple(
        settled
        if isinstance(part, ToolPart) and part.tool_call_id == settled.tool_call_id and not part.is_settled
        else part
        for part in message.parts
    )
    return message.model_copy(update={"parts": parts})


def close_open_calls(message: UIMessage, reason: str) -> UIMessage:
    """Return `message` with an error result for every call that has none, so that a provider accepts it."""
    parts = tuple(
        part.model_copy(update={"state": "output-error", "error_text": reason})
        if isinstance(part, ToolPart) and not part.is_settled
        else part
        for part in message.parts
    )
    return message.model_copy(update={"parts": parts})


def merge_steps(messages: Iterable[UIMessage]) -> list[UIMessage]:
    """Join neighbouring messages with the same id, which are the steps of one turn."""
    merged: list[UIMessage] = []
    for message in messages:
        if merged and message.role == merged[-1].role == "assistant" and message.id == merged[-1].id:
            merged[-1] = merged[-1].model_copy(update={"parts": merged[-1].parts + message.parts})
        else:
            merged.append(message)
    return merged


def last_step(messages: Sequence[UIMessage]) -> UIMessage | None:
    """Return the last model step among a loop's messages; what was said into it may come after."""
    for message in reversed(messages):
        if any(isinstance(part, StepStartPart) for part in message.parts):
            return message
    return None


def last_assistant_text(messages: Sequence[UIMessage]) -> str:
    """Return the text of the last step with text among assistant messages, or "" (RF-14 as decided)."""
    for message in reversed(messages):
        if message.role == "assistant" and message.text:
            return message.text
    return ""
