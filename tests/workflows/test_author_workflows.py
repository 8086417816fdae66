"""Agents run from Temporal workflows of an author's own, which run on a worker of the author's own."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from desk import Desk, eventually
from desk_agents import calls, gate
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Replayer, Worker

from turnkeeper.dev_server import DevServer
from turnkeeper.payloads import data_converter
from turnkeeper.settings import Settings

with workflow.unsafe.imports_passed_through():
    from turnkeeper.detached import Detached
    from turnkeeper.runs import AgentToolResult
    from turnkeeper.workflow import run_agent_tool

QUEUE = "authors"


@workflow.defn
class Report:
    """Asks two agents at once and one in the background."""

    @workflow.run
    async def run(self, name: str, left: str, right: str, on_finish: str) -> list[str | None]:
        """Return what they said."""
        instance = ("Dispatching", name)
        handle = await run_agent_tool(
            "Clerk",
            instance=instance,
            input={"query": "say later"},
            run_id="later",
            detached=Detached(on_finish=on_finish),
        )
        both = await asyncio.gather(
            *(run_agent_tool("Clerk", instance=instance, input={"query": query}) for query in (left, right))
        )
        return [handle.status, *(result.summary if result.status == "completed" else result.error for result in both)]


@workflow.defn
class Single:
    """Asks one agent."""

    @workflow.run
    async def run(self, name: str, agent: str, query: str, run_id: str) -> AgentToolResult:
        """Return how it ended."""
        return await run_agent_tool(agent, instance=("Clerk", name), input={"query": query}, run_id=run_id)


@pytest.fixture
async def author(temporal_server: DevServer, settings: Settings, running_worker: None) -> AsyncIterator[Client]:
    """An author's client, with the author's worker, which know nothing of Turnkeeper but its data converter."""
    client = await Client.connect(
        temporal_server.address, data_converter=data_converter(settings.payloads_dir), identity="author"
    )
    async with Worker(client, task_queue=QUEUE, workflows=[Report, Single]):
        yield client


async def start(author: Client, flow: Any, *arguments: str) -> WorkflowHandle[Any, Any]:
    """Start an author's workflow."""
    return await author.start_workflow(flow.run, args=arguments, id=f"author-{uuid4().hex}", task_queue=QUEUE)


async def test_a_workflow_runs_agents_and_has_others_run_in_the_background(desk: Desk, author: Client) -> None:
    """DD-01, AW-05, DV-01: a failure is a result; the instance's own class is called back."""
    report = await start(author, Report, desk.name, "say left", "refuse 400", "on_done")
    detached, left, right = await report.result()
    session_id = desk.session_id("Dispatching")

    async def told() -> list[str]:
        return [call for call in calls if call.startswith(f"done {session_id} ")]

    assert await eventually(told, bool) == [f"done {session_id} later completed later"]
    rows = await desk.client.runs.registered(session_id)
    assert (detached, left) == ("running", "left")
    assert "refused by the script" in right
    assert sorted((row.agent_type, row.status) for row in rows) == [
        ("Clerk", "completed"),
        ("Clerk", "completed"),
        ("Clerk", "error"),
    ]
    replayer = Replayer(workflows=[Report], data_converter=author.data_converter)
    await replayer.replay_workflow(await report.fetch_history())


async def test_di_05_the_same_run_id_is_the_same_run(desk: Desk, author: Client) -> None:
    """DI-05, DI-16: its result again, and a conflict for another input."""
    first = await (await start(author, Single, desk.name, "Clerk", "say one", "r")).result()
    again = await (await start(author, Single, desk.name, "Clerk", "say one", "r")).result()
    other = await start(author, Single, desk.name, "Clerk", "say two", "r")
    with pytest.raises(WorkflowFailureError) as refused:
        await other.result()
    assert first == again
    assert (first.status, first.summary) == ("completed", "one")
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == "Conflict"


async def test_an_agent_that_is_not_registered_fails_the_workflow(desk: Desk, author: Client) -> None:
    """With an error that names it; it does not retry the workflow's task for ever."""
    single = await start(author, Single, desk.name, "Nobody", "say one", "r")
    with pytest.raises(WorkflowFailureError) as failed:
        await single.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "NotFound"
    assert "'Nobody'" in failed.value.cause.message


async def test_dd_03_a_callback_that_is_none_is_refused(desk: Desk, author: Client) -> None:
    """DD-03: checked by a worker that has the class, before anything starts."""
    report = await start(author, Report, desk.name, "say left", "say right", "__init__")
    with pytest.raises(WorkflowFailureError) as refused:
        await report.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == "InvalidRequest"


async def test_cx_02_cancelling_the_workflow_cancels_the_run_that_it_awaits(desk: Desk, author: Client) -> None:
    """CX-02: the run ends as aborted, for the reason that was given."""
    wait = f"call wait {json.dumps({'name': desk.name})}"
    single = await start(author, Single, desk.name, "Clerk", wait, "r")

    async def has_begun() -> bool:
        return f"wait {desk.name}" in calls

    await eventually(has_begun, bool)
    await single.cancel(reason="not needed any more")
    with pytest.raises(WorkflowFailureError) as cancelled:
        await single.result()
    info = await eventually(
        lambda: desk.client.runs.info(desk.session_id("Clerk"), ("r",)), lambda found: found.status != "running"
    )
    gate(desk.name).set()
    assert isinstance(cancelled.value.cause, CancelledError)
    assert (info.status, info.error) == ("aborted", "not needed any more")
