"""Detached runs: dispatched, forgotten, and their ends told once."""

import json
from typing import Any

from desk import Desk, eventually
from desk_agents import calls, gate

from turnkeeper.runs import AgentToolRunInfo


def start(run_id: str, query: str, **more: Any) -> str:
    """Return a message that makes a Dispatching agent start a run."""
    return f"call start {json.dumps({'run_id': run_id, 'query': query, **more})}"


def pause(desk: Desk) -> str:
    """Return what makes a Surveyor report, reach a milestone, and wait for the test."""
    return f"call pause {json.dumps({'name': desk.name})}"


def told(desk: Desk, word: str) -> list[str]:
    """Return what an agent's hook or callback noted, without whose it was."""
    instance = desk.session_id("Dispatching")
    return [call.removeprefix(f"{word} {instance} ") for call in calls if call.startswith(f"{word} {instance} ")]


async def until_told(desk: Desk, word: str, count: int, seconds: float = 30) -> list[str]:
    """Wait until a hook or callback was called so often."""

    async def found() -> list[str]:
        return told(desk, word)

    return await eventually(found, lambda notes: len(notes) >= count, seconds)


async def row(desk: Desk, run_id: str) -> AgentToolRunInfo:
    """Return a run's registry row."""
    return await desk.client.runs.info(desk.session_id("Dispatching"), (run_id,))


async def test_dd_01_a_detached_dispatch_gives_a_handle_and_the_end_is_told_once(desk: Desk) -> None:
    """DD-01, DV-01: the turn goes on at once; the global hook, then the callback, one call each."""
    turn = await desk.ask("Dispatching", start("r", pause(desk)))
    (call,) = (await desk.last("Dispatching")).tool_parts
    during = await row(desk, "r")
    gate(desk.name).set()
    await until_told(desk, "done", 1)
    after = await eventually(lambda: row(desk, "r"), lambda found: _delivered(found) == ["delivered"])
    assert turn.status == "completed"
    assert call.output == {"runId": "r", "agentType": "Surveyor", "status": "running"}
    assert (during.status, during.detached) == ("running", True)
    assert (after.status, after.summary) == ("completed", f"done: {desk.name} is open")
    assert told(desk, "global") == ["r completed"]
    assert [note.split()[:2] for note in told(desk, "done")] == [["r", "completed"]]


async def test_dd_01_a_model_may_dispatch_a_detached_run(desk: Desk) -> None:
    """DD-01, DI-20: an agent tool that is declared detached answers with the run's handle."""
    await desk.ask("Dispatching", 'call background {"query": "say one"}')
    (call,) = (await desk.last("Dispatching")).tool_parts
    assert isinstance(call.output, dict)
    assert (call.output["runId"], call.output["status"]) == ("1-0-0", "running")
    assert await until_told(desk, "done", 1) == ["1-0-0 completed one"]


async def test_field_23_a_cancelled_turn_leaves_its_detached_run_alone(desk: Desk) -> None:
    """DD-05, field case 23: the signal of the turn is not inherited."""
    lines = [start("kept", pause(desk)), f"call start {json.dumps({'run_id': 'x', 'query': 'say x'})}"]
    await desk.ask("Dispatching", "\n".join(lines))
    waiting = await desk.submit("Dispatching", f"call await_half {json.dumps({'run_id': 'never', 'seconds': 60})}")
    await desk.client.cancel_turn("Dispatching", desk.name, waiting.turn_id)
    gate(desk.name).set()
    found = await until_told(desk, "done", 2)
    assert sorted(note.split()[0] for note in found) == ["kept", "x"]
    assert (await row(desk, "kept")).status == "completed"


async def test_di_13_a_known_run_id_gives_its_handle_as_it_stands(desk: Desk) -> None:
    """DI-12, DI-13 as decided: no second run, nothing delivered again, the true status."""
    for _ in range(2):
        await desk.ask("Dispatching", start("r", "say one"))
        await until_told(desk, "done", 1)
    (call,) = (await desk.last("Dispatching")).tool_parts
    assert call.output == {"runId": "r", "agentType": "Surveyor", "status": "completed"}
    assert told(desk, "done") == ["r completed one"]


async def test_bu_01_a_run_over_its_budget_is_given_up(desk: Desk) -> None:
    """BU-01, BU-12, DV-22: torn down, told once, with the reason; its slot is free."""
    await desk.ask("Dispatching", start("slow", pause(desk), seconds=1.5))
    assert await until_told(desk, "done", 1) == ["slow interrupted budget-exceeded"]
    found = await row(desk, "slow")
    run = desk.temporal.get_workflow_handle(f"{desk.session_id('Dispatching')}/runs/slow")
    await eventually(run.describe, lambda described: described.close_time is not None)
    gate(desk.name).set()
    await desk.ask("Dispatching", "say later")
    assert (found.status, found.reason, found.child_still_running) == ("interrupted", "budget-exceeded", False)
    assert told(desk, "done") == ["slow interrupted budget-exceeded"]


async def test_bu_02_a_run_that_falls_silent_is_given_up(desk: Desk) -> None:
    """BU-02, BU-04: only after its first report."""
    await desk.ask("Dispatching", start("mute", pause(desk), silence=1.5))
    quiet = f"call wait {json.dumps({'name': desk.name})}"
    await desk.ask("Dispatching", f"call background {json.dumps({'query': quiet})}")
    assert await until_told(desk, "done", 1) == ["mute interrupted no-progress"]
    assert (await row(desk, "2-0-0")).status == "running"
    gate(desk.name).set()
    await until_told(desk, "done", 2)


async def test_cx_14_a_cancelled_detached_run_is_told_as_aborted_once(desk: Desk) -> None:
    """CX-12, CX-14, field case 23: the second cancel does nothing."""
    await desk.ask("Dispatching", start("r", pause(desk)))
    await desk.ask("Dispatching", 'call stop {"run_id": "r"}')
    (call,) = (await desk.last("Dispatching")).tool_parts
    notes = await until_told(desk, "done", 1)
    assert call.output is True
    assert [note.split()[:2] for note in notes] == [["r", "aborted"]]
    assert ((await row(desk, "r")).status, (await row(desk, "r")).error) == ("aborted", "enough of it")


async def test_dv_06_a_callback_that_fails_keeps_its_delivery_open(desk: Desk) -> None:
    """DV-06 to DV-08 as decided: visible, tried again alone, and in nobody's way."""
    await desk.ask("Dispatching", start("bad", "say stumble"))
    opened = await eventually(lambda: row(desk, "bad"), lambda found: _delivered(found) == ["open"])
    await desk.ask("Dispatching", start("good", "say fine"))
    await eventually(lambda: row(desk, "good"), lambda found: _delivered(found) == ["delivered"])
    gate(f"mended {desk.session_id('Dispatching')}").set()
    await eventually(lambda: row(desk, "bad"), lambda found: _delivered(found) == ["delivered"])
    assert opened.deliveries is not None
    assert opened.deliveries[0].error == "the callback stumbles"
    assert told(desk, "global").count("bad completed") == 1


async def test_dv_15_a_callback_may_dispatch_and_submit(desk: Desk) -> None:
    """DV-13, DV-15: the message becomes a turn after the callback, the follow-up a run of the instance."""
    await desk.ask("Dispatching", start("r", "say follow up"))
    texts = await eventually(lambda: desk.messages("Dispatching"), lambda found: found[-1].text == "submitted")
    assert [message.text for message in texts][-2:] == ["say submitted", "submitted"]
    assert (await row(desk, "follow-up")).agent_type == "Clerk"


async def test_nt_01_a_notice_is_a_message_and_a_turn(desk: Desk) -> None:
    """NT-01 to NT-06: one message with its source, one turn of the model."""
    await desk.ask("Dispatching", 'call notified {"query": "say one"}')
    messages = await eventually(lambda: desk.messages("Dispatching"), lambda found: len(found) == 4)
    notice = messages[2]
    assert notice.id == "detached-finish:1-0-0:completed"
    assert notice.text == 'Background task "Clerk" (run 1-0-0) finished:\n\none'
    assert notice.metadata == {"source": "desk", "runId": "1-0-0", "agentType": "Clerk", "status": "completed"}
    assert messages[3].role == "assistant"


async def test_om_04_a_milestone_is_narrated_without_a_turn(desk: Desk) -> None:
    """OM-04, OM-06, OM-07: the assistant says so; the model is not asked."""
    await desk.ask("Dispatching", f"call survey {json.dumps({'query': pause(desk)})}")
    messages = await eventually(lambda: desk.messages("Dispatching"), lambda found: len(found) == 3)
    gate(desk.name).set()
    after = await eventually(lambda: desk.messages("Dispatching"), lambda found: len(found) == 5)
    assert (messages[2].role, messages[2].id) == ("assistant", "detached-ms:1-0-0:half-way")
    assert messages[2].metadata == {
        "source": "detached-agent-tool",
        "runId": "1-0-0",
        "agentType": "Surveyor",
        "milestone": "half-way",
    }
    assert after[3].id == "detached-finish:1-0-0:completed"


async def test_ms_11_a_milestone_can_be_awaited(desk: Desk) -> None:
    """MS-11: it resolves at the milestone, and fails clearly at an end without it or in time."""
    await desk.ask("Dispatching", start("r", pause(desk)))
    await desk.ask("Dispatching", 'call await_half {"run_id": "r", "seconds": 30}')
    (reached,) = (await desk.last("Dispatching")).tool_parts
    gate(desk.name).set()
    await desk.ask("Dispatching", start("plain", "say one"))
    await until_told(desk, "done", 2)
    await desk.ask("Dispatching", 'call await_half {"run_id": "plain", "seconds": 30}')
    (missed,) = (await desk.last("Dispatching")).tool_parts
    assert reached.output == {"name": "half-way", "sequence": 0}
    assert missed.output == {"missed": "run plain is completed and did not reach 'half-way'"}


async def test_rc_a_run_that_an_operator_terminates_is_told(desk: Desk) -> None:
    """Issue C: reported at once where the session is the run's Temporal parent."""
    await desk.ask("Dispatching", start("r", pause(desk)))
    await desk.temporal.get_workflow_handle(f"{desk.session_id('Dispatching')}/runs/r").terminate("by hand")
    notes = await until_told(desk, "done", 1)
    assert [note.split()[:2] for note in notes] == [["r", "error"]]


async def test_cl_06_cleared_runs_are_gone_and_nothing_is_told_of_them(desk: Desk) -> None:
    """CL-02 to CL-06, CL-09, CL-10: by status; one that goes on is cancelled first."""
    await desk.ask("Dispatching", start("r", pause(desk)))
    await desk.ask("Dispatching", start("ended", "say one"))
    await until_told(desk, "done", 1)
    session_id = desk.session_id("Dispatching")
    await eventually(lambda: row(desk, "ended"), lambda found: _delivered(found) == ["delivered"])
    assert await desk.client.runs.clear(session_id, status=("error",)) == 0
    assert await desk.client.runs.clear(session_id, status=("running",)) == 1
    run = desk.temporal.get_workflow_handle(f"{session_id}/runs/r")
    await eventually(run.describe, lambda described: described.close_time is not None)
    assert [info.run_id for info in await desk.client.runs.registered(session_id)] == ["ended"]
    assert await desk.client.runs.clear(session_id) == 1
    assert await desk.client.runs.registered(session_id) == []
    assert [note.split()[0] for note in told(desk, "done")] == ["ended"]


def _delivered(info: AgentToolRunInfo) -> list[str]:
    return [delivery.status for delivery in info.deliveries or ()]
