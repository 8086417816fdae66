"""What streams out of a model step, and how it adds up to parts."""

import json
from typing import Any

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from turnkeeper.chunks import (
    DataChunk,
    Error,
    File,
    FinishStep,
    PartsBuilder,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    SourceDocument,
    SourceUrl,
    StartStep,
    StreamError,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputError,
    UIMessageChunk,
)
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

_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)

CHUNKS: list[tuple[UIMessageChunk, dict[str, Any]]] = [
    (StartStep(), {"type": "start-step"}),
    (FinishStep(), {"type": "finish-step"}),
    (TextStart(id="1"), {"type": "text-start", "id": "1"}),
    (TextDelta(id="1", delta="a"), {"type": "text-delta", "id": "1", "delta": "a"}),
    (TextEnd(id="1"), {"type": "text-end", "id": "1"}),
    (ReasoningStart(id="1"), {"type": "reasoning-start", "id": "1"}),
    (ReasoningDelta(id="1", delta="a"), {"type": "reasoning-delta", "id": "1", "delta": "a"}),
    (ReasoningEnd(id="1"), {"type": "reasoning-end", "id": "1"}),
    (
        ToolInputStart(tool_call_id="c", tool_name="t"),
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "providerExecuted": True},
    ),
    (
        ToolInputDelta(tool_call_id="c", input_text_delta="{"),
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"},
    ),
    (
        ToolInputAvailable(tool_call_id="c", tool_name="t", input=None),
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": None, "providerExecuted": True},
    ),
    (
        ToolOutputAvailable(tool_call_id="c", output=None),
        {"type": "tool-output-available", "toolCallId": "c", "output": None, "providerExecuted": True},
    ),
    (
        ToolOutputAvailable(tool_call_id="c", output=1, preliminary=True),
        {
            "type": "tool-output-available",
            "toolCallId": "c",
            "output": 1,
            "preliminary": True,
            "providerExecuted": True,
        },
    ),
    (
        ToolOutputError(tool_call_id="c", error_text="no"),
        {"type": "tool-output-error", "toolCallId": "c", "errorText": "no", "providerExecuted": True},
    ),
    (
        SourceUrl(source_id="1", url="https://x", title="X"),
        {"type": "source-url", "sourceId": "1", "url": "https://x", "title": "X"},
    ),
    (SourceUrl(source_id="1", url="https://x"), {"type": "source-url", "sourceId": "1", "url": "https://x"}),
    (
        SourceDocument(source_id="1", media_type="a/b", title="X", filename="x"),
        {"type": "source-document", "sourceId": "1", "mediaType": "a/b", "title": "X", "filename": "x"},
    ),
    (
        SourceDocument(source_id="1", media_type="a/b", title="X"),
        {"type": "source-document", "sourceId": "1", "mediaType": "a/b", "title": "X"},
    ),
    (File(url="data:,x", media_type="a/b"), {"type": "file", "url": "data:,x", "mediaType": "a/b"}),
    (DataChunk(type="data-x", data=None), {"type": "data-x", "data": None}),
    (
        DataChunk(type="data-x", id="1", data={"a": None}, transient=True),
        {"type": "data-x", "id": "1", "data": {"a": None}, "transient": True},
    ),
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


@pytest.mark.parametrize("kind", ["data", "data-", "tool-x", "", "finish", "agent-tool-event"])
def test_a_chunk_of_a_type_that_clients_do_not_know_is_refused(kind: str) -> None:
    """An author's data is of type `data-<name>`; a real client ends its stream at any other unknown type."""
    with pytest.raises(ValidationError):
        _CHUNK.validate_python({"type": kind, "data": 1})


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
        ToolInputDelta(tool_call_id="1", input_text_delta="{"),
        ToolOutputAvailable(tool_call_id="1", output=1),
        ToolOutputError(tool_call_id="1", error_text="no"),
    ],
)
def test_a_chunk_that_continues_what_never_began_is_refused(chunk: UIMessageChunk) -> None:
    """The error says which part or call is missing."""
    with pytest.raises(ValueError, match=r"1.* was never started"):
        _built(chunk)


def test_a_step_begins_with_its_border() -> None:
    """A `start-step` is a part, as in the AI SDK; a `finish-step` is none."""
    assert _built(StartStep(), FinishStep(), StartStep()) == (StepStartPart(), StepStartPart())


def test_a_document_is_a_part_of_its_own() -> None:
    """With the name of its file, if it has one."""
    parts = _built(SourceDocument(source_id="1", media_type="a/b", title="X", filename="x"))
    assert parts == (SourceDocumentPart(source_id="1", media_type="a/b", title="X", filename="x"),)


def _streamed(*texts: str) -> list[UIMessageChunk]:
    return [
        ToolInputStart(tool_call_id="c", tool_name="add"),
        *(ToolInputDelta(tool_call_id="c", input_text_delta=text) for text in texts),
    ]


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        ([], None),
        ([""], None),
        (["{"], {}),
        (['{"le'], {}),
        (['{"left": 1', "2"], {"left": 12}),
        (['{"left": 12, "ri', 'ght": "thr'], {"left": 12, "right": "thr"}),
        (['{"left": [1, {"a": tr'], {"left": [1, {}]}),
        (['{"left": "\\u00'], {"left": ""}),
        (['{"left": 1}'], {"left": 1}),
        (["no JSON"], None),
        (["[" * 1_000], None),
    ],
)
def test_an_input_that_still_streams_shows_what_is_known_of_it(texts: list[str], value: JsonValue) -> None:
    """CR-04: as the AI SDK parses partial JSON; what no parser takes shows nothing yet."""
    [part] = _built(*_streamed(*texts))
    assert part.model_dump(mode="json") == {
        "type": "tool-add",
        "toolCallId": "c",
        "state": "input-streaming",
        "input": value,
        "providerExecuted": True,
    }


@pytest.mark.parametrize("text", ['{"left": NaN', '{"left": [Infinity', '{"left": -Infinity}'])
def test_field_33_a_number_that_json_lacks_never_shows(text: str) -> None:
    """Field case 33: a reader's JSON parser would stop at it; it shows as null."""
    [part] = _built(*_streamed(text))
    json.dumps(part.model_dump(mode="json"), allow_nan=False)


def test_cr_22_a_call_that_is_known_does_not_begin_again() -> None:
    """CR-22: an input-start for a known call id is ignored, in whatever state the call is."""
    again = ToolInputStart(tool_call_id="c", tool_name="other")
    [part] = _built(*_streamed('{"a": 1'), again)
    assert part.model_dump(include={"type", "state", "input"}) == {
        "type": "tool-add",
        "state": "input-streaming",
        "input": {"a": 1},
    }
    [ready] = _built(ToolInputAvailable(tool_call_id="c", tool_name="add", input={}), again)
    assert ready == ToolPart(type="tool-add", tool_call_id="c", state="input-available", input={})


def test_cr_22_a_whole_input_ends_the_streaming_of_it() -> None:
    """CR-22: deltas count only while the input streams, and the whole input replaces what was known of it."""
    whole = ToolInputAvailable(tool_call_id="c", tool_name="add", input={"a": 12})
    [part] = _built(*_streamed('{"a": 1'), whole, ToolInputDelta(tool_call_id="c", input_text_delta="}"))
    assert part.model_dump(include={"state", "input"}) == {"state": "input-available", "input": {"a": 12}}


@pytest.mark.parametrize(
    "settled", [ToolOutputAvailable(tool_call_id="c", output=1), ToolOutputError(tool_call_id="c", error_text="no")]
)
@pytest.mark.parametrize(
    "late",
    [
        ToolInputStart(tool_call_id="c", tool_name="add"),
        ToolInputDelta(tool_call_id="c", input_text_delta="{"),
        ToolInputAvailable(tool_call_id="c", tool_name="add", input=2),
        ToolOutputAvailable(tool_call_id="c", output=2, preliminary=True),
    ],
)
def test_cr_22_a_settled_call_stays_as_it_is(settled: UIMessageChunk, late: UIMessageChunk) -> None:
    """CR-22: settled states never regress."""
    call = ToolInputAvailable(tool_call_id="c", tool_name="add", input={})
    assert _built(call, settled, late) == _built(call, settled)


def test_a_result_may_be_corrected_by_a_later_one() -> None:
    """What a worker told before it was lost is not what the workflow took for the result (field case 8)."""
    call = ToolInputAvailable(tool_call_id="c", tool_name="add", input={})
    good = ToolOutputAvailable(tool_call_id="c", output=1)
    interrupted = ToolOutputError(tool_call_id="c", error_text="interrupted")
    assert _built(call, good, interrupted) == _built(call, interrupted)
    assert _built(call, interrupted, good) == _built(call, good)


def test_cr_22_a_preliminary_output_is_replaced_until_the_call_is_settled() -> None:
    """CR-22: `preliminary` is kept, each output replaces the one before, and the last one settles the call."""
    call = ToolInputAvailable(tool_call_id="c", tool_name="add", input={})
    first, second = (ToolOutputAvailable(tool_call_id="c", output=number, preliminary=True) for number in (1, 2))
    [part] = _built(call, first, second)
    assert isinstance(part, ToolPart)
    assert (part.output, part.preliminary, part.is_settled) == (2, True, False)
    [settled] = _built(call, first, ToolOutputAvailable(tool_call_id="c", output=3))
    assert settled == ToolPart(type="tool-add", tool_call_id="c", state="output-available", input={}, output=3)


def test_cr_22_an_error_after_a_preliminary_output_settles_the_call() -> None:
    """CR-22: what the call had come to does not keep it open, nor does it show as its output."""
    call = ToolInputAvailable(tool_call_id="c", tool_name="add", input={})
    preliminary = ToolOutputAvailable(tool_call_id="c", output=1, preliminary=True)
    parts = _built(call, preliminary, ToolOutputError(tool_call_id="c", error_text="no"))
    expected = ToolPart(type="tool-add", tool_call_id="c", state="output-error", input={}, error_text="no")
    assert parts == (expected,)
    assert expected.is_settled


def test_a_call_that_the_client_carries_out_is_not_said_to_be_the_servers() -> None:
    """clients.md 1.2, rule 4: the transcript says the same of a call as the stream did."""
    [whole] = _built(ToolInputAvailable(tool_call_id="c", tool_name="add", input={}, provider_executed=None))
    [begun] = _built(ToolInputStart(tool_call_id="c", tool_name="add", provider_executed=None))
    assert [part.model_dump().get("providerExecuted") for part in (whole, begun)] == [None, None]


def test_cr_23_data_with_an_id_is_replaced_where_it_is() -> None:
    """CR-23: same type and id updates in place; another type or id, or none, is data of its own."""
    parts = _built(
        DataChunk(type="data-a", id="1", data=1),
        DataChunk(type="data-a", data=2),
        DataChunk(type="data-a", data=3),
        DataChunk(type="data-b", id="1", data=4),
        DataChunk(type="data-a", id="", data=5),
        DataChunk(type="data-a", id="1", data=None),
    )
    assert parts == (
        DataPart(type="data-a", id="1", data=None),
        DataPart(type="data-a", data=2),
        DataPart(type="data-a", data=3),
        DataPart(type="data-b", id="1", data=4),
        DataPart(type="data-a", id="", data=5),
    )


def test_cr_23_transient_data_is_no_part() -> None:
    """CR-23, PR-06: it is for whoever watches, and touches nothing that is kept."""
    kept = DataChunk(type="data-a", id="1", data=1)
    assert _built(kept, DataChunk(type="data-a", id="1", data=2, transient=True)) == _built(kept)


def test_cr_05_a_builder_goes_on_from_what_another_one_had() -> None:
    """CR-05: the same chunk on the same state gives the same, and leaves the state as it was."""
    first = PartsBuilder()
    for chunk in (StartStep(), TextStart(id="0"), TextDelta(id="0", delta="hel"), *_streamed('{"a": "x')):
        first.add(chunk)
    state = (first.parts, dict(first.places))
    later = [PartsBuilder(*state), PartsBuilder(*state)]
    for builder in later:
        builder.add(TextDelta(id="0", delta="lo"))
        builder.add(ToolInputDelta(tool_call_id="c", input_text_delta='y"}'))
    assert later[0].parts == later[1].parts
    assert [part.model_dump(include={"text", "input"}) for part in later[0].parts] == [
        {},
        {"text": "hello"},
        {"input": {"a": "xy"}},
    ]
    assert (first.parts, dict(first.places)) == state


@pytest.mark.parametrize("late", [TextDelta(id="1", delta="more"), TextEnd(id="1")])
def test_a_text_that_has_ended_cannot_go_on(late: UIMessageChunk) -> None:
    """clients.md 1.2: an id lives from start to end; at such a chunk every real client ends its stream."""
    with pytest.raises(ValueError, match=r"text/1"):
        _built(TextStart(id="1"), TextDelta(id="1", delta="so"), TextEnd(id="1"), late)
