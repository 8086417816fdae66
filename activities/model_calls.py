"""The activity that takes one model step."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue, TypeAdapter
from temporalio import activity

from activities.agent_objects import AgentObjects
from activities.failures import agents_known_here, final_failure, passing_failure
from activities.heartbeats import beating
from activities.provider_messages import ProviderMessage, provider_messages, provider_tools
from activities.transcripts import TranscriptReader
from turnkeeper import names
from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.chunks import PartsBuilder, StreamError, UIMessageChunk
from turnkeeper.errors import MODEL_REFUSED, MODEL_UNAVAILABLE, TranscriptUnreadable
from turnkeeper.json_values import clean_json
from turnkeeper.messages import Part, ReasoningPart, StepStartPart, TextPart, ToolPart, UIMessage, close_open_calls
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import input_preview, shorten_error
from turnkeeper.steps import (
    AgentToolDispatch,
    CallModelInput,
    Dispatch,
    FunctionToolDispatch,
    RefusedDispatch,
    StepResult,
    Usage,
)
from turnkeeper.tools import AgentTool, ArgumentError
from turnkeeper.turns import MAX_CALLS
from turnkeeper.wire import WireModel

_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)

UNNAMED = "unnamed"
"""Stands for the name of a call that a model made without one."""

CUT_OFF = "Your output was cut off by the length limit, so nothing was run. Ask for less at once."


class ModelToolCall(WireModel):
    """A tool call as a provider gave it."""

    id: str
    name: str
    arguments: str
    """JSON text, or what was meant to be."""


class ModelReply(WireModel):
    """What a provider answered."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ModelToolCall, ...] = ()
    is_cut_off: bool = False
    """Whether the provider's length limit ended the answer."""
    usage: Usage = Usage()
    model: str | None = None


class ModelClient(Protocol):
    """Calls models; its failures are Temporal application failures that say whether trying again may help."""

    async def complete(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> ModelReply:
        """Answer a conversation."""


class ModelCallActivities:
    """Takes model steps for agents."""

    def __init__(self, agents: AgentObjects, transcripts: TranscriptReader, models: ModelClient) -> None:
        """Take steps of the agents that `agents` makes."""
        self._agents = agents
        self._transcripts = transcripts
        self._models = models

    @activity.defn(name=names.CALL_MODEL)
    async def call_model(self, call: CallModelInput) -> StepResult:
        """Call the agent's model on the conversation, and say how each call that it makes is to be carried out.

        Raises:
            ApplicationError: the model refused, could not be reached, or the agent is not known here.
        """
        async with beating():
            try:
                messages = await self._transcripts.read(call.transcript)
            except TranscriptUnreadable as error:
                raise final_failure(str(error), error.wire_type) from error
            step_key = f"{call.source.workflow_id}/{call.source.step}"
            with agents_known_here():
                agent = self._agents.make(call.agent_type, call.source, step_key, messages=messages)
            if isinstance(agent, ChatAgent):
                return await _authored_step(agent, call)
            return await self._model_step(agent, call)

    async def _model_step(self, agent: Agent, call: CallModelInput) -> StepResult:
        if not agent.model:
            raise final_failure(
                f"The agent {call.agent_type} names no model. Set `model`, such as 'openai/gpt-5-mini'.", MODEL_REFUSED
            )
        reply = await self._models.complete(
            agent.model,
            provider_messages(agent.instructions, agent.messages),
            provider_tools(list(agent.tools.values())),
            agent.model_options,
        )
        if not reply.text.strip() and not reply.tool_calls:
            raise passing_failure(f"The model {agent.model} gave an empty answer.", MODEL_UNAVAILABLE)
        return _step_result(self._agents.registry, agent, call, reply)


def _step_result(registry: AgentRegistry, agent: Agent, call: CallModelInput, reply: ModelReply) -> StepResult:
    parts: list[Part] = [StepStartPart()]
    if reply.reasoning:
        parts.append(ReasoningPart(text=reply.reasoning))
    if reply.text:
        parts.append(TextPart(text=reply.text))
    dispatches: list[Dispatch] = []
    for part, dispatch in _calls_of(registry, agent, call.source.step, reply):
        parts.append(part)
        dispatches.append(dispatch)
    return StepResult(
        message=UIMessage(id=call.message_id, role="assistant", parts=tuple(parts)),
        dispatches=tuple(dispatches),
        usage=reply.usage,
        model=reply.model,
    )


def _calls_of(registry: AgentRegistry, agent: Agent, step: int, reply: ModelReply) -> list[tuple[ToolPart, Dispatch]]:
    calls: list[tuple[ToolPart, Dispatch]] = []
    seen: set[str] = set()
    for position, made in enumerate(reply.tool_calls):
        # Providers leave ids out and use them twice; a transcript in which two calls share one is refused later.
        call_id = made.id or f"call-{step}-{position}"
        while call_id in seen:
            call_id = f"{call_id}-{position}"
        seen.add(call_id)
        arguments, dispatch = _dispatch_of(registry, agent, made)
        part = ToolPart(
            type=f"tool-{made.name or UNNAMED}", tool_call_id=call_id, state="input-available", input=arguments
        )
        if reply.is_cut_off:
            dispatch = RefusedDispatch(error=CUT_OFF)
        elif position >= MAX_CALLS:
            dispatch = RefusedDispatch(error=f"Only {MAX_CALLS} calls are carried out at once. Make the others later.")
        calls.append((part, dispatch))
    return calls


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
            return arguments, _agent_dispatch(registry, tool, arguments)
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


def _agent_dispatch(registry: AgentRegistry, tool: AgentTool, arguments: JsonValue) -> AgentToolDispatch:
    value = tool.parse_input(arguments)
    return AgentToolDispatch(
        profile=registry.profile(tool.agent_type),
        input=value,
        input_preview=input_preview(value),
        display=tool.display,
        checks_output=tool.output_type is not None,
    )


async def _authored_step(agent: ChatAgent, call: CallModelInput) -> StepResult:
    """Take the step that a `ChatAgent` writes itself: its tools ran inside, so nothing is left to dispatch."""
    builder = PartsBuilder()
    async for chunk in agent.on_chat_message():
        try:
            builder.add(_CHUNK.validate_python(chunk))
        except StreamError as error:
            raise final_failure(str(error), MODEL_REFUSED) from error
        except ValueError as error:
            text = f"{call.agent_type}.on_chat_message yielded a wrong chunk: {error}"
            raise final_failure(text, MODEL_REFUSED) from error
    message = UIMessage(id=call.message_id, role="assistant", parts=(StepStartPart(), *builder.parts))
    return StepResult(message=close_open_calls(message, "The agent ended its turn without a result of this call."))
