"""One model step: what the model said, and how each of its calls is to be carried out."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from model_server import Call, Empty, ModelServer, Reply, Say, ToolCall, in_turn, problem_of
from pydantic import BaseModel, JsonValue
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.agent_objects import AgentObjects
from activities.model_answers import ModelClient
from activities.model_calls import CUT_OFF, ModelCallActivities
from activities.model_replies import CallDelta, ModelDelta, ModelReply, ModelToolCall
from activities.progress_reports import ProgressReporter
from activities.provider_messages import ProviderMessage, provider_messages
from activities.transcripts import TranscriptReader
from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.chunks import Error, TextDelta, TextStart, ToolInputAvailable, UIMessageChunk
from turnkeeper.client import TurnkeeperClient
from turnkeeper.errors import MODEL_REFUSED, MODEL_UNAVAILABLE, UNKNOWN_AGENT
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import ReasoningPart, StepStartPart, TextPart, ToolPart, close_open_calls
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import MAX_ERROR_BYTES, Display
from turnkeeper.steps import (
    AgentToolDispatch,
    CallModelInput,
    Dispatch,
    FunctionToolDispatch,
    RefusedDispatch,
    StepResult,
    StepSource,
    Usage,
)
from turnkeeper.tools import agent_tool, tool


class Question(BaseModel):
    """An agent tool's input."""

    query: str


class Clerk(Agent):
    """An agent with tools of both kinds."""

    model = "openai/small"
    instructions = "Be brief."

    @tool(timeout=timedelta(seconds=5), idempotent=True)
    async def note(self, text: str) -> str:
        """Note a text."""
        return text

    @tool
    async def now(self) -> str:
        """Tell the time."""
        return ""

    @tool
    async def rate(self, ratio: float) -> float:
        """Rate something."""
        return ratio

    @tool
    async def sort(self, numbers: list[int]) -> list[int]:
        """Sort numbers."""
        return sorted(numbers)

    ask = agent_tool("Clerk", description="Ask.", input=Question, output=list[str], display_name="Clerk")


class Author(ChatAgent):
    """Leaves a call open at the end of its turn."""

    async def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Write."""
        yield TextStart(id="0")
        yield TextDelta(id="0", delta="Let me see.")
        yield ToolInputAvailable(tool_call_id="c", tool_name="look", input={})


class Limited(ChatAgent):
    """Says in its stream that it failed."""

    async def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Write."""
        yield Error(error_text="rate limited")


class Careless(ChatAgent):
    """Goes on with a text that never began."""

    async def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Write."""
        yield TextDelta(id="0", delta="so")


@dataclass(frozen=True)
class Answered:
    """A model client that has its one answer, for what litellm itself does not let through."""

    reply: ModelReply

    async def stream(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Answer."""
        calls = enumerate(self.reply.tool_calls)
        yield ModelDelta(
            text=self.reply.text,
            calls=tuple(CallDelta(place, call.id, call.name, call.arguments) for place, call in calls),
            finish_reason=self.reply.finish_reason,
        )


@dataclass(frozen=True)
class Desk:
    """Takes steps as a worker does, with the real litellm client wherever the reply is a provider's."""

    agents: AgentObjects
    transcripts: TranscriptReader
    models: ModelClient
    server: ModelServer
    writer: EventWriter

    async def step(self, reply: Reply | ModelReply, agent_type: str = "Clerk") -> StepResult:
        """Return the step that `reply` makes, as the workflow reads it; once closed, a strict provider accepts it."""
        if isinstance(reply, ModelReply):
            activities = ModelCallActivities(self.agents, self.transcripts, Answered(reply), self.writer)
        else:
            self.server.script = in_turn(reply)
            activities = ModelCallActivities(self.agents, self.transcripts, self.models, self.writer)
        source = StepSource(workflow_id="t/Clerk/n/turns/1", instance="t/Clerk/n", turn_id="1", step=3)
        call = CallModelInput(agent_type=agent_type, source=source, transcript=(), message_id="turn-1")
        result: StepResult = await ActivityEnvironment().run(activities.call_model, call)
        read = StepResult.model_validate_json(result.model_dump_json())
        opening = {"role": "user", "content": "hi"}
        sent_back = provider_messages("", [close_open_calls(read.message, "none")])
        assert problem_of({"messages": [opening, *sent_back]}) is None
        return read

    async def call(self, *calls: ToolCall | ModelToolCall) -> list[tuple[ToolPart, Dispatch]]:
        """Return each of a step's calls with its dispatch."""
        made = tuple(call for call in calls if isinstance(call, ModelToolCall))
        given = [call for call in calls if isinstance(call, ToolCall)]
        result = await self.step(ModelReply(items=made) if made else Call(*given))
        return list(zip(result.message.tool_parts, result.dispatches, strict=True))


@pytest.fixture
async def desk(models: ModelClient, model_server: ModelServer, event_writer: EventWriter) -> Desk:
    """A desk whose steps need no Temporal server, for their conversations are empty."""
    model_server.reset()
    temporal = await Client.connect("127.0.0.1:1", lazy=True)
    registry = AgentRegistry([Clerk, Author, Limited, Careless])
    client = TurnkeeperClient(temporal, registry)
    agents = AgentObjects(client, registry, ProgressReporter(event_writer, client.requests))
    return Desk(agents, TranscriptReader(client.requests), models, model_server, event_writer)


async def test_a_step_says_what_the_model_said(desk: Desk) -> None:
    """Reasoning, text, usage and model; nothing is left to dispatch."""
    result = await desk.step(Say("hello", reasoning="hm"))
    assert result.message.parts == (StepStartPart(), ReasoningPart(text="hm"), TextPart(text="hello"))
    assert (result.message.id, result.dispatches) == ("turn-1", ())
    assert (result.usage, result.model) == (Usage(input_tokens=11, output_tokens=7), "small")


async def test_each_call_is_dispatched_as_its_tool_wants_it(desk: Desk) -> None:
    """RF-08, DI-23: a function tool by its time-out and attempts, an agent tool by its profile and input, in order."""
    calls = await desk.call(ToolCall("ask", {"query": "q"}, id="a"), ToolCall("note", {"text": "t"}, id="b"))
    assert [(part.tool_call_id, part.tool_name, part.input) for part, _ in calls] == [
        ("a", "ask", {"query": "q"}),
        ("b", "note", {"text": "t"}),
    ]
    asked, noted = (dispatch for _, dispatch in calls)
    assert isinstance(asked, AgentToolDispatch)
    assert (asked.profile.agent_type, asked.input, asked.input_preview) == ("Clerk", {"query": "q"}, '{"query":"q"}')
    assert (asked.display, asked.checks_output) == (Display(name="Clerk"), True)
    assert noted == FunctionToolDispatch(timeout=timedelta(seconds=5), attempts=3)


@pytest.mark.parametrize("arguments", ["", "  ", "null", "{}", '"{}"', '"null"'])
async def test_field_12_a_tool_without_parameters_runs_on_nothing(desk: Desk, arguments: str) -> None:
    """Field case 12: however a model says that there are no arguments."""
    [(part, dispatch)] = await desk.call(ToolCall("now", arguments))
    assert (part.input, type(dispatch)) == ({}, FunctionToolDispatch)


async def test_field_12_arguments_that_were_encoded_twice_are_decoded(desk: Desk) -> None:
    """Field case 12: for both kinds of tools; text inside stays text, JSON or not."""
    noted, asked = await desk.call(
        ToolCall("note", json.dumps(json.dumps({"text": '{"a": 1}'}))),
        ToolCall("ask", json.dumps(json.dumps({"query": "[]"}))),
    )
    assert (noted[0].input, type(noted[1])) == ({"text": '{"a": 1}'}, FunctionToolDispatch)
    assert isinstance(asked[1], AgentToolDispatch)
    assert asked[0].input == asked[1].input == {"query": "[]"}


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "cut',
        "text",
        '"text"',
        '""',
        "[" * 100_000,
        json.dumps("[" * 100_000),
        f'{{"text": {"[" * 100_000}{"]" * 100_000}}}',
        f'{{"text": {"9" * 5_000}}}',
    ],
    ids=["cut", "no-json", "text", "blank", "brackets", "brackets-twice", "nested", "digits"],
)
async def test_field_12_arguments_that_cannot_be_read_are_refused_and_kept(desk: Desk, arguments: str) -> None:
    """Field case 12: nothing runs, the model is told, and the turn goes on."""
    [(part, dispatch)] = await desk.call(ModelToolCall(id="a", name="note", arguments=arguments))
    assert isinstance(dispatch, RefusedDispatch)
    assert dispatch.error.startswith("The arguments of note are not JSON: ")
    assert part.input == arguments


@pytest.mark.parametrize("depth", [197, 240, 254, 500, 900])
async def test_field_12_arguments_nested_deeper_than_a_workflow_can_read_are_refused(desk: Desk, depth: int) -> None:
    """Field case 12: a step that can be written but not read ends its turn, and one that cannot is paid for again."""
    [(_, dispatch)] = await desk.call(ToolCall("note", f'{{"text": {"[" * depth}{"]" * depth}}}'))
    assert isinstance(dispatch, RefusedDispatch)


@pytest.mark.parametrize("arguments", ["[]", "7", '"[]"', '{"text": 1}', '{"tone": "x"}', '"\\"{}\\""'])
async def test_field_12_arguments_that_do_not_fit_are_refused_before_dispatch(desk: Desk, arguments: str) -> None:
    """Field case 12: for an agent tool too, no run is started."""
    calls = await desk.call(ToolCall("note", arguments), ToolCall("ask", arguments))
    for (_, dispatch), name in zip(calls, ("note", "ask"), strict=True):
        assert isinstance(dispatch, RefusedDispatch)
        assert dispatch.error.startswith(f"The arguments of {name} are not valid. ")


async def test_field_12_an_error_about_many_mistakes_is_short(desk: Desk) -> None:
    """Field case 12: the model reads it in every later step; arguments, their names and tools' names may be huge."""
    calls = await desk.call(
        ToolCall("sort", {"numbers": ["x"] * 5_000}),
        ToolCall("now", {"j" * 50_000: 1}),
        ToolCall("n" * 50_000),
    )
    for _, dispatch in calls:
        assert isinstance(dispatch, RefusedDispatch)
        assert len(dispatch.error.encode()) <= MAX_ERROR_BYTES


@pytest.mark.parametrize("number", ["NaN", "1e999"])
async def test_field_33_a_number_that_json_lacks_is_refused(desk: Desk, number: str) -> None:
    """Field case 33: it would reach the tool as null without notice."""
    [(_, dispatch)] = await desk.call(ToolCall("rate", f'{{"ratio": {number}}}'))
    assert isinstance(dispatch, RefusedDispatch)


async def test_field_33_half_a_surrogate_pair_in_arguments_becomes_a_question_mark(desk: Desk) -> None:
    """Field case 33: as an escape it is proper JSON, and would fail the step at every attempt."""
    noted, asked = await desk.call(ToolCall("note", {"text": "\ud83d 😀"}), ToolCall("ask", {"query": "\ud83d"}))
    assert noted[0].input == {"text": "? 😀"}
    assert isinstance(asked[1], AgentToolDispatch)
    assert asked[0].input == asked[1].input == {"query": "?"}
    refused = await desk.call(ToolCall("note", {"\ud83d": ""}), ToolCall("note", '{"\\ud83d": NaN}'))
    assert [type(dispatch) for _, dispatch in refused] == [RefusedDispatch] * 2


@pytest.mark.parametrize("name", ["search the web", "погода", "n" * 90])
async def test_field_14_a_made_up_tool_is_refused_with_the_real_ones(desk: Desk, name: str) -> None:
    """Field case 14: the turn goes on."""
    [(part, dispatch)] = await desk.call(ToolCall(name))
    assert part.tool_name == name
    assert dispatch == RefusedDispatch(error=f"There is no tool '{name}'. The tools are: ask, note, now, rate, sort.")


async def test_field_14_a_call_without_a_name_is_kept_as_unnamed(desk: Desk) -> None:
    """Field case 14: a part without a name cannot be read; the model is told what there is."""
    [(part, dispatch)] = await desk.call(ToolCall(""))
    assert part.tool_name == "unnamed"
    assert dispatch == RefusedDispatch(error="There is no tool ''. The tools are: ask, note, now, rate, sort.")


@pytest.mark.parametrize(
    "ids",
    [
        ("a", "b"),
        ("a", "a", "a"),
        ("", "", ""),
        ("a", "a-1", "a", "a-1"),
        ("call-3-1", "", "call-3-1"),
        ("", "call-3-0", ""),
    ],
)
async def test_field_13_every_call_has_an_id_of_its_own(desk: Desk, ids: tuple[str, ...]) -> None:
    """Field case 13: empty ids and ids that came twice; no call gets lost, and the ids are the same every time."""
    texts: list[JsonValue] = [str(number) for number in range(len(ids))]
    calls = [ToolCall("note", {"text": text}, id=call_id) for text, call_id in zip(texts, ids, strict=True)]
    parts = (await desk.step(Call(*calls))).message.tool_parts
    made = [part.tool_call_id for part in parts]
    assert len(set(made)) == len(ids)
    assert [part.input for part in parts] == [{"text": text} for text in texts]
    assert [part.tool_call_id for part in (await desk.step(Call(*calls))).message.tool_parts] == made


async def test_field_13_the_first_call_of_an_id_keeps_it(desk: Desk) -> None:
    """Field case 13: only what a provider would refuse is changed."""
    calls = await desk.call(ToolCall("now", id="a"), ToolCall("now", id="b"), ToolCall("now", id="a"))
    assert [part.tool_call_id for part, _ in calls][:2] == ["a", "b"]


async def test_the_calls_of_an_answer_that_was_cut_off_are_not_run(desk: Desk) -> None:
    """The last one may lack half of its arguments, and who knows about the others."""
    calls = (ToolCall("note", {"text": "t"}), ToolCall("note", '{"te'))
    result = await desk.step(Call(*calls, finish_reason="length"))
    assert result.dispatches == (RefusedDispatch(error=CUT_OFF),) * 2


@pytest.mark.parametrize("reply", [Empty(), Say(""), Say(" \n"), Say("", reasoning="hm")])
async def test_field_19_an_empty_answer_is_a_failed_attempt(desk: Desk, reply: Reply) -> None:
    """Field case 19: nothing, white space and reasoning alone are no answer."""
    with pytest.raises(ApplicationError, match="empty answer") as raised:
        await desk.step(reply)
    assert (raised.value.type, raised.value.non_retryable) == (MODEL_UNAVAILABLE, False)


async def test_an_agent_that_is_not_known_here_may_be_known_elsewhere(desk: Desk) -> None:
    """During a deploy another worker may have it."""
    with pytest.raises(ApplicationError, match="Stranger") as raised:
        await desk.step(Say("never"), "Stranger")
    assert (raised.value.type, raised.value.non_retryable) == (UNKNOWN_AGENT, False)


async def test_a_call_that_an_author_leaves_open_is_closed(desk: Desk, model_server: ModelServer) -> None:
    """A `ChatAgent` runs its tools itself, so nobody else would; no model of ours is called."""
    result = await desk.step(Say("never"), "Author")
    call = ToolPart(
        type="tool-look",
        tool_call_id="c",
        state="output-error",
        input={},
        error_text="The agent ended its turn without a result of this call.",
    )
    assert result.message.parts == (StepStartPart(), TextPart(text="Let me see."), call)
    assert (result.dispatches, model_server.requests) == ((), [])


@pytest.mark.parametrize(("agent_type", "text"), [("Limited", "^rate limited$"), ("Careless", "text/0.*never started")])
async def test_rf_20_an_author_whose_stream_fails_fails_for_good(desk: Desk, agent_type: str, text: str) -> None:
    """RF-20: with the stream's own words, or with what is wrong in it."""
    with pytest.raises(ApplicationError) as raised:
        await desk.step(Say("never"), agent_type)
    assert (raised.value.type, raised.value.non_retryable) == (MODEL_REFUSED, True)
    assert re.search(text, raised.value.message)
