"""Histories of sessions that are read all the while: queries change what the SDK does, and must not change a replay."""

import asyncio
import json

import pytest
from desk import Desk
from desk_agents import gate
from foremen import until_noted
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from turnkeeper.detached import Detached, options_of
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.errors import TurnkeeperError
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

RUNS = 24


@pytest.mark.cached  # Readers keep the one workflow task that a cache of 0 allows busy.
async def test_a_session_that_is_read_while_runs_end_replays(foreman_desk: Desk, settings: Settings) -> None:
    """House rule 10: a query that meets a local activity puts the activity's end off, after the next signals."""
    desk = foreman_desk
    session_id = desk.session_id("Foreman")
    await desk.ask("Foreman", "say something")
    readers = [asyncio.create_task(_read(desk, session_id)) for _ in range(3)]
    try:
        for number in range(RUNS):
            await _dispatch(desk, session_id, f"r-{number}")
        await until_noted(desk, "Foreman", "done", RUNS, seconds=60)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    gate(desk.name).set()
    await _replay(await desk.temporal.get_workflow_handle(session_id).fetch_history(), settings)


async def _read(desk: Desk, session_id: str) -> None:
    while True:
        try:
            await desk.client.runs.registered(session_id)
        except TurnkeeperError:
            continue


async def _dispatch(desk: Desk, session_id: str, run_id: str) -> None:
    registry = desk.client.registry
    request = DispatchRunInput(
        run_id=run_id,
        profile=registry.profile("Laborer"),
        input={"query": "say one"},
        detached=options_of(registry.get("Foreman"), Detached(on_finish="on_done")),
    )
    await desk.client.runs.dispatch(session_id, registry.profile("Foreman"), request)


async def _replay(history: WorkflowHistory, settings: Settings) -> None:
    replayer = Replayer(workflows=[], plugins=[TurnkeeperPlugin(settings.payloads_dir)])
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    assert result.replay_failure is None, json.dumps(str(result.replay_failure))[:500]
