"""Agent tools that the model chooses: fan-out, outputs, failures, depth, cap, hooks."""

import asyncio
import json
from typing import Any

from desk import Desk, eventually
from desk_agents import calls, gate
from model_server import ModelServer
from temporalio.client import WorkflowExecutionStatus

from turnkeeper import names


def research(*queries: str) -> str:
    """Return a message that makes the model research `queries` at once."""
    return "\n".join(f"call research {json.dumps({'query': query})}" for query in queries)


async def outputs(desk: Desk, agent_type: str = "Assistant") -> list[Any]:
    """Return the results of the last turn's tool calls."""
    return [part.output for part in (await desk.last(agent_type)).tool_parts]


async def test_aw_09_a_fan_out_gives_each_call_its_own_result_in_order(desk: Desk, model_server: ModelServer) -> None:
    """AW-09: runs grouped under their calls; RF-07: the model gets the summary."""
    turn = await desk.ask("Assistant", research("say a", "say b", "say c"))
    assert turn.status == "completed"
    assert await outputs(desk) == ["a", "b", "c"]
    rows = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert [(row.run_id, row.status, row.summary) for row in rows] == [
        ("1-0-0", "completed", "a"),
        ("1-0-1", "completed", "b"),
        ("1-0-2", "completed", "c"),
    ]
    assert {row.display.name for row in rows if row.display} == {"Researcher"}
    assert model_server.refusals == []


async def test_di_20_run_ids_come_from_turn_step_and_position(desk: Desk) -> None:
    """DI-20 as decided: a provider that reuses its call ids cannot confuse runs."""
    for _ in range(2):
        await desk.ask("Assistant", research("say x"))
    rows = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert [row.run_id for row in rows] == ["1-0-0", "2-0-0"]
    assert all(row.parent_tool_call_id for row in rows)


async def test_a_run_is_a_child_workflow_with_search_attributes_and_its_outcome(desk: Desk) -> None:
    """Design 3: the Temporal UI shows the truth at a glance."""
    turn = await desk.ask("Assistant", research("say x"))
    workflow_id = names.run_workflow_id(desk.session_id("Assistant"), "1-0-0")
    described = await desk.temporal.get_workflow_handle(workflow_id).describe()
    found = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert described.status == WorkflowExecutionStatus.COMPLETED
    assert described.parent_id == desk.turn_workflow_id("Assistant", turn)
    assert found[names.AGENT_ATTRIBUTE] == "Researcher"
    assert found[names.INSTANCE_ATTRIBUTE] == desk.session_id("Assistant")
    assert found[names.RUN_ID_ATTRIBUTE] == "1-0-0"
    assert found[names.OUTCOME_ATTRIBUTE] == "completed"
    assert await described.static_summary() == "Researcher: run 1-0-0 of Assistant"


async def test_rf_08_output_of_the_declared_type_is_what_the_model_gets(desk: Desk) -> None:
    """RF-08, IN-03: structured output, and a first message that the class wrote."""
    await desk.ask("Assistant", 'call extract {"query": "say fine"}')
    assert await outputs(desk) == [{"rows": 3}]
    messages = await desk.client.runs.messages(desk.session_id("Assistant"), ("1-0-0",))
    assert messages[0].id == "given-1-0-0"


async def test_rf_09_and_10_missing_or_wrong_output_is_a_failure_that_is_not_retryable(desk: Desk) -> None:
    """RF-09, RF-10 as decided: a failure, not an exception."""
    await desk.ask("Assistant", 'call nothing {"query": "say fine"}\ncall misread {"query": "say fine"}')
    missing, wrong = await outputs(desk)
    assert missing == {
        "ok": False,
        "status": "error",
        "error": "The sub-agent gave no structured output.",
        "retryable": False,
    }
    assert wrong["retryable"] is False
    assert "misread" in wrong["error"]


async def test_rf_18_a_class_may_write_its_own_summary(desk: Desk) -> None:
    """RF-18: summary and output are both kept."""
    await desk.ask("Assistant", 'call extract {"query": "say fine"}')
    inspection = await desk.client.runs.inspect(desk.session_id("Assistant"), ("1-0-0",))
    assert inspection is not None
    assert (inspection.output, inspection.summary) == ({"rows": 3}, "extracted {'rows': 3} after 'fine'")


async def test_rf_23_a_run_that_fails_leaves_its_sibling_alone(desk: Desk) -> None:
    """RF-23, field case 22: three results in call order, the failure structured."""
    lines = [research("say a"), 'call broken {"query": "x"}', research("refuse 401"), research("say d")]
    turn = await desk.ask("Assistant", "\n".join(lines))
    first, second, third, fourth = await outputs(desk)
    assert turn.status == "completed"
    assert (first, fourth) == ("a", "d")
    assert (second["ok"], second["status"], second["retryable"]) == (False, "error", False)
    assert "the formatter is broken" in second["error"]
    assert third["status"] == "error"
    failed = await desk.temporal.get_workflow_handle(
        names.run_workflow_id(desk.session_id("Assistant"), "1-0-1")
    ).describe()
    assert failed.status == WorkflowExecutionStatus.FAILED


async def test_field_25_a_run_at_its_step_limit_keeps_its_partial_text(desk: Desk) -> None:
    """Field case 25: an error of its own, within the child's own limit."""
    await desk.ask("Assistant", research('repeat 9 call add {"left": 1, "right": 1}'))
    (failure,) = await outputs(desk)
    assert "limit of 4 steps" in failure["error"]
    assert len(await desk.client.runs.messages(desk.session_id("Assistant"), ("1-0-0",))) == 2


async def test_ne_01_runs_nest_and_each_level_keeps_its_own_registry(desk: Desk) -> None:
    """NE-01, NE-02: three levels; drill-in goes through each parent's registry."""
    inner = research("say deep")
    await desk.ask("Assistant", f"call delegate {json.dumps({'query': inner})}")
    session_id = desk.session_id("Assistant")
    assert [row.run_id for row in await desk.client.runs.registered(session_id)] == ["1-0-0"]
    nested = await desk.client.runs.registered(session_id, ("1-0-0",))
    assert [(row.run_id, row.agent_type, row.summary) for row in nested] == [("0-0-0", "Researcher", "deep")]
    messages = await desk.client.runs.messages(session_id, ("1-0-0", "0-0-0"))
    assert messages[-1].text == "deep"


async def test_field_24_delegation_without_end_stops_at_the_depth_limit(desk: Desk) -> None:
    """Field case 24: a structured failure that the model can read, five levels down."""
    query = "say bottom"
    for _ in range(7):
        query = f"call delegate {json.dumps({'query': query})}"
    turn = await desk.ask("Assistant", query)
    path = tuple(["1-0-0"] + ["0-0-0"] * 4)
    rows = await desk.client.runs.registered(desk.session_id("Assistant"), path)
    assert turn.status == "completed"
    assert [row.status for row in rows] == ["error"]
    assert "nested 5 deep" in str(rows[0].error)


async def test_cc_02_a_run_over_the_cap_is_refused_and_not_queued(desk: Desk) -> None:
    """CC-02, CC-03, CC-06: two complete, one is refused; afterwards the slots are free again."""
    await desk.ask("Capped", research("say a", "say b", "say c"))
    first, second, third = await outputs(desk, "Capped")
    assert (first, second) == ("a", "b")
    assert "maxConcurrentAgentTools (2) exceeded" in third["error"]
    await desk.ask("Capped", research("say d", "say e"))
    assert await outputs(desk, "Capped") == ["d", "e"]


async def test_hooks_hear_of_every_start_and_end(desk: Desk) -> None:
    """DI-17, AW-06, RF-26: once each, the end before the caller goes on."""
    await desk.ask("Hooked", research("say a"))
    instance = desk.session_id("Hooked")
    assert [call for call in calls if instance in call] == [
        f"start {instance} 1-0-0 starting",
        f"finish {instance} 1-0-0 completed completed",
    ]


async def test_di_18_a_start_hook_that_fails_is_an_error_result_and_starts_nothing(desk: Desk) -> None:
    """DI-18 as decided: structured, the row closed."""
    await desk.ask("Hooked", research("refuse it"))
    (failure,) = await outputs(desk, "Hooked")
    (row,) = await desk.client.runs.registered(desk.session_id("Hooked"))
    assert "the start hook refuses" in failure["error"]
    assert (row.status, row.completed_at is not None) == ("error", True)


async def test_aw_07_a_finish_hook_that_fails_never_changes_the_result(desk: Desk) -> None:
    """AW-07 as decided: tried four times, then let be."""
    await desk.ask("Hooked", research("say stumble"))
    assert await outputs(desk, "Hooked") == ["stumble"]
    assert sum(f"finish {desk.session_id('Hooked')}" in call for call in calls) == 4


async def test_field_23_cancelling_a_turn_aborts_its_runs_at_every_depth(desk: Desk) -> None:
    """Field case 23, CX-02: the awaited subtree ends, with the reason."""
    inner = research(f"call wait {json.dumps({'name': desk.name})}")
    turn = await desk.submit("Assistant", f"call delegate {json.dumps({'query': inner})}")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    await desk.client.cancel_turn("Assistant", desk.name, turn.turn_id, "enough")
    ended = await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)
    session_id = desk.session_id("Assistant")
    (outer,) = await desk.client.runs.registered(session_id)
    (nested,) = await desk.client.runs.registered(session_id, ("1-0-0",))
    assert (ended.status, ended.error) == ("aborted", "enough")
    assert (outer.status, outer.error) == ("aborted", "enough")
    assert (nested.status, nested.error) == ("aborted", "enough")
    await eventually(lambda: _noted(f"cancelled {desk.name}"), bool)


async def test_cx_13_cancelling_one_run_gives_its_parent_an_aborted_failure(desk: Desk) -> None:
    """CX-13, field case 23: the turn goes on with its own history."""
    waiting = f"call wait {json.dumps({'name': desk.name})}"
    turn = await desk.submit("Assistant", research(waiting, "say other"))
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    session_id = desk.session_id("Assistant")
    await desk.client.runs.cancel(session_id, ("1-0-0",), "not that one")
    ended = await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)
    aborted, other = await outputs(desk)
    (row, _) = await desk.client.runs.registered(session_id)
    assert ended.status == "completed"
    assert (aborted["error"], row.error) == ("not that one", "not that one")
    assert (aborted["status"], aborted["retryable"], other) == ("aborted", False, "other")
    await desk.client.runs.cancel(session_id, ("1-0-0",), "again")


async def test_field_02_a_registry_shows_a_run_while_its_turn_goes_on(desk: Desk) -> None:
    """IC-21: what a running child has is readable at once."""
    turn = await desk.submit("Assistant", research(f"call wait {json.dumps({'name': desk.name})}"))
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    (row,) = await desk.client.runs.registered(desk.session_id("Assistant"))
    inspection = await desk.client.runs.inspect(desk.session_id("Assistant"), ("1-0-0",))
    messages = await desk.client.runs.messages(desk.session_id("Assistant"), ("1-0-0",))
    gate(desk.name).set()
    await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)
    assert row.status == "running"
    assert inspection is not None
    assert inspection.status == "running"
    assert messages[-1].tool_parts[0].state == "input-available"


async def _noted(text: str) -> bool:
    await asyncio.sleep(0)
    return text in calls
