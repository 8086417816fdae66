"""Values of a size that Temporal or a model would not take."""

import asyncio
import json

from desk import Desk, kinds
from foremen import until_noted
from model_server import ModelServer

from activities.large_values import LARGEST_SHOWN

FAN_OUT = 20
INPUT = 250_000
"""Bytes: so large that 20 pass Temporal's request limit of 4 MiB, and small enough to stay in the history."""


async def test_field_04_a_fan_out_whose_inputs_pass_the_request_limit_together_runs(foreman_desk: Desk) -> None:
    """Field case 4 b: 20 runs with 250 KB of input each, 5 MB in all; the session survives."""
    desk = foreman_desk
    asked = json.dumps({"count": FAN_OUT, "query": "x" * INPUT})
    turn = await asyncio.wait_for(desk.ask("Foreman", f"call start_many {asked}"), 120)
    notes = await until_noted(desk, "Foreman", "done", FAN_OUT, seconds=90)
    assert turn.status == "completed"
    assert [note["status"] for note in notes] == ["completed"] * FAN_OUT
    assert kinds(await desk.history(desk.session_id("Foreman")))["WORKFLOW_TASK_FAILED"] == 0


async def test_field_04_a_long_result_reaches_the_model_shortened_and_people_whole(
    desk: Desk, model_server: ModelServer
) -> None:
    """Field case 4 a: the paid model call is not repeated."""
    turn = await desk.ask("Clerk", 'call fill {"size": 500000}')
    shown = json.loads(model_server.requests[-1].messages[-1]["content"])
    (call,) = (await desk.last("Clerk")).tool_parts
    assert turn.status == "completed"
    assert len(model_server.requests) == 2
    assert shown["note"]["characters"] == len(str(call.output)) == 500_000
    assert len(json.dumps(shown)) <= LARGEST_SHOWN
