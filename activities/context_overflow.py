"""Whether a provider's refusal means that the conversation is too long for the model (field case 18)."""

import re
from http import HTTPStatus

_OVERFLOWS = re.compile(
    "|".join(
        (
            r"context_length_exceeded",  # OpenAI's code, also in its responses form and in mid-stream
            r"maximum context length",  # OpenAI, Azure, vLLM, Mistral, OpenRouter
            r"context (window|length|size|limit)\W.{0,60}(exceed|overflow|too (small|long|large)|limit)",
            r"(exceed|overflow|larger than|longer than)\w*\W.{0,80}context (window|length|size|limit)",
            r"prompt is too long",  # Anthropic
            r"prompt (token count|length) .{0,40}exceed",
            r"input length and .?max_tokens.? exceed context limit",  # Anthropic's other form
            r"input token count .{0,40}exceeds the maximum",  # Gemini
            r"too many (input )?tokens\W.{0,40}max",  # Bedrock
            r"input is too long for requested model",  # Bedrock
            r"expected maxlength: \d+, actual: \d+",  # Bedrock's validation
            r"too large for model with \d+ maximum context",  # Mistral
            r"maximum prompt length is \d+",  # xAI
            r"reduce the length of the messages or completion",  # Groq
            r"(request|input|prompt|messages?) (is |are )?too (long|large) for (the|this) (model|context)",
            r"token limit (of this model|for this model|exceeded for (the )?prompt)",  # Perplexity and others
            r"exceeds? the available context size",  # llama.cpp
            r"exceeds? (the )?max(imum)? (number of )?(input |prompt |context )?tokens (allowed|of|for)",
        )
    ),
    re.IGNORECASE | re.DOTALL,
)

_RATES = re.compile(r"per[ -](minute|day|hour|second)|\b(tpm|rpm|tpd)\b|rate.?limit|quota", re.IGNORECASE)
"""Limits over time speak of tokens too, and pass by themselves."""


def is_context_overflow(status: int | None, text: str) -> bool:
    """Tell whether a failure means that the conversation does not fit.

    Args:
        status: the HTTP status, if there was one.
        text: the provider's words, codes included.
    """
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return not _RATES.search(text)
    return _OVERFLOWS.search(text) is not None and not _RATES.search(text)
