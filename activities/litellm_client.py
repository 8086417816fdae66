"""The only file that imports litellm: calls any provider's models, and custom ones, through it."""

import logging
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from activities.context_overflow import is_context_overflow
from activities.failures import final_failure, passing_failure
from activities.model_replies import CallDelta, ModelDelta
from activities.provider_messages import ProviderMessage
from activities.retry_after import retry_after
from turnkeeper.errors import CONTEXT_OVERFLOW, MODEL_REFUSED, MODEL_UNAVAILABLE
from turnkeeper.json_values import clean_text
from turnkeeper.messages import FilePart, SourceUrlPart
from turnkeeper.models import CustomModel, CustomModelToolCall
from turnkeeper.runs import compact_json
from turnkeeper.steps import Usage

# litellm would download a price table while it is imported (field case 11).
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm
from litellm.exceptions import MidStreamFallbackError
from litellm.types.utils import GenericStreamingChunk

_PASSING_STATUSES = frozenset({408, 409, 429})
_LONGEST_WAIT = timedelta(minutes=5)
"""A provider's wish to wait longer is not granted."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)[;,]")
_WORD = re.compile(r"\s*\S+\s*")


class LiteLLMClient:
    """Calls models through litellm, whose own retries are off: Temporal alone retries."""

    def __init__(self, custom_models: Mapping[str, CustomModel]) -> None:
        """Make `custom_models` callable as providers of that name."""
        litellm.telemetry = False
        litellm.suppress_debug_info = True
        # It logs each call, and at times what the call holds.
        logging.getLogger("LiteLLM").setLevel(logging.WARNING)
        litellm.custom_provider_map = [
            {"provider": provider, "custom_handler": _CustomProvider(model)}
            for provider, model in custom_models.items()
        ]
        litellm.utils.custom_llm_setup()

    async def stream(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Answer a conversation, piece by piece.

        Raises:
            ApplicationError: the call failed; it is retryable for 408, 409, 429, 5xx and broken connections only.
        """
        try:
            response = await litellm.acompletion(
                model=model,
                messages=list(messages),
                tools=list(tools) or None,
                stream=True,
                stream_options={"include_usage": True},
                num_retries=0,
                max_retries=0,
                **options,
            )
            async with aclosing(response):
                async for chunk in response:
                    yield _delta_of(chunk)
        except Exception as error:
            raise _failure_of(model, error) from error


def _delta_of(chunk: Any) -> ModelDelta:
    usage = getattr(chunk, "usage", None)
    known = Usage(input_tokens=usage.prompt_tokens or 0, output_tokens=usage.completion_tokens or 0) if usage else None
    if not chunk.choices:
        return ModelDelta(usage=known, model=chunk.model)
    choice = chunk.choices[0]
    delta = choice.delta
    return ModelDelta(
        text=clean_text(delta.content),
        reasoning=clean_text(getattr(delta, "reasoning_content", None)),
        calls=tuple(_call_delta_of(call) for call in delta.tool_calls or ()),
        sources=_sources_of(delta),
        files=_files_of(delta),
        finish_reason=choice.finish_reason,
        usage=known,
        model=chunk.model,
    )


def _call_delta_of(call: Any) -> CallDelta:
    return CallDelta(
        index=call.index or 0,
        id=clean_text(call.id),
        name=clean_text(call.function.name),
        arguments=clean_text(call.function.arguments),
    )


def _sources_of(delta: Any) -> tuple[SourceUrlPart, ...]:
    """Return the web pages that a piece cites, in OpenAI's form, to which litellm maps other providers'."""
    citations = [note.get("url_citation") for note in getattr(delta, "annotations", None) or ()]
    return tuple(
        SourceUrlPart(source_id=cited["url"], url=cited["url"], title=cited.get("title"))
        for cited in citations
        if cited
    )


def _files_of(delta: Any) -> tuple[FilePart, ...]:
    """Return the pictures in a piece, in the form to which litellm maps what providers generate."""
    urls = [image["image_url"]["url"] for image in getattr(delta, "images", None) or () if image.get("image_url")]
    return tuple(FilePart(url=url, media_type=_media_type_of(url)) for url in urls)


def _media_type_of(url: str) -> str:
    named = _DATA_URL.match(url)
    return named[1] if named else "image/*"


def _failure_of(model: str, error: Exception) -> ApplicationError:
    if isinstance(error, MidStreamFallbackError) and error.original_exception is not None:
        error = error.original_exception
    status = getattr(error, "status_code", None)
    # Where litellm itself stumbles over an answer, it puts its traceback into the text.
    text = f"The model {model} could not answer: {str(error).partition('Traceback (most recent call last)')[0].strip()}"
    if is_context_overflow(status if isinstance(status, int) else None, f"{text} {getattr(error, 'code', None) or ''}"):
        return final_failure(text, CONTEXT_OVERFLOW)
    is_connection = isinstance(error, litellm.APIConnectionError | litellm.Timeout | ConnectionError)
    if is_connection or status in _PASSING_STATUSES or (isinstance(status, int) and status >= 500):
        return passing_failure(text, MODEL_UNAVAILABLE, _wished_wait(error))
    return final_failure(text, MODEL_REFUSED)


def _wished_wait(error: Exception) -> timedelta | None:
    """Return how long the provider asks to wait, or None when it says nothing sensible."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return retry_after(str(headers.get("retry-after", "")), _LONGEST_WAIT)


class _CustomProvider(litellm.CustomLLM):
    """Serves a custom model as a litellm provider."""

    def __init__(self, model: CustomModel) -> None:
        super().__init__()
        self._model = model

    async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[GenericStreamingChunk]:
        model = kwargs["model"]
        tools = (kwargs.get("optional_params") or {}).get("tools") or []
        try:
            reply = await self._model.complete(model, kwargs["messages"], tools)
        except Exception as error:
            # Anything else litellm would take for a broken connection, and put a traceback into its text.
            raise litellm.BadRequestError(f"{type(error).__name__}: {error}", model, "custom") from error
        for piece in _WORD.findall(reply.text or ""):
            yield _generic_chunk(text=piece)
        for index, call in enumerate(reply.tool_calls):
            yield _generic_chunk(tool_use=_tool_use(index, call))
        yield _generic_chunk(is_finished=True, finish_reason="tool_calls" if reply.tool_calls else "stop")


def _generic_chunk(**fields: Any) -> GenericStreamingChunk:
    chunk = {"text": "", "tool_use": None, "is_finished": False, "finish_reason": "", "usage": None, "index": 0}
    return {**chunk, **fields}


def _tool_use(index: int, call: CustomModelToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": compact_json(call.arguments)}
    return {"id": f"call_{uuid4().hex[:12]}", "type": "function", "function": function, "index": index}
