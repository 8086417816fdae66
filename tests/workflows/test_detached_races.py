"""What may come between a detached run's start, its end and the telling of it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from desk import Desk, eventually
from foremen import noted, open_gate, pause, row, start, until_noted, until_settled
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from activities import progress_reports
from turnkeeper import names
from turnkeeper.dispatches import RunFinished
from turnkeeper.runs import AgentToolResult


async def test_dv_04_a_run_that_completes_after_it_was_given_up_is_told_of_twice(foreman_desk: Desk) -> None:
    """DV-04, field case 3: `interrupted`, then `completed`, each once and under a key of its own.

    A run of ours ends with its cancel, so its late word is sent from here, as a run sends it; twice.
    """
    desk = foreman_desk
    await desk.ask("Attentive", start("late", pause(desk), seconds=1))
    await until_settled(desk, "Attentive", "late", ("give_up",))
    result = AgentToolResult(run_id="late", agent_type="Laborer", status="completed", summary="after all")
    finished = RunFinished(path="late", result=result, at=datetime.now(UTC))
    for _ in range(2):
        await desk.temporal.get_workflow_handle(desk.session_id("Attentive")).signal(names.RUN_FINISHED, finished)
    await until_settled(desk, "Attentive", "late", ("give_up", "finish"))
    found = await row(desk, "Attentive", "late")
    done, hooked = noted(desk, "Attentive", "done"), noted(desk, "Attentive", "global")
    assert [(note["status"], note["reason"]) for note in done] == [
        ("interrupted", "budget-exceeded"),
        ("completed", None),
    ]
    assert [note["status"] for note in hooked] == ["interrupted", "completed"]
    assert len({note["key"] for note in done}) == 2
    assert len({note["key"] for note in hooked}) == 2
    assert (found.status, found.summary, found.reason, found.child_still_running) == (
        "completed",
        "after all",
        None,
        None,
    )


async def test_dv_22_after_a_give_up_that_worked_the_end_of_the_teardown_is_not_told(foreman_desk: Desk) -> None:
    """DV-22 as decided, DV-05: the run itself ends as aborted, of which nobody hears."""
    desk = foreman_desk
    await desk.ask("Foreman", start("slow", pause(desk), seconds=1))
    await until_settled(desk, "Foreman", "slow", ("give_up",))
    run = desk.temporal.get_workflow_handle(f"{desk.session_id('Foreman')}/runs/slow")
    await eventually(run.describe, lambda found: found.status == WorkflowExecutionStatus.CANCELED)
    await desk.ask("Foreman", "say something else")
    assert [note["status"] for note in noted(desk, "Foreman", "done")] == ["interrupted"]
    assert (await row(desk, "Foreman", "slow")).status == "interrupted"


async def test_cx_14_a_run_that_is_cancelled_while_its_start_hook_runs_does_not_start(foreman_desk: Desk) -> None:
    """CX-14, design 8: no work outlives its cancel."""
    desk = foreman_desk
    asking = asyncio.create_task(desk.ask("Attentive", start("early", "say hold start")))
    await until_noted(desk, "Attentive", "start")
    await desk.client.runs.cancel(desk.session_id("Attentive"), ("early",), "never mind")
    open_gate(desk, "start", "Attentive")
    await asking
    (done,) = await until_noted(desk, "Attentive", "done")
    assert done["status"] == "aborted"
    assert not await _exists(desk, f"{desk.session_id('Attentive')}/runs/early")


async def test_cl_06_a_run_that_is_cleared_while_its_start_hook_runs_does_not_start(foreman_desk: Desk) -> None:
    """CL-06, CL-09: it is gone, and nothing is told of it."""
    desk = foreman_desk
    asking = asyncio.create_task(desk.ask("Attentive", start("early", "say hold start")))
    await until_noted(desk, "Attentive", "start")
    assert await desk.client.runs.clear(desk.session_id("Attentive")) == 1
    open_gate(desk, "start", "Attentive")
    await asking
    assert not await _exists(desk, f"{desk.session_id('Attentive')}/runs/early")
    assert noted(desk, "Attentive", "done") == []


async def test_bu_01_a_run_that_is_given_up_while_its_start_hook_runs_does_not_start(foreman_desk: Desk) -> None:
    """BU-01, DV-22: told as interrupted, once; nothing goes on."""
    desk = foreman_desk
    asking = asyncio.create_task(desk.ask("Attentive", start("early", "say hold start", seconds=1)))
    await until_noted(desk, "Attentive", "start")
    await eventually(lambda: row(desk, "Attentive", "early"), lambda info: info.status == "interrupted")
    open_gate(desk, "start", "Attentive")
    await asking
    await until_settled(desk, "Attentive", "early", ("give_up",))
    assert not await _exists(desk, f"{desk.session_id('Attentive')}/runs/early")
    assert [note["status"] for note in noted(desk, "Attentive", "done")] == ["interrupted"]


async def test_cl_09_a_run_that_is_cleared_while_it_is_told_of_leaves_the_session_alone(foreman_desk: Desk) -> None:
    """CL-09: what was left to tell is dropped, and the session goes on."""
    desk = foreman_desk
    await desk.ask("Writer", 'call notified {"query": "say hold end"}')
    await until_noted(desk, "Writer", "global")
    assert await desk.client.runs.clear(desk.session_id("Writer")) == 1
    open_gate(desk, "end", "Writer")
    turn = await asyncio.wait_for(desk.ask("Writer", "say alive"), 20)
    assert turn.status == "completed"
    assert [message.text for message in await desk.messages("Writer") if message.role == "user"][1:] == ["say alive"]


async def test_cl_09_a_callback_is_not_called_for_a_run_that_was_cleared_during_the_hook(foreman_desk: Desk) -> None:
    """CL-09: suppressed."""
    desk = foreman_desk
    await desk.ask("Attentive", start("r", "say hold end"))
    await until_noted(desk, "Attentive", "global")
    assert await desk.client.runs.clear(desk.session_id("Attentive")) == 1
    open_gate(desk, "end", "Attentive")
    await desk.ask("Attentive", "say alive")
    assert noted(desk, "Attentive", "done") == []


async def test_cl_06_two_clears_at_once_both_succeed(foreman_desk: Desk) -> None:
    """CL-06: each run is removed by one of them."""
    desk = foreman_desk
    for number in range(4):
        await desk.ask("Foreman", start(f"r{number}", pause(desk)))
    session_id = desk.session_id("Foreman")
    await asyncio.gather(*(desk.client.runs.clear(session_id) for _ in range(4)))
    assert await desk.client.runs.registered(session_id) == []
    assert noted(desk, "Foreman", "done") == []


async def test_dv_09_a_global_hook_that_fails_does_not_keep_the_callback_back(foreman_desk: Desk) -> None:
    """DV-09, DV-08 as decided: the callback is called, the delivery is done."""
    desk = foreman_desk
    await desk.ask("Attentive", start("r", "say stumble"))
    (done,) = await until_noted(desk, "Attentive", "done")
    await until_settled(desk, "Attentive", "r")
    assert done["status"] == "completed"
    keys = [note["key"] for note in noted(desk, "Attentive", "global")]
    assert len(keys) > 1
    assert len(set(keys)) == 1


async def test_bu_03_a_run_that_reports_within_its_window_is_left_alone(
    foreman_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BU-03, BU-10 as decided: every report is a sign of life, also of a run so old that few of them become signals."""
    desk = foreman_desk
    monkeypatch.setattr(progress_reports, "FIRST_SIGNAL_INTERVAL", timedelta(seconds=5))  # As after eight minutes.
    await desk.ask("Foreman", start("busy", 'call tick {"seconds": 7, "every": 0.1}', silence=2))
    (done,) = await until_noted(desk, "Foreman", "done")
    assert (done["status"], done["reason"]) == ("completed", None)


async def test_nt_08_an_empty_text_is_no_notice(foreman_desk: Desk) -> None:
    """NT-08: nothing is added, and the delivery is done; a text of the agent's own is the notice."""
    desk = foreman_desk
    await desk.ask("Writer", 'call notified {"query": "say hush"}')
    await until_settled(desk, "Writer", "1-0-0")
    await desk.ask("Writer", 'call notified {"query": "say aloud"}')
    messages = await eventually(
        lambda: desk.messages("Writer"), lambda found: found[-1].text == "heard of 2-0-0: completed"
    )
    assert [message.id for message in messages if message.id.startswith("detached")] == [
        "detached-finish:2-0-0:completed"
    ]


async def _exists(desk: Desk, workflow_id: str) -> bool:
    try:
        await desk.temporal.get_workflow_handle(workflow_id).describe()
    except RPCError:
        return False
    return True
