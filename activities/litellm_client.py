"""The only file that imports litellm: calls any provider's models, and custom ones, through it."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from activities.failures import final_failure, passing_failure
from activities.model_calls import ModelReply, ModelToolCall
from activities.provider_messages import ProviderMessage
from turnkeeper.errors import MODEL_REFUSED, MODEL_UNAVAILABLE
from turnkeeper.json_values import clean_text
from turnkeeper.models import CustomModel, CustomModelReply
from turnkeeper.runs import compact_json
from turnkeeper.steps import Usage

# litellm would download a price table while it is imported (field case 11).
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm

_PASSING_STATUSES = frozenset({408, 409, 429})
_LONGEST_WAIT = timedelta(minutes=5)
"""A provider's wish to wait longer is not granted."""


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

    async def complete(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> ModelReply:
        """Answer a conversation.

        Raises:
            ApplicationError: the call failed; it is retryable for 408, 409, 429, 5xx and broken connections only.
        """
        try:
            response = await litellm.acompletion(
                model=model,
                messages=list(messages),
                tools=list(tools) or None,
                num_retries=0,
                max_retries=0,
                **options,
            )
        except Exception as error:
            raise _failure_of(model, error) from error
        if not response.choices:
            raise passing_failure(f"The model {model} answered without a choice.", MODEL_UNAVAILABLE)
        return _reply_of(response)


def _reply_of(response: Any) -> ModelReply:
    choice = response.choices[0]
    message = choice.message
    usage = getattr(response, "usage", None)
    return ModelReply(
        text=clean_text(message.content),
        reasoning=clean_text(getattr(message, "reasoning_content", None)),
        tool_calls=tuple(
            ModelToolCall(
                id=clean_text(call.id),
                name=clean_text(call.function.name),
                arguments=clean_text(call.function.arguments),
            )
            for call in message.tool_calls or ()
        ),
        is_cut_off=choice.finish_reason == "length",
        usage=Usage(
            input_tokens=getattr(usage, "prompt_tokens", 0) or 0,
            output_tokens=getattr(usage, "completion_tokens", 0) or 0,
        ),
        model=response.model,
    )


def _failure_of(model: str, error: Exception) -> ApplicationError:
    status = getattr(error, "status_code", None)
    # Where litellm itself stumbles over an answer, it puts its traceback into the text.
    text = f"The model {model} could not answer: {str(error).partition('Traceback (most recent call last)')[0].strip()}"
    is_connection = isinstance(error, litellm.APIConnectionError | litellm.Timeout | ConnectionError)
    if is_connection or status in _PASSING_STATUSES or (isinstance(status, int) and status >= 500):
        return passing_failure(text, MODEL_UNAVAILABLE, _retry_after(error))
    return final_failure(text, MODEL_REFUSED)


def _retry_after(error: Exception) -> timedelta | None:
    """Return how long the provider asks to wait, or None when it says nothing sensible."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = str(headers.get("retry-after", "")).strip()
    try:
        wait = timedelta(seconds=float(value))
    except (OverflowError, ValueError):
        try:
            wait = timedelta(seconds=parsedate_to_datetime(value).timestamp() - time.time())
        except (TypeError, ValueError):
            return None
    return min(wait, _LONGEST_WAIT) if wait > timedelta() else None


class _CustomProvider(litellm.CustomLLM):
    """Serves a custom model as a litellm provider."""

    def __init__(self, model: CustomModel) -> None:
        super().__init__()
        self._model = model

    async def acompletion(self, *args: Any, **kwargs: Any) -> litellm.ModelResponse:
        model = kwargs["model"]
        tools = (kwargs.get("optional_params") or {}).get("tools") or []
        try:
            reply = await self._model.complete(model, kwargs["messages"], tools)
        except Exception as error:
            # Anything else litellm would take for a broken connection, and put a traceback into its text.
            raise litellm.BadRequestError(f"{type(error).__name__}: {error}", model, "custom") from error
        return _response_of(model, reply)


def _response_of(model: str, reply: CustomModelReply) -> litellm.ModelResponse:
    calls = [
        {
            "id": f"call_{uuid4().hex[:12]}",
            "type": "function",
            "function": {"name": call.name, "arguments": compact_json(call.arguments)},
        }
        for call in reply.tool_calls
    ]
    message = {"role": "assistant", "content": reply.text, "tool_calls": calls or None}
    finish_reason = "tool_calls" if calls else "stop"
    return litellm.ModelResponse(
        model=model, choices=[{"index": 0, "finish_reason": finish_reason, "message": message}]
    )
