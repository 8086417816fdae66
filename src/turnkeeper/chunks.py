"""UIMessageChunk: what streams out of a turn, and how chunks add up to a message's parts.

Only the fields of the AI SDK's strict "safe core" exist here (clients.md 1.2).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, assert_never

from pydantic import Discriminator, Field, JsonValue, Tag
from pydantic_core import from_json

from turnkeeper.messages import (
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from turnkeeper.wire import WireModel


class StartStep(WireModel):
    """Begins a step."""

    type: Literal["start-step"] = "start-step"


class FinishStep(WireModel):
    """Ends a step."""

    type: Literal["finish-step"] = "finish-step"


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


class ToolInputStart(WireModel):
    """Begins a tool call, whose input follows as text."""

    type: Literal["tool-input-start"] = "tool-input-start"
    tool_call_id: str
    tool_name: str
    provider_executed: bool | None = True
    """See `ToolPart.provider_executed`."""


class ToolInputDelta(WireModel):
    """Adds to the text of a tool call's input."""

    type: Literal["tool-input-delta"] = "tool-input-delta"
    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(WireModel):
    """A tool call with its whole input."""

    type: Literal["tool-input-available"] = "tool-input-available"
    tool_call_id: str
    tool_name: str
    input: JsonValue = None
    provider_executed: bool | None = True
    """See `ToolPart.provider_executed`."""

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"input"})


class ToolOutputAvailable(WireModel):
    """The result of a tool call, or with `preliminary` what it has come to so far."""

    type: Literal["tool-output-available"] = "tool-output-available"
    tool_call_id: str
    output: JsonValue = None
    preliminary: bool | None = None
    provider_executed: bool | None = True
    """See `ToolPart.provider_executed`."""

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"output"})


class ToolOutputError(WireModel):
    """The failure of a tool call."""

    type: Literal["tool-output-error"] = "tool-output-error"
    tool_call_id: str
    error_text: str
    provider_executed: bool | None = True
    """See `ToolPart.provider_executed`."""


class SourceUrl(WireModel):
    """A web page that the answer rests on."""

    type: Literal["source-url"] = "source-url"
    source_id: str
    url: str
    title: str | None = None


class SourceDocument(WireModel):
    """A document that the answer rests on."""

    type: Literal["source-document"] = "source-document"
    source_id: str
    media_type: str
    title: str
    filename: str | None = None


class File(WireModel):
    """A file by URL."""

    type: Literal["file"] = "file"
    url: str
    media_type: str


class DataChunk(WireModel):
    """An application's own data, of type `data-<name>`; the same type and id again replaces what was there."""

    type: Annotated[str, Field(pattern=r"^data-.+")]
    id: str | None = None
    data: JsonValue = None
    transient: bool | None = None
    """Whether it is for whoever watches only, and becomes no part of the message."""

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"data"})


class Error(WireModel):
    """The stream failed; nothing after it counts."""

    type: Literal["error"] = "error"
    error_text: str


def _chunk_kind(chunk: Any) -> str:
    kind = str(chunk.get("type", "") if isinstance(chunk, dict) else getattr(chunk, "type", ""))
    return "data" if kind.startswith("data-") else kind


UIMessageChunk = Annotated[
    Annotated[StartStep, Tag("start-step")]
    | Annotated[FinishStep, Tag("finish-step")]
    | Annotated[TextStart, Tag("text-start")]
    | Annotated[TextDelta, Tag("text-delta")]
    | Annotated[TextEnd, Tag("text-end")]
    | Annotated[ReasoningStart, Tag("reasoning-start")]
    | Annotated[ReasoningDelta, Tag("reasoning-delta")]
    | Annotated[ReasoningEnd, Tag("reasoning-end")]
    | Annotated[ToolInputStart, Tag("tool-input-start")]
    | Annotated[ToolInputDelta, Tag("tool-input-delta")]
    | Annotated[ToolInputAvailable, Tag("tool-input-available")]
    | Annotated[ToolOutputAvailable, Tag("tool-output-available")]
    | Annotated[ToolOutputError, Tag("tool-output-error")]
    | Annotated[SourceUrl, Tag("source-url")]
    | Annotated[SourceDocument, Tag("source-document")]
    | Annotated[File, Tag("file")]
    | Annotated[DataChunk, Tag("data")]
    | Annotated[Error, Tag("error")],
    Discriminator(_chunk_kind),
]
"""Any chunk that a step may stream; a `ChatAgent` yields these."""


MAX_PARTIAL_INPUT = 16 * 1024
"""Characters up to which the input of a tool call is read while it still streams."""


class StreamError(Exception):
    """The stream said that it failed (RF-20)."""


class PartsBuilder:
    """Adds chunks up to the parts of a message, in order of their beginning."""

    def __init__(self, parts: tuple[Part, ...] = (), places: Mapping[str, int] | None = None) -> None:
        """Begin without parts, or go on from what another builder had."""
        self._parts = list(parts)
        self._places = dict(places or {})

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts so far."""
        return tuple(self._parts)

    @property
    def places(self) -> Mapping[str, int]:
        """Where the parts are that later chunks may refer to."""
        return self._places

    def add(self, chunk: UIMessageChunk) -> None:
        """Take one chunk.

        Raises:
            StreamError: it is an `error` chunk.
            ValueError: it refers to a part or call that never began.
        """
        match chunk:
            case StartStep():
                self._parts.append(StepStartPart())
            case FinishStep():
                pass
            case TextStart(id=part_id):
                self._begin(f"text/{part_id}", TextPart(text=""))
            case ReasoningStart(id=part_id):
                self._begin(f"reasoning/{part_id}", ReasoningPart(text=""))
            case TextDelta(id=part_id, delta=delta):
                self._extend(f"text/{part_id}", delta)
            case ReasoningDelta(id=part_id, delta=delta):
                self._extend(f"reasoning/{part_id}", delta)
            case TextEnd(id=part_id):
                self._end(f"text/{part_id}")
            case ReasoningEnd(id=part_id):
                self._end(f"reasoning/{part_id}")
            case SourceUrl():
                self._parts.append(SourceUrlPart(source_id=chunk.source_id, url=chunk.url, title=chunk.title))
            case SourceDocument():
                self._parts.append(SourceDocumentPart.model_validate(chunk.model_dump()))
            case File():
                self._parts.append(FilePart(url=chunk.url, media_type=chunk.media_type))
            case DataChunk():
                self._add_data(chunk)
            case Error(error_text=text):
                raise StreamError(text)
            case _:
                self._add_to_call(chunk)

    def _add_to_call(
        self, chunk: ToolInputStart | ToolInputDelta | ToolInputAvailable | ToolOutputAvailable | ToolOutputError
    ) -> None:
        """Take a chunk of a tool call, whose state never goes back (CR-22)."""
        key = f"tool/{chunk.tool_call_id}"
        match chunk:
            case ToolInputStart():
                if key not in self._places:
                    self._begin(key, _tool_part(chunk, "input-streaming"))
            case ToolInputDelta():
                self._extend_input(key, chunk.input_text_delta)
            case ToolInputAvailable():
                if key not in self._places:
                    self._begin(key, _tool_part(chunk, "input-available"))
                elif self._call(key).state == "input-streaming":
                    self._update(key, {"state": "input-available", "input": chunk.input})
            case ToolOutputAvailable():
                # A result may be corrected by a later one, but not taken back.
                if not (chunk.preliminary and self._call(key).is_settled):
                    output = {"output": chunk.output, "preliminary": chunk.preliminary, "error_text": None}
                    self._update(key, {"state": "output-available", **output})
            case ToolOutputError():
                error = {"error_text": chunk.error_text, "output": None, "preliminary": None}
                self._update(key, {"state": "output-error", **error})
            case _:
                assert_never(chunk)

    def _begin(self, key: str, part: Part) -> None:
        self._places[key] = len(self._parts)
        self._parts.append(part)

    def _place(self, key: str) -> int:
        if key not in self._places:
            raise ValueError(f"a chunk came for {key}, which was never started")
        return self._places[key]

    def _end(self, key: str) -> None:
        self._place(key)
        del self._places[key]

    def _extend(self, key: str, delta: str) -> None:
        place = self._place(key)
        part = self._parts[place]
        assert isinstance(part, TextPart | ReasoningPart)
        self._parts[place] = part.model_copy(update={"text": part.text + delta})

    def _call(self, key: str) -> ToolPart:
        part = self._parts[self._place(key)]
        assert isinstance(part, ToolPart)
        return part

    def _update(self, key: str, update: Mapping[str, JsonValue]) -> None:
        self._parts[self._places[key]] = self._call(key).model_copy(update=update)

    def _extend_input(self, key: str, delta: str) -> None:
        call = self._call(key)
        if call.state == "input-streaming":
            text = (call.input_text or "") + delta
            # Read again with each piece, which a long input does not bear; it shows when it is whole.
            value = _partial_json(text) if len(text) <= MAX_PARTIAL_INPUT else call.input
            self._update(key, {"input_text": text, "input": value})

    def _add_data(self, chunk: DataChunk) -> None:
        if chunk.transient:
            return
        part = DataPart(type=chunk.type, id=chunk.id, data=chunk.data)
        key = f"{chunk.type}/{chunk.id}"
        if chunk.id is not None and key in self._places:
            self._parts[self._places[key]] = part
        elif chunk.id is not None:
            self._begin(key, part)
        else:
            self._parts.append(part)


def _tool_part(
    chunk: ToolInputStart | ToolInputAvailable, state: Literal["input-streaming", "input-available"]
) -> ToolPart:
    return ToolPart(
        type=f"tool-{chunk.tool_name}",
        tool_call_id=chunk.tool_call_id,
        state=state,
        input=chunk.input if isinstance(chunk, ToolInputAvailable) else None,
        provider_executed=chunk.provider_executed,
    )


def _partial_json(text: str) -> JsonValue:
    """Return as much of a JSON value as its beginning tells."""
    try:
        value: JsonValue = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return None
    return value
