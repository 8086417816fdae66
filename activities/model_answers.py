"""How a model step comes to its answer: fallback models, a watch over the stream, room made in a full context."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from activities.compaction import compact, shown
from activities.failures import final_failure, passing_failure
from activities.heartbeats import Heart
from activities.model_replies import ModelDelta, ModelReply, ReplyBuilder
from activities.provider_messages import ProviderMessage, provider_messages, provider_tools
from activities.step_stream import StepStream
from activities.stream_watch import StreamStalled, watched
from turnkeeper.agents import Agent
from turnkeeper.errors import CONTEXT_OVERFLOW, MODEL_REFUSED, MODEL_UNAVAILABLE
from turnkeeper.events import Event
from turnkeeper.steps import CallModelInput
from turnkeeper.turns import Compaction, ContextState

MAX_COMPACTIONS = 2
"""How often one step may shorten its conversation."""

FULL_SHARE = 0.8
"""Of a model's context window: what is fuller is compacted before the next step."""

Note = Callable[[Event], None]
"""Takes a diagnostic event."""


class ModelClient(Protocol):
    """Calls models; its failures are Temporal application failures that say whether trying again may help."""

    def stream(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Answer a conversation, piece by piece."""


class ModelAnswer:
    """Has one step of one agent answered."""

    def __init__(
        self, models: ModelClient, agent: Agent, call: CallModelInput, stream: StepStream, heart: Heart, note: Note
    ) -> None:
        """Answer `call` for `agent`, showing what comes through `stream`; diagnostic events go to `note`.

        Raises:
            ApplicationError: the agent names no model.
        """
        if not agent.model:
            text = f"The agent {call.agent_type} names no model. Set `model`, such as 'openai/gpt-5-mini'."
            raise final_failure(text, MODEL_REFUSED)
        self._models = models
        self._agent = agent
        self._call = call
        self._context = call.context or ContextState()
        self._stream = stream
        self._heart = heart
        self._note = note
        self.compaction: Compaction | None = None
        """How the conversation had to be shortened, if it had to be."""

    async def get(self) -> ModelReply:
        """Return the answer.

        Raises:
            ApplicationError: no model gave one; it says whether trying again may help.
        """
        window = self._agent.context_window
        # Where that shortens nothing, the model may still take it.
        if window is not None and self._context.tokens >= FULL_SHARE * window and await self._compact():
            self._note_compaction("proactive")
        for attempt in range(1, MAX_COMPACTIONS + 1):
            try:
                return await self._first_answer()
            except ApplicationError as error:
                if error.type != CONTEXT_OVERFLOW or not await self._compact():
                    raise
                self._note_compaction("reactive", attempt)
        return await self._first_answer()

    async def _first_answer(self) -> ModelReply:
        """Return the answer of the first model that gives one."""
        failures: list[ApplicationError] = []
        for model in (self._agent.model, *self._agent.fallback_models):
            if failures:
                self._stream.restart()
            try:
                return await self._answer_of(model)
            except ApplicationError as error:
                failures.append(error)
        raise _joined(failures)

    async def _answer_of(self, model: str) -> ModelReply:
        agent, timeout = self._agent, self._agent.stream_stall_timeout
        conversation = shown(agent.messages, self.compaction or self._context.compaction)
        options = agent.model_options
        if self._call.is_last and agent.tools:
            options = {**options, "tool_choice": "none"}
        builder = ReplyBuilder(self._call.source.step, self._stream.add)
        deltas = self._models.stream(
            model,
            provider_messages(agent.instructions, conversation),
            provider_tools(list(agent.tools.values())),
            options,
        )
        try:
            async for delta in watched(deltas, timeout):
                builder.add(delta)
                self._heart.progress += 1
        except StreamStalled as error:
            seconds = timeout.total_seconds() if timeout is not None else 0.0
            self._note(Event(type="chat:stream:stalled", payload={**self._request, "timeoutMs": round(seconds * 1000)}))
            text = f"The model {model} wrote nothing for {seconds:g} s in the middle of its answer."
            raise passing_failure(text, MODEL_UNAVAILABLE) from error
        return _checked(model, builder.finish())

    async def _compact(self) -> bool:
        before = self.compaction or self._context.compaction
        compaction = await compact(self._agent.messages, before, self._summary_of)
        if compaction is None:
            return False
        self.compaction = compaction
        return True

    async def _summary_of(self, messages: list[ProviderMessage]) -> str | None:
        builder = ReplyBuilder(self._call.source.step, lambda chunk: None)
        try:
            async for delta in self._models.stream(self._agent.model, messages, [], self._agent.model_options):
                builder.add(delta)
                self._heart.progress += 1
        except ApplicationError as error:
            if error.type == CONTEXT_OVERFLOW:
                return None
            raise
        return builder.finish().text

    def _note_compaction(self, reason: str, attempt: int | None = None) -> None:
        """Say that the conversation was shortened (OE-20)."""
        payload: dict[str, JsonValue] = {"reason": reason, "shortened": True}
        if attempt is not None:
            payload |= {**self._request, "attempt": attempt}
        self._note(Event(type="chat:context:compacted", payload=payload))

    @property
    def _request(self) -> dict[str, JsonValue]:
        return {"requestId": self._call.source.turn_id}


def _checked(model: str, reply: ModelReply) -> ModelReply:
    """Return an answer that is one.

    Raises:
        ApplicationError: it is empty, or announces calls that are not there (field cases 13 and 19); it is retryable.
    """
    if reply.finish_reason == "tool_calls" and not reply.tool_calls:
        raise passing_failure(f"The model {model} announced tool calls and made none.", MODEL_UNAVAILABLE)
    if reply.is_empty:
        raise passing_failure(f"The model {model} gave an empty answer.", MODEL_UNAVAILABLE)
    return reply


def _joined(failures: list[ApplicationError]) -> ApplicationError:
    """Return the failures of all models as one: final if each of them is, and of the first one's type."""
    first, *others = failures
    if not others or first.type == CONTEXT_OVERFLOW:
        return first
    text = f"{first.message} The fallbacks failed as well: {' '.join(error.message for error in others)}"
    passing = [error for error in failures if not error.non_retryable]
    if not passing:
        return final_failure(text, first.type or MODEL_REFUSED)
    waits = [error.next_retry_delay for error in passing]
    return passing_failure(text, MODEL_UNAVAILABLE, None if None in waits else min(wait for wait in waits if wait))
