"""The activity that takes one model step."""

import json
from collections.abc import Sequence
from itertools import count

from pydantic import JsonValue, TypeAdapter
from temporalio import activity

from activities.agent_objects import AgentObjects
from activities.failures import final_failure
from activities.heartbeats import Heart, beating
from activities.model_answers import ModelAnswer, ModelClient
from activities.model_replies import UNNAMED, ModelReply, ModelToolCall
from activities.publishing import event_entry, settled_entries, turn_started
from activities.recovery_events import recovered, recovery_events
from activities.step_stream import StepStream
from activities.transcripts import TranscriptReader
from turnkeeper import names
from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.chunks import DataChunk, PartsBuilder, StreamError, ToolInputAvailable, UIMessageChunk
from turnkeeper.detached import options_of
from turnkeeper.errors import MODEL_REFUSED, TranscriptUnreadable
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.events import Event
from turnkeeper.json_values import clean_json
from turnkeeper.messages import (
    STEERING,
    DataPart,
    Part,
    StepStartPart,
    ToolPart,
    UIMessage,
    close_open_calls,
    last_step,
)
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import input_preview, shorten_error
from turnkeeper.steps import (
    AgentToolDispatch,
    CallModelInput,
    Dispatch,
    FunctionToolDispatch,
    RefusedDispatch,
    SettledStep,
    StepResult,
    StepSource,
)
from turnkeeper.tools import AgentTool, ArgumentError
from turnkeeper.turns import MAX_CALLS

_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)

CUT_OFF = "Your output was cut off by the length limit, so nothing was run. Ask for less at once."


class ModelCallActivities:
    """Takes model steps for agents."""

    def __init__(
        self, agents: AgentObjects, transcripts: TranscriptReader, models: ModelClient, writer: EventWriter
    ) -> None:
        """Take steps of the agents that `agents` makes, and show them through `writer`."""
        self._agents = agents
        self._transcripts = transcripts
        self._models = models
        self._writer = writer

    @activity.defn(name=names.CALL_MODEL)
    async def call_model(self, call: CallModelInput) -> StepResult:
        """Call the agent's model on the conversation, and say how each call that it makes is to be carried out.

        Raises:
            ApplicationError: the model refused, could not be reached, or the agent is not known here.
        """
        async with beating() as heart:
            try:
                messages = await self._transcripts.read(call.transcript)
            except TranscriptUnreadable as error:
                raise final_failure(str(error), error.wire_type) from error
            source = call.source
            if not source.step and names.run_path_of(source.workflow_id) is None:
                self._writer.add(turn_started(source.workflow_id, source.turn_id))
            self._show_previous_step(source, messages)
            stream = StepStream(self._writer, source.workflow_id, source.step, self._first_attempt(call.agent_type))
            for said in _steering(messages):
                stream.add(DataChunk(type=said.type, id=said.id, data=said.data))
            try:
                step_key = f"{source.workflow_id}/{source.step}"
                async with self._agents.lend(call.agent_type, source, step_key, messages=messages) as agent:
                    if isinstance(agent, ChatAgent):
                        return await _authored_step(agent, call, stream, heart)
                    return await self._model_step(agent, call, stream, heart)
            finally:
                await stream.close()

    def _first_attempt(self, agent_type: str) -> int:
        """Return by which number the log knows this attempt: each of the agent's models has one of its own."""
        registry = self._agents.registry
        models = 1 + len(registry.get(agent_type).fallback_models) if agent_type in registry.agent_types else 1
        return (activity.info().attempt - 1) * models + 1

    def _show_previous_step(self, source: StepSource, messages: Sequence[UIMessage]) -> None:
        """Show the results that the workflow gathered, such as those of agent tools, and the step's end."""
        step = last_step(messages)
        if source.step and step is not None:
            settled = SettledStep(step=source.step - 1, calls=tuple(step.tool_parts))
            self._writer.add(*settled_entries(source.workflow_id, settled))

    async def _model_step(self, agent: Agent, call: CallModelInput, stream: StepStream, heart: Heart) -> StepResult:
        noted = count(1)

        def note(event: Event) -> None:
            occasion = f"{call.source.step}/{activity.info().attempt}/{next(noted)}"
            self._writer.add(event_entry(call.source.workflow_id, occasion, event))

        for event in recovery_events(call.source.turn_id, activity.info()):
            note(event)
        answer = ModelAnswer(self._models, agent, call, stream, heart, note)
        result = _step_result(self._agents.registry, agent, call, await answer.get())
        for part in result.message.tool_parts:
            stream.add(ToolInputAvailable(tool_call_id=part.tool_call_id, tool_name=part.tool_name, input=part.input))
        if activity.info().attempt > 1:
            note(recovered(call.source.turn_id, activity.info()))
        return result.model_copy(update={"compaction": answer.compaction})


def _steering(messages: Sequence[UIMessage]) -> list[DataPart]:
    """Return what was said into the turn since its last step."""
    said = messages[-1].parts if messages and messages[-1].role == "assistant" else ()
    return [part for part in said if isinstance(part, DataPart) and part.type == STEERING]


def _step_result(registry: AgentRegistry, agent: Agent, call: CallModelInput, reply: ModelReply) -> StepResult:
    parts: list[Part] = [StepStartPart()]
    dispatches: list[Dispatch] = []
    for item in reply.items:
        if not isinstance(item, ModelToolCall):
            parts.append(item)
            continue
        part, dispatch = _call_of(registry, agent, item)
        if reply.is_cut_off:
            dispatch = RefusedDispatch(error=CUT_OFF)
        elif len(dispatches) >= MAX_CALLS:
            dispatch = RefusedDispatch(error=f"Only {MAX_CALLS} calls are carried out at once. Make the others later.")
        parts.append(part)
        dispatches.append(dispatch)
    return StepResult(
        message=UIMessage(id=call.message_id, role="assistant", parts=tuple(parts)),
        dispatches=tuple(dispatches),
        usage=reply.usage,
        model=reply.model,
    )


def _call_of(registry: AgentRegistry, agent: Agent, made: ModelToolCall) -> tuple[ToolPart, Dispatch]:
    arguments, dispatch = _dispatch_of(registry, agent, made)
    name = f"tool-{made.name or UNNAMED}"
    return ToolPart(type=name, tool_call_id=made.id, state="input-available", input=arguments), dispatch


def _dispatch_of(registry: AgentRegistry, agent: Agent, made: ModelToolCall) -> tuple[JsonValue, Dispatch]:
    """Return a call's arguments, and how it is to be carried out."""
    try:
        arguments = _decoded(made.arguments)
    except (RecursionError, ValueError) as error:
        return made.arguments, RefusedDispatch(
            error=shorten_error(f"The arguments of {made.name} are not JSON: {error}.")
        )
    tool = agent.tools.get(made.name)
    if tool is None:
        known = ", ".join(agent.tools) or "none"
        return arguments, RefusedDispatch(
            error=shorten_error(f"There is no tool {made.name[:100]!r}. The tools are: {known}.")
        )
    try:
        if isinstance(tool, AgentTool):
            return arguments, _agent_dispatch(registry, agent, tool, arguments)
        tool.parse_arguments(arguments)
    except ArgumentError as error:
        return arguments, RefusedDispatch(error=shorten_error(str(error)))
    return arguments, FunctionToolDispatch(timeout=tool.timeout, attempts=tool.attempts)


def _decoded(text: str) -> JsonValue:
    """Return arguments from JSON text: nothing is no arguments, and what was encoded twice is decoded twice."""
    arguments = json.loads(text) if text.strip() else {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return {} if arguments is None else clean_json(arguments, "the object")


def _agent_dispatch(registry: AgentRegistry, agent: Agent, tool: AgentTool, arguments: JsonValue) -> AgentToolDispatch:
    value = tool.parse_input(arguments)
    return AgentToolDispatch(
        profile=registry.profile(tool.agent_type),
        input=value,
        input_preview=input_preview(value),
        display=tool.display,
        detached=None if tool.detached is False else options_of(type(agent), tool.detached),
        checks_output=tool.output_type is not None,
    )


async def _authored_step(agent: ChatAgent, call: CallModelInput, stream: StepStream, heart: Heart) -> StepResult:
    """Take the step that a `ChatAgent` writes itself: its tools ran inside, so nothing is left to dispatch."""
    builder = PartsBuilder()
    async for yielded in agent.on_chat_message():
        heart.progress += 1
        try:
            chunk = _CHUNK.validate_python(clean_json(_CHUNK.dump_python(_CHUNK.validate_python(yielded))))
            builder.add(chunk)
            stream.add(chunk)
        except StreamError as error:
            raise final_failure(str(error), MODEL_REFUSED) from error
        except ValueError as error:
            text = f"{call.agent_type}.on_chat_message yielded a wrong chunk: {error}"
            raise final_failure(text, MODEL_REFUSED) from error
    message = UIMessage(id=call.message_id, role="assistant", parts=(StepStartPart(), *builder.parts))
    return StepResult(message=close_open_calls(message, "The agent ended its turn without a result of this call."))
