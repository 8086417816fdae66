"""An answer piece by piece: what shows while it comes, and the whole that it adds up to."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue, TypeAdapter
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.agent_objects import AgentObjects
from activities.model_calls import ModelCallActivities
from activities.model_replies import CallDelta, ModelDelta, ModelReply, ModelToolCall, ReplyBuilder
from activities.progress_reports import ProgressReporter
from activities.provider_messages import ProviderMessage
from activities.transcripts import TranscriptReader
from turnkeeper.agents import Agent
from turnkeeper.chunks import (
    File,
    PartsBuilder,
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
from turnkeeper.client import TurnkeeperClient
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import FilePart, SourceUrlPart, TextPart
from turnkeeper.registry import AgentRegistry
from turnkeeper.steps import CallModelInput, StepSource, Usage

_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)

PAGE = SourceUrlPart(source_id="s", url="https://x", title="X")
PICTURE = FilePart(url="data:,x", media_type="image/png")


def _built(*deltas: ModelDelta) -> tuple[list[UIMessageChunk], ModelReply]:
    shown: list[UIMessageChunk] = []
    builder = ReplyBuilder(3, shown.append)
    for delta in deltas:
        builder.add(delta)
    return shown, builder.finish()


def _calls(*calls: CallDelta) -> tuple[list[UIMessageChunk], tuple[ModelToolCall, ...]]:
    """Return what shows of calls that come in pieces, each by itself, and the calls."""
    shown, reply = _built(*(ModelDelta(calls=(call,)) for call in calls))
    return shown, reply.tool_calls


def test_nothing_adds_up_to_an_empty_answer() -> None:
    """Field case 19: the caller decides what that means."""
    assert _built() == ([], ModelReply())
    assert _built(ModelDelta(), ModelDelta(finish_reason="stop"))[0] == []


def test_a_text_begins_and_ends_once_however_many_pieces_it_has() -> None:
    """CR-04: begun with the first piece, ended when the answer is over."""
    shown, reply = _built(ModelDelta(text="hel"), ModelDelta(), ModelDelta(text="lo"))
    assert shown == [
        TextStart(id="text-3-0"),
        TextDelta(id="text-3-0", delta="hel"),
        TextDelta(id="text-3-0", delta="lo"),
        TextEnd(id="text-3-0"),
    ]
    assert reply.text == "hello"


def test_reasoning_ends_where_the_text_begins() -> None:
    """CR-04: one part is open at a time, also where both come in one piece."""
    shown, reply = _built(ModelDelta(reasoning="hm"), ModelDelta(reasoning="!", text="so"))
    assert shown == [
        ReasoningStart(id="reasoning-3-0"),
        ReasoningDelta(id="reasoning-3-0", delta="hm"),
        ReasoningDelta(id="reasoning-3-0", delta="!"),
        ReasoningEnd(id="reasoning-3-0"),
        TextStart(id="text-3-1"),
        TextDelta(id="text-3-1", delta="so"),
        TextEnd(id="text-3-1"),
    ]
    assert (reply.reasoning, reply.text) == ("hm!", "so")


def test_a_text_that_reasoning_interrupts_shows_in_the_order_in_which_it_came() -> None:
    """CR-04: whatever begins ends before the next begins, and no id is begun while it is open."""
    shown, reply = _built(ModelDelta(text="so"), ModelDelta(reasoning="hm"), ModelDelta(text="then"))
    assert [chunk.type for chunk in shown] == [
        *("text-start", "text-delta", "text-end"),
        *("reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-end"),
    ]
    assert (reply.reasoning, reply.text) == ("hm", "sothen")


def test_a_text_ends_where_a_call_begins() -> None:
    """CR-22: a text is over before the call shows."""
    shown, _ = _built(ModelDelta(text="so", calls=(CallDelta(0, "a", "note", "{}"),)))
    assert shown == [
        TextStart(id="text-3-0"),
        TextDelta(id="text-3-0", delta="so"),
        TextEnd(id="text-3-0"),
        ToolInputStart(tool_call_id="a", tool_name="note"),
        ToolInputDelta(tool_call_id="a", input_text_delta="{}"),
    ]


def test_sources_and_files_show_when_they_come() -> None:
    """CR-04: they end nothing."""
    shown, reply = _built(ModelDelta(text="so"), ModelDelta(sources=(PAGE,), files=(PICTURE,)), ModelDelta(text="!"))
    assert shown[2:4] == [
        SourceUrl(source_id="s", url="https://x", title="X"),
        File(url="data:,x", media_type="image/png"),
    ]
    assert [chunk.type for chunk in shown].count("text-start") == 1
    assert reply.items == (TextPart(text="so!"), PAGE, PICTURE)


def test_an_ending_usage_and_model_are_the_last_that_were_said() -> None:
    """They come in pieces of their own, some of them after the end."""
    _, reply = _built(
        ModelDelta(model="small", usage=Usage(input_tokens=1)),
        ModelDelta(text="so", finish_reason="length"),
        ModelDelta(usage=Usage(input_tokens=2, output_tokens=3)),
    )
    assert (reply.finish_reason, reply.model, reply.is_cut_off) == ("length", "small", True)
    assert reply.usage == Usage(input_tokens=2, output_tokens=3)


def test_the_arguments_of_calls_that_interleave_go_each_to_their_own() -> None:
    """Field case 12: by the provider's index; what came before the name shows with it."""
    shown, calls = _calls(
        CallDelta(0, "a", "note"),
        CallDelta(1, "b", "", '{"b"'),
        CallDelta(0, arguments='{"a"'),
        CallDelta(1, name="ask", arguments=": "),
        CallDelta(0, arguments=": 1}"),
        CallDelta(1, arguments="2}"),
    )
    assert shown == [
        ToolInputStart(tool_call_id="a", tool_name="note"),
        ToolInputDelta(tool_call_id="a", input_text_delta='{"a"'),
        ToolInputStart(tool_call_id="b", tool_name="ask"),
        ToolInputDelta(tool_call_id="b", input_text_delta='{"b": '),
        ToolInputDelta(tool_call_id="a", input_text_delta=": 1}"),
        ToolInputDelta(tool_call_id="b", input_text_delta="2}"),
    ]
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("a", "note", '{"a": 1}'),
        ("b", "ask", '{"b": 2}'),
    ]


def test_a_name_in_pieces_shows_whole() -> None:
    """Field case 14: what a client is told first is what the part is called for good."""
    shown, [call] = _calls(
        CallDelta(0, "a", "no"), CallDelta(0, name="te"), CallDelta(0, arguments="{"), CallDelta(0, arguments="}")
    )
    assert call.name == "note"
    assert [chunk.tool_name for chunk in shown if isinstance(chunk, ToolInputStart)] == ["note"]


def test_a_name_and_an_id_that_come_with_every_piece_are_one_name_and_one_id() -> None:
    """Field cases 13, 14: some providers repeat them."""
    _, calls = _calls(CallDelta(0, "a", "note", "{"), CallDelta(0, "a", "note", "}"))
    assert calls == (ModelToolCall(id="a", name="note", arguments="{}"),)


def test_field_13_calls_that_come_under_one_index_are_told_apart_by_their_ids() -> None:
    """Field case 13: some providers number all calls 0; glued together, none of them could be read."""
    _, calls = _calls(CallDelta(0, "a", "note", '{"a": 1}'), CallDelta(0, "b", "ask", '{"b": 2}'))
    assert calls == (
        ModelToolCall(id="a", name="note", arguments='{"a": 1}'),
        ModelToolCall(id="b", name="ask", arguments='{"b": 2}'),
    )


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (("a", "b"), ("a", "b")),
        (("", ""), ("call-3-0", "call-3-1")),
        (("a", "a", "a"), ("a", "a-1", "a-2")),
        (("a", "a-1", "a"), ("a", "a-1", "a-2")),
        (("a-1", "a", "a"), ("a-1", "a", "a-2")),
        (("call-3-1", ""), ("call-3-1", "call-3-1-1")),
    ],
)
def test_field_13_every_call_of_a_step_has_an_id_of_its_own(given: tuple[str, ...], made: tuple[str, ...]) -> None:
    """Field case 13: missing and doubled ids; what shows has the same ids as the whole, at every attempt."""
    pieces = [CallDelta(index, call_id, "note", "{}") for index, call_id in enumerate(given)]
    shown, calls = _calls(*pieces)
    assert tuple(call.id for call in calls) == made
    assert tuple(chunk.tool_call_id for chunk in shown if isinstance(chunk, ToolInputStart)) == made


def test_field_13_an_id_that_comes_late_changes_nothing() -> None:
    """Field case 13: what was shown under an id stays under it."""
    shown, [call] = _calls(CallDelta(0, "", "note"), CallDelta(0, "late", arguments="{}"))
    assert call.id == "call-3-0"
    assert {chunk.model_dump()["toolCallId"] for chunk in shown} == {"call-3-0"}


def test_field_14_a_call_that_is_never_named_does_not_show_before_the_end() -> None:
    """Field case 14: there is no part without a name, so it gets one; the call itself is kept as it is."""
    shown, calls = _calls(CallDelta(0, "a", "", "{"), CallDelta(0, arguments="}"))
    assert shown == [
        ToolInputStart(tool_call_id="a", tool_name="unnamed"),
        ToolInputDelta(tool_call_id="a", input_text_delta="{}"),
    ]
    assert calls == (ModelToolCall(id="a", name="", arguments="{}"),)


class Clerk(Agent):
    """An agent without tools, to whom every call is an unknown one."""

    model = "openai/small"


@dataclass(frozen=True)
class Pieces:
    """A model client that answers in given pieces."""

    deltas: Sequence[ModelDelta]

    async def stream(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Answer."""
        for delta in self.deltas:
            yield delta


CALL = CallDelta(0, "a", "note", '{"a": 1}')


@pytest.mark.parametrize(
    "deltas",
    [
        [ModelDelta(reasoning="hm"), ModelDelta(text="so"), ModelDelta(calls=(CALL,))],
        [ModelDelta(text="so"), ModelDelta(sources=(PAGE,), files=(PICTURE,))],
        [ModelDelta(calls=(CALL, CallDelta(1, "a", "", "{}"), CallDelta(2, "", "ask", "")))],
        [ModelDelta(text="so"), ModelDelta(reasoning="hm"), ModelDelta(text="then")],
        [ModelDelta(reasoning="hm"), ModelDelta(sources=(PAGE,)), ModelDelta(text="so")],
        [ModelDelta(text="so"), ModelDelta(calls=(CALL,)), ModelDelta(text="then")],
    ],
    ids=["usual", "sources", "odd-calls", "text-reasoning-text", "source-first", "text-call-text"],
)
async def test_what_a_step_streamed_adds_up_to_the_message_that_is_stored(
    tmp_path: Path, deltas: list[ModelDelta]
) -> None:
    """CR-04, EV-11: who watched and who comes later see the same parts in the same order."""
    log = SQLiteEventLog(tmp_path / "events.sqlite")
    writer = EventWriter(log)
    registry = AgentRegistry([Clerk])
    client = TurnkeeperClient(await Client.connect("127.0.0.1:1", lazy=True), registry)
    agents = AgentObjects(client, registry, ProgressReporter(writer, client.requests))
    activities = ModelCallActivities(agents, TranscriptReader(client.requests), Pieces(deltas), writer)
    source = StepSource(workflow_id="t/Clerk/n/turns/1", instance="t/Clerk/n", turn_id="1")
    call = CallModelInput(agent_type="Clerk", source=source, transcript=(), message_id="turn-1")
    result = await ActivityEnvironment().run(activities.call_model, call)
    watched = PartsBuilder()
    for entry in [each for each in await log.read("t/Clerk/n") if each.kind == "chunk"]:
        watched.add(_CHUNK.validate_python(entry.body))
    await writer.close()
    await log.close()
    assert [part.model_dump() for part in watched.parts] == [part.model_dump() for part in result.message.parts]
