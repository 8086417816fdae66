"""UIMessageChunk: what streams out of a model step, and how chunks add up to a message's parts.

Only the fields of the AI SDK's strict "safe core" exist here (clients.md 1.2).
"""

from typing import Annotated, Literal, assert_never

from pydantic import Field, JsonValue

from turnkeeper.messages import FilePart, Part, ReasoningPart, SourceUrlPart, TextPart, ToolPart
from turnkeeper.wire import WireModel


class TextStart(WireModel):
    """Begins a text part."""

    type: Literal["text-start"] = "text-start"
    id: str


class TextDelta(WireModel):
    """Adds to a text part."""

    type: Literal["text-delta"] = "text-delta"
    id: str
    delta: str


class TextEnd(WireModel):
    """Ends a text part."""

    type: Literal["text-end"] = "text-end"
    id: str


class ReasoningStart(WireModel):
    """Begins a reasoning part."""

    type: Literal["reasoning-start"] = "reasoning-start"
    id: str


class ReasoningDelta(WireModel):
    """Adds to a reasoning part."""

    type: Literal["reasoning-delta"] = "reasoning-delta"
    id: str
    delta: str


class ReasoningEnd(WireModel):
    """Ends a reasoning part."""

    type: Literal["reasoning-end"] = "reasoning-end"
    id: str


class ToolInputAvailable(WireModel):
    """A tool call with its whole input."""

    type: Literal["tool-input-available"] = "tool-input-available"
    tool_call_id: str
    tool_name: str
    input: JsonValue = None

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"input"})


class ToolOutputAvailable(WireModel):
    """The result of a tool call."""

    type: Literal["tool-output-available"] = "tool-output-available"
    tool_call_id: str
    output: JsonValue = None

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"output"})


class ToolOutputError(WireModel):
    """The failure of a tool call."""

    type: Literal["tool-output-error"] = "tool-output-error"
    tool_call_id: str
    error_text: str


class SourceUrl(WireModel):
    """A web page that the answer rests on."""

    type: Literal["source-url"] = "source-url"
    source_id: str
    url: str
    title: str | None = None


class File(WireModel):
    """A file by URL."""

    type: Literal["file"] = "file"
    url: str
    media_type: str


class Error(WireModel):
    """The stream failed; nothing after it counts."""

    type: Literal["error"] = "error"
    error_text: str


UIMessageChunk = Annotated[
    TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputAvailable
    | ToolOutputAvailable
    | ToolOutputError
    | SourceUrl
    | File
    | Error,
    Field(discriminator="type"),
]
"""Any chunk that an author may stream."""


class StreamError(Exception):
    """The stream said that it failed (RF-20)."""


class PartsBuilder:
    """Adds chunks up to the parts of a message, in order of their beginning."""

    def __init__(self) -> None:
        """Begin without parts."""
        self._parts: list[Part] = []
        self._places: dict[str, int] = {}

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts so far."""
        return tuple(self._parts)

    def add(self, chunk: UIMessageChunk) -> None:
        """Take one chunk.

        Raises:
            StreamError: it is an `error` chunk.
            ValueError: it refers to a part or call that never began.
        """
        match chunk:
            case TextStart(id=part_id):
                self._begin(f"text/{part_id}", TextPart(text=""))
            case ReasoningStart(id=part_id):
                self._begin(f"reasoning/{part_id}", ReasoningPart(text=""))
            case TextDelta(id=part_id, delta=delta):
                self._extend(f"text/{part_id}", delta)
            case ReasoningDelta(id=part_id, delta=delta):
                self._extend(f"reasoning/{part_id}", delta)
            case TextEnd(id=part_id):
                self._place(f"text/{part_id}")
            case ReasoningEnd(id=part_id):
                self._place(f"reasoning/{part_id}")
            case ToolInputAvailable():
                self._begin(f"tool/{chunk.tool_call_id}", _tool_part(chunk))
            case ToolOutputAvailable():
                self._settle(chunk.tool_call_id, {"state": "output-available", "output": chunk.output})
            case ToolOutputError():
                self._settle(chunk.tool_call_id, {"state": "output-error", "error_text": chunk.error_text})
            case SourceUrl():
                self._parts.append(SourceUrlPart(source_id=chunk.source_id, url=chunk.url, title=chunk.title))
            case File():
                self._parts.append(FilePart(url=chunk.url, media_type=chunk.media_type))
            case Error(error_text=text):
                raise StreamError(text)
            case _:
                assert_never(chunk)

    def _begin(self, key: str, part: Part) -> None:
        self._places[key] = len(self._parts)
        self._parts.append(part)

    def _place(self, key: str) -> int:
        if key not in self._places:
            raise ValueError(f"a chunk came for {key}, which was never started")
        return self._places[key]

    def _extend(self, key: str, delta: str) -> None:
        place = self._place(key)
        part = self._parts[place]
        assert isinstance(part, TextPart | ReasoningPart)
        self._parts[place] = part.model_copy(update={"text": part.text + delta})

    def _settle(self, tool_call_id: str, update: dict[str, JsonValue]) -> None:
        place = self._place(f"tool/{tool_call_id}")
        self._parts[place] = self._parts[place].model_copy(update=update)


def _tool_part(chunk: ToolInputAvailable) -> ToolPart:
    return ToolPart(
        type=f"tool-{chunk.tool_name}",
        tool_call_id=chunk.tool_call_id,
        state="input-available",
        input=chunk.input,
    )
