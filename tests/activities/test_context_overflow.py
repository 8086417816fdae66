"""Which refusals mean that a conversation is too long for its model."""

import pytest

from activities.context_overflow import is_context_overflow

OVERFLOWS = {
    "OpenAI chat": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 "
    "tokens. Please reduce the length of the messages.",
    "OpenAI responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "OpenAI code": "Error code: 400 - {'error': {'code': 'context_length_exceeded', 'message': 'too much'}}",
    "Azure": "Error code: 400 - This model's maximum context length is 4096 tokens, however you requested 5000 tokens",
    "Anthropic": "prompt is too long: 214850 tokens > 200000 maximum",
    "Anthropic, with output": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Gemini, older": "The input token count exceeds the maximum number of tokens allowed 32768.",
    "Bedrock": "ValidationException: Input is too long for requested model.",
    "Bedrock, Titan": "ValidationException: 400 Bad Request: Too many input tokens. Max input tokens: 8192, request "
    "input token count: 9279",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Perplexity": "Requested tokens exceed the token limit of this model",
    "Groq": "Please reduce the length of the messages or completion.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "vLLM": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "in mid-stream": '{"type": "error", "code": "context_length_exceeded", "message": "Your input exceeds the context '
    'window of this model."}',
}

OTHERS = {
    "tokens a minute": "Rate limit reached for gpt-4 in organization org on tokens per min (TPM): Limit 10000, "
    "Requested 12000.",
    "a request too large for a rate": "Request too large for gpt-4 on tokens per minute (TPM): Limit 30000, "
    "Requested 40000",
    "a plain 400": "Invalid value for 'temperature': must be at most 2",
    "output too long": "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "a quota": "You exceeded your current quota of tokens, please check your plan",
    "a tool": "Invalid 'tools': array too long. Expected an array with maximum length 128",
    "a missing model": "The model does not exist or you do not have access to it",
}


@pytest.mark.parametrize("provider", OVERFLOWS)
def test_field_18_every_providers_words_for_a_full_context_are_known(provider: str) -> None:
    """Field case 18: one class for all of them."""
    assert is_context_overflow(400, OVERFLOWS[provider])


@pytest.mark.parametrize("case", OTHERS)
def test_field_18_what_only_looks_like_it_is_not_taken_for_it(case: str) -> None:
    """Field case 18: limits over time pass by themselves, and a plain refusal stays one."""
    assert not is_context_overflow(400, OTHERS[case])


def test_field_18_a_request_that_is_too_large_is_a_full_context() -> None:
    """Field case 18: HTTP 413, whatever the words."""
    assert is_context_overflow(413, "Payload Too Large")
    assert not is_context_overflow(413, "Request too large on tokens per minute (TPM): Limit 6000, Requested 7000")
