"""Recorded histories of every workflow replay without a difference; `make histories` records them anew."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, eventually
from desk_agents import calls, gate
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from turnkeeper.detached import Detached, options_of
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

HISTORIES = Path(__file__).parent / "histories"


async def plain(desk: Desk) -> list[str]:
    """Record a turn without tools."""
    turn = await desk.ask("Echo", "say hello")
    return [desk.session_id("Echo"), desk.turn_workflow_id("Echo", turn)]


async def function_tools(desk: Desk) -> list[str]:
    """Record two calls at once, one that fails, one that is malformed, and a second step."""
    lines = ['call add {"left": 1, "right": 2}', 'call fail {"text": "no"}', "call add {"]
    turn = await desk.ask("Clerk", "\n".join(lines))
    return [desk.turn_workflow_id("Clerk", turn)]


async def agent_tools(desk: Desk) -> list[str]:
    """Record a fan-out with a nested run, a failed run and structured output, with hooks."""
    nested = json.dumps({"query": 'call research {"query": "say deep"}'})
    lines = [
        'call research {"query": "say one"}',
        f"call delegate {nested}",
        'call broken {"query": "x"}',
        'call extract {"query": "say rows"}',
    ]
    turn = await desk.ask("Hooked", "\n".join(lines))
    session_id = desk.session_id("Hooked")
    return [desk.turn_workflow_id("Hooked", turn), *(f"{session_id}/runs/1-0-{position}" for position in range(4))]


async def runs_of_tools(desk: Desk) -> list[str]:
    """Record runs that a tool dispatched, one id twice, and one again in a later turn."""
    named = 'call named_run {"run_id": "r", "query": "say it"}'
    await desk.ask("Assistant", f'call compare {{"left": "say l", "right": "say r"}}\n{named}\n{named}')
    turn = await desk.ask("Assistant", named)
    return [f"{desk.session_id('Assistant')}/turns/1", desk.turn_workflow_id("Assistant", turn)]


async def cancelled(desk: Desk) -> list[str]:
    """Record a turn that was cancelled while its run waited in a tool."""
    query = f"call wait {json.dumps({'name': desk.name})}"
    turn = await desk.submit("Assistant", f"call research {json.dumps({'query': query})}")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    await desk.client.cancel_turn("Assistant", desk.name, turn.turn_id, "enough")
    await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)
    session_id = desk.session_id("Assistant")
    return [session_id, desk.turn_workflow_id("Assistant", turn), f"{session_id}/runs/1-0-0"]


async def under_way(desk: Desk) -> list[str]:
    """Record a turn that waits for its run, and the run in its tool call (field case 10)."""
    query = f"call wait {json.dumps({'name': desk.name})}"
    turn = await desk.submit("Assistant", f"call research {json.dumps({'query': query})}")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    session_id = desk.session_id("Assistant")
    return [session_id, desk.turn_workflow_id("Assistant", turn), f"{session_id}/runs/1-0-0"]


async def dispatched_from_outside(desk: Desk) -> list[str]:
    """Record a session that dispatched runs itself, one of them cancelled."""
    registry, session_id = desk.client.registry, desk.session_id("Hooked")
    for run_id, query in (("done", "say done"), ("stopped", f"call wait {json.dumps({'name': desk.name})}")):
        request = DispatchRunInput(run_id=run_id, profile=registry.profile("Researcher"), input={"query": query})
        await desk.client.runs.dispatch(session_id, registry.profile("Hooked"), request)
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    await desk.client.runs.cancel(session_id, ("stopped",), "enough")
    for run_id in ("done", "stopped"):
        await desk.client.runs.wait(session_id, (run_id,))
    await eventually(lambda: _noted(f"finish {session_id} stopped aborted aborted"), bool)
    return [session_id, f"{session_id}/runs/done", f"{session_id}/runs/stopped"]


async def detached(desk: Desk) -> list[str]:
    """Record detached runs: told by callback and by notice, narrated, given up, cancelled, and posted in vain."""
    session_id = desk.session_id("Dispatching")
    pause = f"call pause {json.dumps({'name': desk.name})}"
    await desk.ask("Dispatching", f'call background {{"query": "say one"}}\ncall survey {json.dumps({"query": pause})}')
    slow = json.dumps({"run_id": "slow", "query": f"call pause {json.dumps({'name': 'never'})}", "seconds": 1})
    await desk.ask("Dispatching", f"call start {slow}")
    stopped = json.dumps({"run_id": "stopped", "query": f"call pause {json.dumps({'name': 'never'})}"})
    await desk.ask("Dispatching", f"call start {stopped}")
    await desk.ask("Dispatching", 'call stop {"run_id": "stopped"}')
    registry = desk.client.registry
    options = options_of(registry.get("Dispatching"), Detached(webhook="http://127.0.0.1:9/"))
    request = DispatchRunInput(
        run_id="posted", profile=registry.profile("Clerk"), input={"query": "say posted"}, detached=options
    )
    await desk.client.runs.dispatch(session_id, registry.profile("Dispatching"), request)
    gate(desk.name).set()

    async def told() -> list[str]:
        rows = await desk.client.runs.registered(session_id)
        return [each.status for row in rows for each in row.deliveries or ()]

    # The five ends, and the attempt at the webhook.
    await eventually(told, lambda found: sorted(found) == [*["delivered"] * 5, "open"])
    await eventually(lambda: desk.messages("Dispatching"), lambda found: found[-1].role == "assistant")
    runs = ("1-0-0", "1-0-1", "slow", "stopped", "posted")
    return [session_id, f"{session_id}/turns/1", *(f"{session_id}/runs/{run_id}" for run_id in runs)]


async def remembered(desk: Desk) -> list[str]:
    """Record a state that is set, also by a callback, and a conversation that is cleared."""
    await desk.ask("Keeper", 'call remember {"text": "one"}')
    await desk.ask("Keeper", 'call errand {"query": "say two"}')
    await eventually(lambda: desk.client.state("Keeper", desk.name), lambda state: "two" in str(state))
    await desk.client.clear_messages("Keeper", desk.name)
    await desk.ask("Keeper", "say three")
    return [desk.session_id("Keeper")]


SCENARIOS: dict[str, Callable[[Desk], Awaitable[list[str]]]] = {
    scenario.__name__: scenario
    for scenario in (
        plain,
        function_tools,
        agent_tools,
        runs_of_tools,
        cancelled,
        under_way,
        dispatched_from_outside,
        detached,
        remembered,
    )
}


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_histories_of_this_release_replay(
    scenario: str, desk: Desk, settings: Settings, request: pytest.FixtureRequest
) -> None:
    """House rule 10: what is recorded now replays now; with `--record-histories` it is kept."""
    workflow_ids = await SCENARIOS[scenario](desk)
    histories = [await desk.temporal.get_workflow_handle(workflow_id).fetch_history() for workflow_id in workflow_ids]
    gate(desk.name).set()
    for history in histories:
        await replay(history, settings)
    if request.config.getoption("--record-histories"):
        for number, history in enumerate(histories):
            recorded = {"workflowId": history.workflow_id, **without_machine(history.to_json_dict())}
            path = HISTORIES / f"{scenario}-{number}.json"
            await asyncio.to_thread(path.write_text, json.dumps(recorded, indent=1) + "\n")


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_histories_of_earlier_releases_replay(path: Path, settings: Settings) -> None:
    """Field case 10: runs in flight survive a deploy."""
    recorded = json.loads(await asyncio.to_thread(path.read_text))
    # Children's ids are derived from it.
    workflow_id = recorded.pop("workflowId")
    await replay(WorkflowHistory.from_json(workflow_id, recorded), settings)


def test_there_is_a_recorded_history_of_every_workflow() -> None:
    """House rule 10."""
    recorded = {
        json.loads(path.read_text())["events"][0]["workflowExecutionStartedEventAttributes"]["workflowType"]["name"]
        for path in HISTORIES.glob("*.json")
    }
    assert recorded == {"AgentSession", "AgentTurn", "AgentToolRun"}


def without_machine(recorded: Any) -> Any:
    """Return a history without what only tells of the machine that recorded it: stack traces and process names."""
    if isinstance(recorded, dict):
        kept = {key: value for key, value in recorded.items() if key not in ("stackTrace", "identity")}
        return {key: without_machine(value) for key, value in kept.items()}
    return [without_machine(item) for item in recorded] if isinstance(recorded, list) else recorded


async def replay(history: WorkflowHistory, settings: Settings) -> None:
    """Replay a history; a difference raises."""
    replayer = Replayer(workflows=[], plugins=[TurnkeeperPlugin(settings.payloads_dir)])
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if result.replay_failure is not None:
        raise AssertionError(f"{history.workflow_id} does not replay") from result.replay_failure


async def _noted(text: str) -> bool:
    return text in calls
