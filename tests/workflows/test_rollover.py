"""Continue-as-new of sessions and turns, on a server that suggests it early."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from desk import Desk, eventually, kinds, read_patience
from desk_agents import calls, gate
from desk_script import start_afresh
from model_server import ModelServer
from temporalio.client import Client, WorkflowExecutionStatus

import worker
from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.dev_server import dev_server
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.event_log.entries import EventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import user_message
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

ROOT = Path(__file__).parent.parent.parent
SUGGESTED_AT = 60


@pytest.fixture(scope="module")
async def restless_temporal(settings: Settings) -> AsyncIterator[Client]:
    """A server that suggests to continue as new after 60 events."""
    overrides = {"dynamic-config-value": [f"limit.historyCount.suggestContinueAsNew={SUGGESTED_AT}"]}
    async with dev_server(ROOT / "temporal-dev.yaml", overrides=overrides) as server:
        yield await Client.connect(server.address, plugins=[TurnkeeperPlugin(settings.payloads_dir)])


@pytest.fixture(scope="module")
async def restless_worker(
    restless_temporal: Client,
    registry: AgentRegistry,
    models: ModelClient,
    event_writer: EventWriter,
    settings: Settings,
) -> AsyncIterator[None]:
    """A worker on that server."""
    main, *_ = worker.build_workers(restless_temporal, registry, models, event_writer, settings)
    async with main:
        yield


@pytest.fixture
def restless_desk(
    restless_temporal: Client,
    registry: AgentRegistry,
    settings: Settings,
    restless_worker: None,
    model_server: ModelServer,
) -> Desk:
    """A desk on that server."""
    start_afresh(model_server)
    client = TurnkeeperClient(restless_temporal, registry, query_patience=read_patience(settings))
    return Desk(client, restless_temporal)


async def executions(desk: Desk, workflow_id: str) -> int:
    """Count the executions of a workflow id."""
    found = [it async for it in desk.temporal.list_workflows(f"WorkflowId = '{workflow_id}'")]
    return len(found)


async def test_a_session_keeps_everything_over_its_continue_as_new(restless_desk: Desk) -> None:
    """Design 3: transcript, turns, registry and known submission ids are carried along."""
    desk = restless_desk
    message = user_message("m", "say first")
    first = await desk.client.submit("Assistant", desk.name, message, submission_id="key")
    await desk.client.wait_for_turn("Assistant", desk.name, first.turn_id)
    for number in range(12):
        await desk.ask("Assistant", f'call research {{"query": "say {number}"}}')
    again = await desk.client.submit("Assistant", desk.name, message, submission_id="key")
    session_id = desk.session_id("Assistant")
    assert await eventually(lambda: executions(desk, session_id), lambda count: count >= 3) >= 3
    assert again.turn_id == first.turn_id
    assert [m.text for m in await desk.messages("Assistant")][:2] == ["say first", "first"]
    assert len(await desk.messages("Assistant")) == 26
    assert len(await desk.client.runs.registered(session_id)) == 12
    assert len((await desk.client.snapshot("Assistant", desk.name)).turns) == 13


async def test_a_turn_goes_on_over_its_continue_as_new(restless_desk: Desk, model_server: ModelServer) -> None:
    """Design 3: the loop continues as new between steps, and the transcript stays whole and valid."""
    desk = restless_desk
    turn = await desk.ask("Clerk", 'repeat 30 call add {"left": 2, "right": 3}')
    answer = await desk.last("Clerk")
    workflow_id = desk.turn_workflow_id("Clerk", turn)
    assert turn.status == "completed"
    assert [part.output for part in answer.tool_parts] == [5] * 30
    assert await eventually(lambda: executions(desk, workflow_id), lambda count: count >= 4) >= 4
    assert kinds(await desk.history(workflow_id))["WORKFLOW_EXECUTION_COMPLETED"] == 1
    assert model_server.refusals == []


async def test_a_run_goes_on_over_its_continue_as_new(restless_desk: Desk) -> None:
    """Field case 7: the turn that awaits it gets its result."""
    desk = restless_desk
    query = 'repeat 12 call add {"left": 2, "right": 3}'
    registry = desk.client.registry
    profile = registry.profile("Clerk")
    request = DispatchRunInput(run_id="long", profile=profile, input={"query": query})
    await desk.client.runs.dispatch(desk.session_id("Echo"), registry.profile("Echo"), request)
    result = await desk.client.runs.wait(desk.session_id("Echo"), ("long",))
    workflow_id = f"{desk.session_id('Echo')}/runs/long"
    assert (result.status, result.summary) == ("completed", "done: 5")
    assert await eventually(lambda: executions(desk, workflow_id), lambda count: count >= 2) >= 2


async def test_field_07_a_session_that_continues_as_new_keeps_its_running_runs(restless_desk: Desk) -> None:
    """Field case 7: the run lives on, and its end reaches the session's new execution."""
    desk = restless_desk
    query = f"call wait {json.dumps({'name': desk.name})}"
    registry = desk.client.registry
    request = DispatchRunInput(run_id="kept", profile=registry.profile("Researcher"), input={"query": query})
    session_id = desk.session_id("Hooked")
    await desk.client.runs.dispatch(session_id, registry.profile("Hooked"), request)
    for number in range(8):
        await desk.ask("Hooked", f"say {number}")
    await eventually(lambda: executions(desk, session_id), lambda count: count >= 2)
    gate(desk.name).set()
    await eventually(lambda: _count(f"finish {session_id} kept completed completed"), lambda count: count == 1)
    (row,) = await desk.client.runs.registered(session_id)
    described = await desk.temporal.get_workflow_handle(f"{session_id}/runs/kept").describe()
    assert row.status == "completed"
    assert described.status == WorkflowExecutionStatus.COMPLETED


async def test_a_run_keeps_and_tells_all_its_milestones_over_its_continue_as_new(
    restless_desk: Desk, event_log: EventLog
) -> None:
    """MS-02, PR-11: none is lost to the run, to the live log, or to who listens."""
    desk = restless_desk
    survey = 'call survey {"reports": 5, "milestones": 5}'
    query = f"repeat 6 {survey}"
    await desk.ask("Watching", f"call survey {json.dumps({'query': query})}")
    session_id = desk.session_id("Watching")
    run = f"{session_id}/runs/1-0-0"
    inspection = await desk.client.runs.inspect(session_id, ("1-0-0",))
    logged = [e for e in await event_log.read(session_id, limit=5_000, source=run) if e.kind == "milestone"]
    heard = [call for call in calls if call.startswith(f"progress {session_id} 1-0-0 mark")]
    assert await executions(desk, run) >= 2
    assert inspection is not None
    assert [milestone.sequence for milestone in inspection.milestones or ()] == list(range(30))
    assert len(logged) == 30
    assert len(heard) == 30


async def test_reports_do_not_put_a_sessions_continue_as_new_off(restless_desk: Desk) -> None:
    """Design 3: steady traffic never postpones it, whatever the hook takes."""
    desk = restless_desk
    registry, session_id = desk.client.registry, desk.session_id("Slow")
    query = 'repeat 12 call survey {"reports": 3, "milestones": 3}'
    for number in range(3):
        request = DispatchRunInput(run_id=f"r{number}", profile=registry.profile("Surveyor"), input={"query": query})
        await desk.client.runs.dispatch(session_id, registry.profile("Slow"), request)
    for number in range(3):
        await desk.client.runs.wait(session_id, (f"r{number}",))
    lengths = []
    async for it in desk.temporal.list_workflows(f"WorkflowId = '{session_id}'"):
        history = await desk.temporal.get_workflow_handle(session_id, run_id=it.run_id).fetch_history()
        lengths.append(len(history.events))
    assert len(lengths) >= 3
    assert max(lengths) < 3 * SUGGESTED_AT


async def _count(text: str) -> int:
    return calls.count(text)
