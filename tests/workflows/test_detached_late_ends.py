"""A run that completes although it was given up, because the cancel came when it was about to end."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from desk import Desk, eventually, read_patience
from desk_agents import calls, gate
from desk_script import start_afresh
from model_server import ModelServer
from temporalio.client import Client

import worker
from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.event_log import writer as event_writers
from turnkeeper.event_log.entries import NewEntry
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import AgentToolRunInfo
from turnkeeper.settings import Settings

BUDGET = timedelta(seconds=8)
HEAD_START = timedelta(seconds=2)
"""How long before the budget's end the run gets to end; its last model step takes a fraction of it."""


class StuckLog(SQLiteEventLog):
    """Does not take the end of a run."""

    async def append(self, entries: Sequence[NewEntry]) -> None:
        """Append, unless a run's end is among the entries."""
        if any(entry.kind == "run" and entry.key.endswith("#ended") for entry in entries):
            await asyncio.Event().wait()
        await super().append(entries)


@pytest.fixture
async def stuck_desk(
    temporal: Client,
    registry: AgentRegistry,
    models: ModelClient,
    settings: Settings,
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Desk]:
    """A desk whose worker tells the ends of runs to a log that takes as long as one is waited for."""
    start_afresh(model_server)
    monkeypatch.setattr(event_writers, "FLUSH_PATIENCE", timedelta(seconds=2.9))
    log = await StuckLog.open(settings.data_dir / "stuck.sqlite")
    writer = EventWriter(log)
    own = settings.model_copy(update={"task_queue": "stuck", "poll": ("stuck",)})
    main, *_ = worker.build_workers(temporal, registry, models, writer, own)
    async with main:
        client = TurnkeeperClient(temporal, registry, task_queue="stuck", query_patience=read_patience(settings))
        yield Desk(client, temporal)
    await writer.close()
    await log.close()


@pytest.mark.cached
async def test_dv_04_a_run_that_completes_after_its_budget_is_told_twice(stuck_desk: Desk) -> None:
    """DV-04, issue C: `interrupted`, then `completed`; the run was past the point where a cancel stops it."""
    desk = stuck_desk
    session_id = desk.session_id("Dispatching")
    query = f"call pause {json.dumps({'name': desk.name})}"
    start = json.dumps({"run_id": "late", "query": query, "seconds": BUDGET.total_seconds()})
    await desk.ask("Dispatching", f"call start {start}")

    async def row() -> AgentToolRunInfo:
        return await desk.client.runs.info(session_id, ("late",))

    deadline = (await row()).started_at + BUDGET

    async def is_time() -> bool:
        return datetime.now(UTC) >= deadline - HEAD_START

    await eventually(is_time, bool)
    gate(desk.name).set()

    async def told() -> list[str]:
        return [call.removeprefix(f"done {session_id} late ") for call in calls if f"done {session_id} late" in call]

    notes = await eventually(told, lambda found: len(found) == 2)
    ended = await eventually(row, lambda found: found.status == "completed")
    assert notes == ["interrupted budget-exceeded", f"completed done: {desk.name} is open"]
    assert [(each.slot, each.status) for each in ended.deliveries or ()] == [
        ("give_up", "delivered"),
        ("finish", "delivered"),
    ]
    assert (ended.reason, ended.child_still_running) == (None, None)
