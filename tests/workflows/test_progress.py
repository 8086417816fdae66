"""Progress and milestones of agent-tool runs: what a run keeps, what its dispatcher hears, what it costs."""

import json

from desk import Desk, eventually, kinds
from desk_agents import calls, gate
from temporalio.api.sdk.v1 import WorkflowMetadata

from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.errors import NotFound
from turnkeeper.event_log.entries import EventLog
from turnkeeper.runs import AgentToolRunInspection
from turnkeeper.turns import Report, ReportInput


async def inspected(desk: Desk, agent_type: str, run_id: str) -> AgentToolRunInspection:
    """Return what a run says of itself."""
    inspection = await desk.client.runs.inspect(desk.session_id(agent_type), (run_id,))
    assert inspection is not None
    return inspection


async def if_known(desk: Desk) -> AgentToolRunInspection | None:
    """Return what the first run says of itself, or None while it does not exist."""
    try:
        return await desk.client.runs.inspect(desk.session_id("Watching"), ("1-0-0",))
    except NotFound:
        return None


def survey(call: str) -> str:
    """Return a message that makes a Watching agent have a Surveyor make a call."""
    return f"call survey {json.dumps({'query': call})}"


async def test_field_05_a_flood_of_reports_costs_its_parent_next_to_nothing(desk: Desk, event_log: EventLog) -> None:
    """Field case 5, PR-03 and MS-02 as decided: 20,000 reports and five milestones; the last snapshot is right."""
    turn = await desk.ask("Watching", survey('call survey {"reports": 20000, "milestones": 5}'))
    inspection = await inspected(desk, "Watching", "1-0-0")
    history = await desk.history(desk.turn_workflow_id("Watching", turn))
    entries = await event_log.read(desk.session_id("Watching"), limit=10_000)
    assert turn.status == "completed"
    assert len(history) < 200
    assert inspection.milestones is not None
    reached = [f"mark-{number}" for number in range(4_000, 20_001, 4_000)]
    assert [(m.sequence, m.name) for m in inspection.milestones] == list(enumerate(reached))
    assert inspection.progress is not None
    assert inspection.progress.message == "line 19999"
    shown = [entry.body["data"] for entry in entries if entry.kind == "progress"]
    assert isinstance(shown[-1], dict)
    assert (shown[-1]["message"], shown[-1]["data"]) == ("line 19999", {"line": 19999})
    assert len(shown) < 2_000


async def test_pr_11_the_dispatcher_hears_of_progress_and_milestones(desk: Desk) -> None:
    """PR-11, PR-12, MS-09: the hook of an awaited run's parent, for milestones each time."""
    await desk.ask("Watching", survey('call survey {"reports": 6, "milestones": 3}'))
    instance = desk.session_id("Watching")
    heard = [call.rpartition(" ")[2] for call in calls if call.startswith(f"progress {instance} 1-0-0 mark")]
    assert heard == ["mark-2", "mark-4", "mark-6"]


async def test_pr_11_a_hook_that_fails_changes_nothing(desk: Desk) -> None:
    """PR-11: its failure is logged only."""
    turn = await desk.ask("Watching", survey('call survey {"reports": 1, "milestones": 1}\nsay stumble'))
    assert turn.status == "completed"
    assert (await desk.last("Watching")).tool_parts[0].state == "output-available"


async def test_pr_11_a_hook_that_hangs_holds_neither_the_turn_nor_its_cancel_up(desk: Desk) -> None:
    """PR-11: it is not awaited."""
    heard = f"slow {desk.session_id('Slow')} None"
    stuck = 'call survey {"reports": 3, "milestones": 3}\nsay stuck'
    turn = await desk.ask("Slow", f"call survey {json.dumps({'query': stuck})}")
    assert turn.completed_at is not None
    assert turn.started_at is not None
    assert (turn.completed_at - turn.started_at).total_seconds() < 12
    query = f"call pause {json.dumps({'name': desk.name})}\nsay stuck"
    before = calls.count(heard)
    waiting = await desk.submit("Slow", f"call survey {json.dumps({'query': query})}")
    await eventually(lambda: _count(heard), lambda count: count > before)
    await desk.client.cancel_turn("Slow", desk.name, waiting.turn_id)
    ended = await desk.client.wait_for_turn("Slow", desk.name, waiting.turn_id)
    gate(desk.name).set()
    assert ended.completed_at is not None
    assert ended.started_at is not None
    assert (ended.completed_at - ended.started_at).total_seconds() < 12


async def test_pr_11_a_session_hears_of_the_runs_that_it_dispatched(desk: Desk) -> None:
    """PR-11: a run that nobody awaits reports to its session."""
    instance, registry = desk.session_id("Watching"), desk.client.registry
    request = DispatchRunInput(
        run_id="own", profile=registry.profile("Surveyor"), input='call survey {"reports": 2, "milestones": 2}'
    )
    await desk.client.runs.dispatch(instance, registry.profile("Watching"), request)
    await desk.client.runs.wait(instance, ("own",))

    async def heard() -> list[str]:
        return [call.rpartition(" ")[2] for call in calls if call.startswith(f"progress {instance} own mark")]

    assert await eventually(heard, lambda found: len(found) == 2) == ["mark-1", "mark-2"]


async def test_a_hook_that_is_not_overridden_costs_nothing(desk: Desk) -> None:
    """Design 3: an agent that does not listen gets no signals."""
    query = 'call survey {"reports": 50, "milestones": 5}'
    turn = await desk.ask("Assistant", f"call measure {json.dumps({'query': query})}")
    history = await desk.history(desk.turn_workflow_id("Assistant", turn))
    assert (await inspected(desk, "Assistant", "1-0-0")).milestones is not None
    assert kinds(history)["WORKFLOW_EXECUTION_SIGNALED"] == 0


async def test_a_running_run_shows_its_bar_and_milestones_in_the_temporal_ui(desk: Desk) -> None:
    """Design 3, PR-07, PR-08, MS-05: the current details, and the inspection of a run that goes on."""
    turn = await desk.submit("Watching", survey(f"call pause {json.dumps({'name': desk.name})}"))
    run = f"{desk.session_id('Watching')}/runs/1-0-0"

    half_way = await eventually(
        lambda: if_known(desk), lambda found: found is not None and found.milestones is not None
    )
    metadata = await desk.client.requests.query(run, "__temporal_workflow_metadata", WorkflowMetadata)
    gate(desk.name).set()
    await desk.client.wait_for_turn("Watching", desk.name, turn.turn_id)
    assert half_way is not None
    assert half_way.status == "running"
    assert half_way.progress is not None
    assert (half_way.progress.phase, half_way.progress.data) == ("waiting", {"kept": True})
    assert "██████████░░░░░░░░░░` 50% waiting" in metadata.current_details
    assert "**half-way**" in metadata.current_details


async def test_pr_09_a_report_outside_a_run_does_nothing(desk: Desk) -> None:
    """PR-09: a turn of an instance's own is no run."""
    turn = await desk.ask("Surveyor", 'call survey {"reports": 2, "milestones": 1}')
    assert turn.status == "completed"
    assert (await desk.last("Surveyor")).tool_parts[0].output == ["inactive"]


async def test_ms_04_a_signal_that_comes_twice_is_one_milestone(desk: Desk) -> None:
    """MS-03, MS-04, field case 8: the same report counts once, the same name twice is two milestones."""
    turn = await desk.submit("Watching", survey(f"call pause {json.dumps({'name': desk.name})}"))
    run = f"{desk.session_id('Watching')}/runs/1-0-0"

    async def reached() -> int:
        inspection = await if_known(desk)
        return len(inspection.milestones or ()) if inspection else 0

    await eventually(reached, lambda count: count == 1)
    report = Report(report_id="x", at=turn.submitted_at, milestone="half-way")
    for _ in range(2):
        await desk.client.requests.signal(run, names.REPORT, ReportInput(reports=(report,)))
    await eventually(reached, lambda count: count == 2)
    gate(desk.name).set()
    await desk.client.wait_for_turn("Watching", desk.name, turn.turn_id)
    milestones = (await inspected(desk, "Watching", "1-0-0")).milestones
    assert milestones is not None
    assert [(m.name, m.sequence) for m in milestones] == [("half-way", 0), ("half-way", 1)]


async def _count(text: str) -> int:
    return calls.count(text)
