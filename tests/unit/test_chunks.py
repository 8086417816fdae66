"""What streams out of a model step, and how it adds up to parts."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnkeeper.chunks import (
    Error,
    File,
    PartsBuilder,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    SourceUrl,
    StreamError,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolOutputAvailable,
    ToolOutputError,
    UIMessageChunk,
)
from turnkeeper.messages import FilePart, Part, ReasoningPart, SourceUrlPart, TextPart, ToolPart

_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)

CHUNKS: list[tuple[UIMessageChunk, dict[str, Any]]] = [
    (TextStart(id="1"), {"type": "text-start", "id": "1"}),
    (TextDelta(id="1", delta="a"), {"type": "text-delta", "id": "1", "delta": "a"}),
    (TextEnd(id="1"), {"type": "text-end", "id": "1"}),
    (ReasoningStart(id="1"), {"type": "reasoning-start", "id": "1"}),
    (ReasoningDelta(id="1", delta="a"), {"type": "reasoning-delta", "id": "1", "delta": "a"}),
    (ReasoningEnd(id="1"), {"type": "reasoning-end", "id": "1"}),
    (
        ToolInputAvailable(tool_call_id="c", tool_name="t", input=None),
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": None},
    ),
    (
        ToolOutputAvailable(tool_call_id="c", output=None),
        {"type": "tool-output-available", "toolCallId": "c", "output": None},
    ),
    (
        ToolOutputError(tool_call_id="c", error_text="no"),
        {"type": "tool-output-error", "toolCallId": "c", "errorText": "no"},
    ),
    (
        SourceUrl(source_id="1", url="https://x", title="X"),
        {"type": "source-url", "sourceId": "1", "url": "https://x", "title": "X"},
    ),
    (SourceUrl(source_id="1", url="https://x"), {"type": "source-url", "sourceId": "1", "url": "https://x"}),
    (File(url="data:,x", media_type="a/b"), {"type": "file", "url": "data:,x", "mediaType": "a/b"}),
    (Error(error_text="no"), {"type": "error", "errorText": "no"}),
]


def _built(*chunks: UIMessageChunk) -> tuple[Part, ...]:
    builder = PartsBuilder()
    for chunk in chunks:
        builder.add(chunk)
    return builder.parts


@pytest.mark.parametrize(("chunk", "wire"), CHUNKS)
def test_a_chunk_has_the_form_of_the_ai_sdk(chunk: UIMessageChunk, wire: dict[str, Any]) -> None:
    """Each chunk type is written with exactly the fields of the SDK's safe core, and read back the same."""
    assert chunk.model_dump(mode="json") == wire
    assert _CHUNK.validate_python(wire) == chunk


def test_a_chunk_of_an_unknown_type_is_refused() -> None:
    """A type that no chunk has is an error of the author's."""
    with pytest.raises(ValidationError):
        _CHUNK.validate_python({"type": "text-begin", "id": "1"})


def test_without_chunks_there_are_no_parts() -> None:
    """A step that streams nothing has no parts."""
    assert _built() == ()


def test_deltas_add_up_to_the_text_they_belong_to() -> None:
    """Interleaved texts keep the order in which they began."""
    parts = _built(
        TextStart(id="1"),
        TextStart(id="2"),
        TextDelta(id="2", delta="wor"),
        TextDelta(id="1", delta="hel"),
        TextDelta(id="1", delta="lo"),
        TextEnd(id="1"),
        TextDelta(id="2", delta="ld"),
        TextEnd(id="2"),
    )
    assert parts == (TextPart(text="hello"), TextPart(text="world"))


def test_a_text_and_a_reasoning_with_one_id_are_two_parts() -> None:
    """Ids of texts and of reasonings are different names."""
    parts = _built(
        ReasoningStart(id="1"),
        ReasoningDelta(id="1", delta="hm"),
        ReasoningEnd(id="1"),
        TextStart(id="1"),
        TextDelta(id="1", delta="so"),
    )
    assert parts == (ReasoningPart(text="hm"), TextPart(text="so"))


def test_an_id_that_begins_again_after_its_end_is_a_new_part() -> None:
    """In the AI SDK an id lives from start to end; many streams number their texts from 0 in every step."""
    parts = _built(
        TextStart(id="0"),
        TextDelta(id="0", delta="one"),
        TextEnd(id="0"),
        TextStart(id="0"),
        TextDelta(id="0", delta="two"),
        TextEnd(id="0"),
    )
    assert parts == (TextPart(text="one"), TextPart(text="two"))


def test_an_id_that_begins_again_without_an_end_is_a_new_part_too() -> None:
    """What was said so far is kept, in the order in which it began."""
    parts = _built(
        ReasoningStart(id="0"),
        ReasoningDelta(id="0", delta="one"),
        TextStart(id="0"),
        ReasoningStart(id="0"),
        ReasoningDelta(id="0", delta="two"),
    )
    assert parts == (ReasoningPart(text="one"), TextPart(text=""), ReasoningPart(text="two"))


def test_the_end_of_a_text_is_no_end_of_a_reasoning() -> None:
    """Ids of texts and of reasonings are different names, at their end too."""
    with pytest.raises(ValueError, match=r"text/1.* was never started"):
        _built(ReasoningStart(id="1"), TextEnd(id="1"))


def test_a_call_and_its_output_are_one_part() -> None:
    """The output settles the call that it names."""
    parts = _built(
        ToolInputAvailable(tool_call_id="c", tool_name="add", input={"a": 1}),
        TextStart(id="1"),
        ToolOutputAvailable(tool_call_id="c", output=None),
    )
    call = ToolPart(type="tool-add", tool_call_id="c", state="output-available", input={"a": 1}, output=None)
    assert parts == (call, TextPart(text=""))


def test_a_call_and_its_error_are_one_part() -> None:
    """An error settles the call too."""
    [part] = _built(
        ToolInputAvailable(tool_call_id="c", tool_name="add", input={}),
        ToolOutputError(tool_call_id="c", error_text="no"),
    )
    assert part == ToolPart(type="tool-add", tool_call_id="c", state="output-error", input={}, error_text="no")


def test_a_call_without_a_result_stays_open() -> None:
    """Nothing is made up for a call that was not settled."""
    [part] = _built(ToolInputAvailable(tool_call_id="c", tool_name="add", input={}))
    assert part == ToolPart(type="tool-add", tool_call_id="c", state="input-available", input={})


def test_sources_and_files_are_parts_of_their_own() -> None:
    """Two files with one address are two parts; a source is one for each id."""
    file = File(url="data:,x", media_type="a/b")
    parts = _built(file, SourceUrl(source_id="1", url="https://x"), file)
    file_part = FilePart(url="data:,x", media_type="a/b")
    assert parts == (file_part, SourceUrlPart(source_id="1", url="https://x"), file_part)


def test_rf_20_an_error_chunk_is_raised_with_its_text() -> None:
    """RF-20: an in-band error ends the stream with that message."""
    with pytest.raises(StreamError, match=r"^rate limited$"):
        _built(TextStart(id="1"), Error(error_text="rate limited"))


@pytest.mark.parametrize(
    "chunk",
    [
        TextDelta(id="1", delta="a"),
        ReasoningDelta(id="1", delta="a"),
        TextEnd(id="1"),
        ReasoningEnd(id="1"),
        ToolOutputAvailable(tool_call_id="1", output=1),
        ToolOutputError(tool_call_id="1", error_text="no"),
    ],
)
def test_a_chunk_that_continues_what_never_began_is_refused(chunk: UIMessageChunk) -> None:
    """The error says which part or call is missing."""
    with pytest.raises(ValueError, match=r"1.* was never started"):
        _built(chunk)
