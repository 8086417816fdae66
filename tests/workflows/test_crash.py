"""Workers as processes: killed and stopped in the middle of a turn."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from desk import Desk, eventually, read_patience
from desk_script import desk_script, start_afresh
from model_server import ChatRequest, Hold, ModelServer, Reply, Say, Trickle, in_turn
from temporalio.client import Client
from temporalio.service import RPCError

from api.app import create_app
from turnkeeper.client import TurnkeeperClient
from turnkeeper.errors import Unavailable
from turnkeeper.event_log.entries import Entry, EventLog
from turnkeeper.event_log.feed import EventFeed
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings

ROOT = Path(__file__).parent.parent.parent
TASK_QUEUE = "crash"


@asynccontextmanager
async def worker_process(temporal: Client, settings: Settings) -> AsyncIterator[Process]:
    """Run `worker.py` with the desk's agents, as its users do."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "worker.py",
        "--agents",
        "desk_agents",
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "tests"),
            "TEMPORAL_ADDRESS": temporal.service_client.config.target_host,
            "TURNKEEPER_TASK_QUEUE": TASK_QUEUE,
            "TURNKEEPER_DATA_DIR": str(settings.data_dir),
            "TURNKEEPER_SHUTDOWN_GRACE_SECONDS": "1",
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def crash_desk(temporal: Client, registry: AgentRegistry, settings: Settings, model_server: ModelServer) -> Desk:
    """A desk whose workflows run on a task queue that only worker processes poll."""
    start_afresh(model_server)
    patience = read_patience(settings)
    return Desk(TurnkeeperClient(temporal, registry, task_queue=TASK_QUEUE, query_patience=patience), temporal)


async def test_a_worker_killed_in_a_turn_with_two_children_loses_and_repeats_nothing(
    crash_desk: Desk, temporal: Client, settings: Settings, model_server: ModelServer
) -> None:
    """Issue A: SIGKILL while both children are in their model calls; another worker finishes."""
    desk, release = crash_desk, asyncio.Event()

    def hold_children(request: ChatRequest) -> Reply:
        is_child = "slowly" in str(request.messages[-1]["content"]) and "call research" not in str(request.messages)
        return Hold(release, then=desk_script(request)) if is_child else desk_script(request)

    model_server.script = hold_children
    question = 'call research {"query": "say slowly one"}\ncall research {"query": "say slowly two"}'
    async with worker_process(temporal, settings) as first:
        turn = await _submit_when_ready(desk, question)
        await model_server.until(lambda: model_server.open_requests == 2, seconds=90)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker_process(temporal, settings):
        release.set()
        ended = await asyncio.wait_for(desk.client.wait_for_turn("Assistant", desk.name, turn), 120)
        user, answer = await desk.messages("Assistant")
        rows = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert ended.status == "completed"
    assert user.text == question
    assert [part.output for part in answer.tool_parts] == ["slowly one", "slowly two"]
    assert [row.status for row in rows] == ["completed", "completed"]
    for row in rows:
        executions = temporal.list_workflows(f"WorkflowId = '{desk.session_id('Assistant')}/runs/{row.run_id}'")
        assert len([execution async for execution in executions]) == 1
    # Each child's model call was made once before and once after the kill; the parent's two were not repeated.
    assert len(model_server.requests) == 2 * 2 + 2
    assert model_server.refusals == []


async def test_a_killed_tool_that_is_not_idempotent_is_told_to_the_model_and_not_repeated(
    crash_desk: Desk, temporal: Client, settings: Settings
) -> None:
    """Design 3: interrupted, and may have taken effect."""
    desk = crash_desk
    async with worker_process(temporal, settings) as first:
        turn = await _submit_when_ready(desk, 'call wait {"name": "for ever"}', "Clerk")
        await _until_pending_activity(desk, "Clerk", turn, "call_tool")
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker_process(temporal, settings):
        ended = await asyncio.wait_for(desk.client.wait_for_turn("Clerk", desk.name, turn), 120)
        (call,) = (await desk.last("Clerk")).tool_parts
    assert ended.status == "completed"
    assert "interrupted and may have taken effect" in str(call.error_text)


async def test_field_21_a_worker_that_is_told_to_stop_hands_its_model_call_over(
    crash_desk: Desk, temporal: Client, settings: Settings, model_server: ModelServer
) -> None:
    """Field case 21: SIGTERM is a deploy, not a cancel; the turn goes on at the next worker."""
    desk, release = crash_desk, asyncio.Event()
    model_server.script = lambda request: Hold(release, then=desk_script(request))
    async with worker_process(temporal, settings) as first:
        turn = await _submit_when_ready(desk, "say over there", "Echo")
        await model_server.until(lambda: model_server.open_requests == 1, seconds=90)
        first.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(first.wait(), 30) == 0
    async with worker_process(temporal, settings):
        release.set()
        ended = await asyncio.wait_for(desk.client.wait_for_turn("Echo", desk.name, turn), 120)
        assert (ended.status, (await desk.last("Echo")).text) == ("completed", "over there")
    assert len(model_server.requests) == 2
    assert model_server.requests[0].closed_by_client


async def test_field_02_without_a_worker_status_reads_answer_within_two_seconds(
    crash_desk: Desk, temporal: Client, settings: Settings, registry: AgentRegistry
) -> None:
    """Field case 2: what Temporal itself knows, a hint, and a service that says it is not ready."""
    desk = crash_desk
    async with worker_process(temporal, settings):
        turn = await _submit_when_ready(desk, 'call wait {"name": "for ever"}', "Clerk")
        await _until_pending_activity(desk, "Clerk", turn, "call_tool")
    app = create_app(settings.model_copy(update={"task_queue": TASK_QUEUE}), temporal, registry)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as api:
            began = time.monotonic()
            answer = await api.get(f"/agents/Clerk/{desk.name}/turns/{turn}")
            assert time.monotonic() - began < 2
            assert answer.json()["status"] == "running"
            assert "No worker" in answer.json()["hint"]
            assert (await api.get(f"/agents/Clerk/{desk.name}/messages")).status_code == 503
    await desk.temporal.get_workflow_handle(desk.session_id("Clerk")).terminate()


async def test_a_worker_killed_in_mid_stream_leaves_a_feed_without_a_gap(
    crash_desk: Desk, temporal: Client, settings: Settings, model_server: ModelServer, event_log: EventLog
) -> None:
    """Issue B: whoever watched sees the first words, then the attempt that supersedes them, each number once."""
    desk, never = crash_desk, asyncio.Event()
    model_server.script = in_turn(Trickle("the first words", never), Say("a whole answer"))
    session_id, feed = desk.session_id("Echo"), EventFeed(event_log)

    async def watch() -> list[Entry]:
        seen: list[Entry] = []
        async with aclosing(feed.follow(session_id, 0)) as batches:
            async for batch in batches:
                seen.extend(batch)
                if batch[-1].body.get("kind") == "finished":
                    break
        return seen

    watching = asyncio.create_task(watch())
    async with worker_process(temporal, settings) as first:
        await _submit_when_ready(desk, "hello", "Echo")
        await eventually(lambda: event_log.read(session_id), lambda found: "first words" in str(found), seconds=60)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker_process(temporal, settings):
        seen = await asyncio.wait_for(watching, 120)
    await feed.close()
    deltas = [entry for entry in seen if entry.body.get("type") == "text-delta"]
    assert [entry.id for entry in seen] == list(range(1, len(seen) + 1))
    assert [entry.seq for entry in seen] == list(range(len(seen)))
    assert "".join(str(entry.body["delta"]) for entry in deltas if entry.attempt == 1) == "the first words"
    assert "".join(str(entry.body["delta"]) for entry in deltas if entry.attempt == 2) == "a whole answer"


async def _submit_when_ready(desk: Desk, text: str, agent_type: str = "Assistant") -> str:
    """Submit as soon as a worker answers; it imports litellm first, and one that was killed still counts as polling."""
    submission_id = uuid4().hex

    async def submitted() -> str:
        try:
            return (await desk.submit(agent_type, text, submission_id)).turn_id
        except Unavailable:
            return ""

    return await eventually(submitted, bool, seconds=90)


async def _until_pending_activity(desk: Desk, agent_type: str, turn_id: str, activity: str) -> None:
    workflow_id = f"{desk.session_id(agent_type)}/turns/{turn_id}"

    async def pending() -> list[str]:
        try:
            described = await desk.temporal.get_workflow_handle(workflow_id).describe()
        except RPCError:
            return []  # The session has not started it yet.
        return [it.activity_type.name for it in described.raw_description.pending_activities if it.attempt == 1]

    await eventually(pending, lambda names: activity in names, seconds=60)
