"""Run ids: dispatch inside tools and from outside, again and again (conformance DI)."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest
from desk import Desk, eventually
from desk_agents import calls, gate
from model_server import ModelServer
from temporalio.service import RPCError

from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput, DispatchRunResult
from turnkeeper.errors import Conflict
from turnkeeper.runs import input_digest


async def dispatch(desk: Desk, run_id: str, value: Any, agent: str = "Researcher", at: str = "Assistant") -> Any:
    """Dispatch a run from outside."""
    registry = desk.client.registry
    request = DispatchRunInput(run_id=run_id, profile=registry.profile(agent), input=value)
    return await desk.client.runs.dispatch(desk.session_id(at), registry.profile(at), request)


async def output(desk: Desk) -> Any:
    """Return the result of the last turn's only call."""
    (part,) = (await desk.last("Assistant")).tool_parts
    return part.output if part.error_text is None else part.error_text


def named_run(run_id: str, query: str) -> str:
    """Return a message that makes the model call the tool that takes a run id."""
    return f"call named_run {json.dumps({'run_id': run_id, 'query': query})}"


async def test_di_01_a_tools_runs_have_generated_ids_that_a_retry_meets_again(desk: Desk) -> None:
    """DI-01: 12 characters; and each of two runs under one call has its own, in display order."""
    await desk.ask("Assistant", 'call compare {"left": "say l", "right": "say r"}')
    rows = await desk.client.runs.registered(desk.session_id("Assistant"))
    assert [result["summary"] for result in await output(desk)] == ["l", "r"]
    assert sorted(row.display_order for row in rows) == [0, 1]
    assert {len(row.run_id) for row in rows} == {12}
    key = f"{desk.session_id('Assistant')}/turns/1/0/0"
    work = [f"Researcher/{input_digest({'query': query})}" for query in ("say l", "say r")]
    assert {row.run_id for row in rows} == {names.generated_run_id(key, each, 1) for each in work}


async def test_di_05_the_same_run_id_gives_the_stored_result_and_starts_nothing(
    desk: Desk, model_server: ModelServer
) -> None:
    """DI-05: within a turn, from a later turn, and from outside."""
    await desk.ask("Assistant", f"{named_run('r', 'say once')}\n{named_run('r', 'say once')}")
    answers = [part.output for part in (await desk.last("Assistant")).tool_parts]
    assert answers[0] == answers[1]
    await desk.ask("Assistant", named_run("r", "say once"))
    assert await output(desk) == answers[0]
    dispatched = await dispatch(desk, "r", {"query": "say once"})
    assert dispatched.result is None or dispatched.result.summary == "once"
    result = await desk.client.runs.wait(desk.session_id("Assistant"), ("r",))
    assert result.summary == "once"
    messages = await desk.client.runs.messages(desk.session_id("Assistant"), ("r",))
    assert [message.role for message in messages] == ["user", "assistant"]


async def test_di_06_structured_output_is_the_same_the_second_time(desk: Desk) -> None:
    """DI-06: deep-equal, although a registry keeps no outputs."""
    for _ in range(2):
        await dispatch(desk, "x", {"query": "say fine"}, agent="Extractor")
        result = await desk.client.runs.wait(desk.session_id("Assistant"), ("x",))
        assert result.output == {"rows": 3}


async def test_di_09_a_run_that_goes_on_is_joined_and_not_started_again(desk: Desk) -> None:
    """DI-09, field case 8: dispatched from outside, joined by a turn."""
    query = f"call wait {json.dumps({'name': desk.name})}"
    await dispatch(desk, "joined", {"query": query})
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    turn = await desk.submit("Assistant", named_run("joined", query))
    session_id = desk.session_id("Assistant")
    await eventually(lambda: desk.client.turn("Assistant", desk.name, turn.turn_id), lambda it: it.status == "running")
    gate(desk.name).set()
    assert (await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)).status == "completed"
    assert (await output(desk))["status"] == "completed"
    assert calls.count(f"wait {desk.name}") == 1
    assert [row.run_id for row in await desk.client.runs.registered(session_id)] == ["joined"]


async def test_di_10_cancelling_a_turn_that_joined_a_run_cancels_the_run(desk: Desk) -> None:
    """DI-10 as decided: a re-issued run honours its caller's cancellation like a fresh one."""
    query = f"call wait {json.dumps({'name': desk.name})}"
    await dispatch(desk, "joined", {"query": query})
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    turn = await desk.submit("Assistant", named_run("joined", query))
    turn_id = desk.turn_workflow_id("Assistant", turn)

    async def is_following() -> bool:
        try:
            described = await desk.temporal.get_workflow_handle(turn_id).describe()
        except RPCError:
            return False
        return any(it.activity_type.name == "attach_run" for it in described.raw_description.pending_activities)

    await eventually(is_following, bool)
    await desk.client.cancel_turn("Assistant", desk.name, turn.turn_id, "no more")
    result = await desk.client.runs.wait(desk.session_id("Assistant"), ("joined",))
    assert (result.status, result.error) == ("aborted", "no more")
    assert (await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)).status == "aborted"


async def test_field_08_one_run_id_dispatched_twice_at_once_is_one_run(desk: Desk, model_server: ModelServer) -> None:
    """Field case 8: every caller gets the same outcome, and one child turn was taken."""
    marker = uuid4().hex
    await asyncio.gather(*(dispatch(desk, "twice", {"query": f"say {marker}"}) for _ in range(5)))
    results = await asyncio.gather(*(desk.client.runs.wait(desk.session_id("Assistant"), ("twice",)) for _ in range(5)))
    assert {result.summary for result in results} == {marker}
    assert sum(marker in str(request.messages) for request in model_server.requests) == 1


@pytest.mark.parametrize(("agent", "query"), [("Extractor", "say one"), ("Researcher", "say two")])
async def test_di_16_another_agent_or_input_under_a_run_id_is_a_conflict(desk: Desk, agent: str, query: str) -> None:
    """DI-16 as decided: never the old result; told apart in the session's registry."""
    await dispatch(desk, "taken", {"query": "say one"})
    with pytest.raises(Conflict, match="taken"):
        await dispatch(desk, "taken", {"query": query}, agent=agent)


async def test_di_16_a_turn_that_reuses_an_older_run_id_with_another_input_is_told_so(desk: Desk) -> None:
    """DI-16: also where only Temporal remembers the run."""
    await desk.ask("Assistant", named_run("old", "say one"))
    await desk.ask("Assistant", named_run("old", "say two"))
    assert "taken" in str(await output(desk))


async def test_di_15_a_refused_run_id_may_be_dispatched_again(desk: Desk) -> None:
    """DI-15, CC-05: runs from outside hold slots too."""
    waiting = {"query": f"call wait {json.dumps({'name': desk.name})}"}
    for run_id in ("a", "b"):
        await dispatch(desk, run_id, waiting, at="Capped")
    refused: DispatchRunResult = await dispatch(desk, "c", {"query": "say c"}, at="Capped")
    again_while_full: DispatchRunResult = await dispatch(desk, "a", waiting, at="Capped")
    gate(desk.name).set()
    session_id = desk.session_id("Capped")
    for run_id in ("a", "b"):
        await desk.client.runs.wait(session_id, (run_id,))
    await eventually(
        lambda: desk.client.runs.registered(session_id),
        lambda rows: all(row.status == "completed" for row in rows if row.run_id != "c"),
    )
    accepted: DispatchRunResult = await dispatch(desk, "c", {"query": "say c"}, at="Capped")
    result = await desk.client.runs.wait(session_id, ("c",))
    assert refused.refused
    assert not again_while_full.refused
    assert not accepted.refused
    assert result.summary == "c"


async def test_di_14_a_run_that_exists_is_given_although_the_cap_is_full(desk: Desk) -> None:
    """DI-14: from a tool and from outside; the row of the run stays as it is."""
    waiting = json.dumps({"query": f"call wait {json.dumps({'name': desk.name})}"})
    await desk.ask("Capped", named_run("old", "say once"))
    turn = await desk.submit(
        "Capped", f"call research {waiting}\ncall research {waiting}\n{named_run('old', 'say once')}"
    )
    await eventually(lambda: _count(f"wait {desk.name}"), lambda count: count == 2)
    dispatched: DispatchRunResult = await dispatch(desk, "old", {"query": "say once"}, at="Capped")
    gate(desk.name).set()
    assert (await desk.client.wait_for_turn("Capped", desk.name, turn.turn_id)).status == "completed"
    (part,) = [part for part in (await desk.last("Capped")).tool_parts if part.tool_name == "named_run"]
    rows = await desk.client.runs.registered(desk.session_id("Capped"))
    assert isinstance(part.output, dict)
    assert (part.output["status"], part.output["summary"]) == ("completed", "once")
    assert not dispatched.refused
    assert [(row.status, row.summary) for row in rows if row.run_id == "old"] == [("completed", "once")]


async def test_di_25_a_run_needs_no_turn_and_its_end_reaches_the_registry_and_the_hook(desk: Desk) -> None:
    """DI-25: dispatched from outside; the finish hook hears of it once."""
    await dispatch(desk, "solo", {"query": "say solo"}, at="Hooked")
    session_id = desk.session_id("Hooked")
    result = await desk.client.runs.wait(session_id, ("solo",))
    await eventually(lambda: _noted(f"finish {session_id} solo completed completed"), bool)
    (row,) = await desk.client.runs.registered(session_id)
    assert (result.summary, row.status, row.summary) == ("solo", "completed", "solo")
    assert [call for call in calls if session_id in call] == [
        f"start {session_id} solo starting",
        f"finish {session_id} solo completed completed",
    ]


async def test_a_run_that_an_operator_terminates_is_not_shown_as_running(desk: Desk) -> None:
    """Design 8: it cannot report its own end, so its session notes it."""
    await dispatch(desk, "killed", {"query": f"call wait {json.dumps({'name': desk.name})}"}, at="Hooked")
    await eventually(lambda: _noted(f"wait {desk.name}"), bool)
    session_id = desk.session_id("Hooked")
    await desk.temporal.get_workflow_handle(f"{session_id}/runs/killed").terminate()
    await eventually(lambda: _noted(f"finish {session_id} killed error error"), bool)
    (row,) = await desk.client.runs.registered(session_id)
    assert (row.status, row.error) == ("error", "The sub-agent was terminated by an operator.")


async def _noted(text: str) -> bool:
    return text in calls


async def _count(text: str) -> int:
    return calls.count(text)
