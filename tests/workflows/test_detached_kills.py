"""Detached runs while the worker, the API and the Temporal server are killed: what issue C asks to be shown."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from desk import eventually
from desk_script import start_afresh
from detached_agents import NOTES_VARIABLE, notes_of
from killed_stack import PARTS, KilledStack
from model_server import ModelServer

SEED_VARIABLE = "TURNKEEPER_TEST_SEED"
KILLS = [("worker",)] * 4 + [("api",)] * 2 + [("temporal",)] * 2 + [PARTS] * 2
"""Who is killed in each of the ten rounds; in which order, and when, the seed says."""


@pytest.mark.volume
@pytest.mark.timeout(600)
async def test_field_01_whatever_is_killed_every_detached_run_is_told_of(
    tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue C, DV-26, field case 1: ten rounds; nothing is lost, at most one repeat a kill, under the same key."""
    start_afresh(model_server)
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1_000_000))
    print(f"the seed of this run: {SEED_VARIABLE}={seed}")
    notes = tmp_path / "notes.jsonl"
    monkeypatch.setenv(NOTES_VARIABLE, str(notes))
    stack = KilledStack(tmp_path, "detached_agents", {NOTES_VARIABLE: str(notes)})
    try:
        await stack.start(PARTS)
        async with httpx.AsyncClient(base_url=f"{stack.api_url}/agents/Dawdling/all", timeout=20) as api:
            sent = await _rounds(stack, api, random.Random(seed))
            rows = await eventually(lambda: _rows(api), _are_told, seconds=150)
    finally:
        await stack.close()
    told = notes_of("default/Dawdling/all", "done")
    assert sorted(row["runId"] for row in rows) == sorted(sent)
    assert {row["status"] for row in rows} == {"completed"}
    assert {note["run"] for note in told} == set(sent)
    # Two that were told under one key are the repeat that a kill costs; a second key would be a second telling.
    assert {note["key"] for note in told} == {f"default/Dawdling/all/on_done/{run}/finish/completed" for run in sent}
    repeats = len(told) - len(sent)
    assert repeats <= sum(killed != ("api",) for killed in KILLS)
    print(f"{len(sent)} runs, {repeats} repeats")


async def _rounds(stack: KilledStack, api: httpx.AsyncClient, chance: random.Random) -> list[str]:
    """Dispatch and kill, ten times; returns the ids of the runs."""
    sent: list[str] = []
    dispatches: list[asyncio.Task[None]] = []
    for killed in chance.sample(KILLS, len(KILLS)):
        for _ in range(chance.randint(2, 4)):
            sent.append(f"r{len(sent)}")
            dispatches.append(asyncio.create_task(_dispatch(api, sent[-1], chance.uniform(0, 3))))
        await asyncio.sleep(chance.uniform(0, 3))
        assert stack.dead() == []
        await stack.kill(killed)
        await stack.start(killed)
    await asyncio.gather(*dispatches)
    return sent


async def _dispatch(api: httpx.AsyncClient, run_id: str, seconds: float) -> None:
    """Dispatch a run, as often as it takes: its id makes it one."""
    body = {
        "agent": "Laborer",
        "runId": run_id,
        "input": {"query": f'call work {{"seconds": {seconds:.2f}}}'},
        "detached": {"onFinish": "on_done"},
    }
    while True:
        try:
            answer = await api.post("/runs", json=body)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.is_success:
            return
        assert answer is None or answer.status_code >= 500, answer.text
        await asyncio.sleep(0.3)


async def _rows(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await api.get("/runs")
    rows: list[dict[str, Any]] = answer.json() if answer.is_success else []
    return rows


def _are_told(rows: list[dict[str, Any]]) -> bool:
    return bool(rows) and all([each["status"] for each in row.get("deliveries") or ()] == ["delivered"] for row in rows)
