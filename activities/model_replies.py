"""What a model answers, piece by piece, and the whole that the pieces add up to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from turnkeeper.chunks import (
    File,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    SourceUrl,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
    UIMessageChunk,
)
from turnkeeper.messages import FilePart, ReasoningPart, SourceUrlPart, TextPart
from turnkeeper.steps import Usage
from turnkeeper.wire import WireModel

UNNAMED = "unnamed"
"""Stands for the name of a call that a model made without one."""


@dataclass(frozen=True)
class CallDelta:
    """A piece of a tool call."""

    index: int
    """Which call of the answer it belongs to, as the provider counts."""
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class ModelDelta:
    """A piece of an answer, as it arrives."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    sources: tuple[SourceUrlPart, ...] = ()
    files: tuple[FilePart, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None


class ModelToolCall(WireModel):
    """A tool call as a provider gave it."""

    id: str
    """Unique in its step: providers leave ids out and use them twice, and such a transcript is refused later."""
    name: str
    arguments: str
    """JSON text, or what was meant to be."""


ReplyItem = TextPart | ReasoningPart | SourceUrlPart | FilePart | ModelToolCall


class ModelReply(WireModel):
    """What a provider answered."""

    items: tuple[ReplyItem, ...] = ()
    """Everything that it said and called, in the order in which it came."""
    finish_reason: str | None = None
    usage: Usage = Usage()
    model: str | None = None

    @property
    def tool_calls(self) -> tuple[ModelToolCall, ...]:
        """The calls, in order."""
        return tuple(item for item in self.items if isinstance(item, ModelToolCall))

    @property
    def text(self) -> str:
        """What it said."""
        return "".join(item.text for item in self.items if isinstance(item, TextPart))

    @property
    def reasoning(self) -> str:
        """What it showed of its reasoning."""
        return "".join(item.text for item in self.items if isinstance(item, ReasoningPart))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it that anybody could use."""
        return not self.text.strip() and not any(isinstance(item, ModelToolCall | FilePart) for item in self.items)

    @property
    def is_cut_off(self) -> bool:
        """Whether the provider's length limit ended the answer."""
        return self.finish_reason == "length"


@dataclass
class _Prose:
    """A text or reasoning part that is being written."""

    kind: Literal["text", "reasoning"]
    id: str
    pieces: list[str] = field(default_factory=list)


@dataclass
class _Call:
    """A tool call that is being written."""

    given_id: str
    id: str
    name: str = ""
    arguments: str = ""
    is_shown: bool = False


class ReplyBuilder:
    """Adds pieces up, and shows each as chunks while they come."""

    def __init__(self, step: int, show: Callable[[UIMessageChunk], None]) -> None:
        """Build the answer of a model step.

        Args:
            step: which step it is; part of the ids of what it shows.
            show: takes each chunk.
        """
        self._step = step
        self._show = show
        self._items: list[_Prose | _Call | SourceUrlPart | FilePart] = []
        self._prose: _Prose | None = None
        self._calls: dict[int, _Call] = {}
        self._last = ModelDelta()

    def add(self, delta: ModelDelta) -> None:
        """Take the next piece."""
        if delta.reasoning:
            self._add_prose("reasoning", delta.reasoning)
        if delta.text:
            self._add_prose("text", delta.text)
        for call in delta.calls:
            self._end_prose()
            self._add_call(call)
        for source in delta.sources:
            self._items.append(source)
            self._show(SourceUrl(source_id=source.source_id, url=source.url, title=source.title))
        for file in delta.files:
            self._items.append(file)
            self._show(File(url=file.url, media_type=file.media_type))
        self._last = ModelDelta(
            finish_reason=delta.finish_reason or self._last.finish_reason,
            usage=delta.usage or self._last.usage,
            model=delta.model or self._last.model,
        )

    def finish(self) -> ModelReply:
        """Return the whole."""
        self._end_prose()
        for item in self._items:
            if isinstance(item, _Call) and not item.is_shown:
                self._begin(item)
        return ModelReply(
            items=tuple(_whole(item) for item in self._items),
            finish_reason=self._last.finish_reason,
            usage=self._last.usage or Usage(),
            model=self._last.model,
        )

    def _add_prose(self, kind: Literal["text", "reasoning"], piece: str) -> None:
        if self._prose is None or self._prose.kind != kind:
            self._end_prose()
            self._prose = _Prose(kind, f"{kind}-{self._step}-{len(self._items)}")
            self._items.append(self._prose)
            start: UIMessageChunk = TextStart(id=self._prose.id)
            self._show(start if kind == "text" else ReasoningStart(id=self._prose.id))
        self._prose.pieces.append(piece)
        delta: UIMessageChunk = TextDelta(id=self._prose.id, delta=piece)
        self._show(delta if kind == "text" else ReasoningDelta(id=self._prose.id, delta=piece))

    def _end_prose(self) -> None:
        if self._prose is not None:
            end: UIMessageChunk = TextEnd(id=self._prose.id)
            self._show(end if self._prose.kind == "text" else ReasoningEnd(id=self._prose.id))
            self._prose = None

    def _add_call(self, delta: CallDelta) -> None:
        call = self._calls.get(delta.index)
        # Some providers number all calls 0 and tell them apart by id (field case 13).
        if call is None or (delta.id and call.given_id and delta.id != call.given_id):
            call = _Call(delta.id, self._free_id(delta.id))
            self._calls[delta.index] = call
            self._items.append(call)
        if delta.name != call.name:  # Which some repeat with every piece.
            call.name += delta.name
        call.arguments += delta.arguments
        if call.is_shown and delta.arguments:
            self._show(ToolInputDelta(tool_call_id=call.id, input_text_delta=delta.arguments))
        elif call.name and call.arguments:
            # Where arguments come, the name is whole.
            self._begin(call)

    def _begin(self, call: _Call) -> None:
        """Show a call, with what is known of its arguments."""
        call.is_shown = True
        self._show(ToolInputStart(tool_call_id=call.id, tool_name=call.name or UNNAMED))
        if call.arguments:
            self._show(ToolInputDelta(tool_call_id=call.id, input_text_delta=call.arguments))

    def _free_id(self, given: str) -> str:
        taken = {item.id for item in self._items if isinstance(item, _Call)}
        position = len(taken)
        call_id = given or f"call-{self._step}-{position}"
        while call_id in taken:
            call_id = f"{call_id}-{position}"
        return call_id


def _whole(item: _Prose | _Call | SourceUrlPart | FilePart) -> ReplyItem:
    match item:
        case _Prose(kind="text"):
            return TextPart(text="".join(item.pieces))
        case _Prose():
            return ReasoningPart(text="".join(item.pieces))
        case _Call():
            return ModelToolCall(id=item.id, name=item.name, arguments=item.arguments)
        case _:
            return item
