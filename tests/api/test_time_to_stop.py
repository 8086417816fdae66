"""How long it takes from a cancel over HTTP to the end of what it costs: the provider's connection is closed."""

import asyncio
import statistics
from typing import Any

import httpx
import pytest
from desk import eventually
from desk_script import desk_script
from model_server import ChatRequest, Hold, ModelServer, Say, asked_of

TRIES = 20
LONGEST = 5.0
"""Seconds; docs/operations.md has what was measured."""

QUESTIONS = {1: "say held {}", 3: 'call delegate {{"query": "call delegate {{\\"query\\": \\"say held {}\\"}}"}}'}


@pytest.mark.volume
@pytest.mark.parametrize("depth", QUESTIONS)
async def test_field_20_a_cancel_closes_the_providers_connection(
    api: httpx.AsyncClient, name: str, model_server: ModelServer, depth: int
) -> None:
    """Field case 20: within 5 s, at depth 1 and 3; no request follows, and the turn says why it ended."""
    model_server.script = lambda request: Hold(60, Say("late")) if "held" in _asked(request) else desk_script(request)
    seconds = await asyncio.gather(
        *(_stop(api, model_server, f"{name}-{number}", QUESTIONS[depth]) for number in range(TRIES))
    )
    print(f"depth {depth}: p50 {statistics.median(seconds):.2f} s, max {max(seconds):.2f} s over {TRIES} tries")
    assert max(seconds) < LONGEST
    assert len(model_server.requests) == depth * TRIES


async def _stop(api: httpx.AsyncClient, model_server: ModelServer, name: str, question: str) -> float:
    """Cancel a turn whose model is at work, and return after how many seconds its connection was closed."""
    turns = f"/agents/Assistant/{name}/turns"
    await api.post(turns, json={"message": question.format(name)})
    await model_server.until(lambda: any(_asked(each) == f"say held {name}" for each in model_server.requests))
    (held,) = [each for each in model_server.requests if _asked(each) == f"say held {name}"]
    begun = asyncio.get_running_loop().time()
    await api.post(f"{turns}/1/cancel", json={"reason": "too dear"})
    await model_server.until(lambda: held.closed_by_client is True)
    seconds = asyncio.get_running_loop().time() - begun
    # Without an answer in time, Temporal alone is asked, which does not know the reason.
    ended = await eventually(lambda: _turn(api, turns), lambda turn: "error" in turn)
    assert (ended["status"], ended["error"]) == ("aborted", "too dear")
    return seconds


async def _turn(api: httpx.AsyncClient, turns: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"{turns}/1")).json()
    return found


def _asked(request: ChatRequest) -> str:
    """Return what a request's last message asks, unless that is to delegate it."""
    asked = asked_of(request.last_text)
    return "" if asked.startswith("call") else asked
