"""What an instance remembers beside its conversation."""

import json

import pytest
from desk import Desk, eventually
from model_server import ModelServer

from turnkeeper import names
from turnkeeper.errors import InvalidRequest, TooLarge
from turnkeeper.turns import MAX_STATE_BYTES, SetStateInput


async def test_a_state_lasts_from_turn_to_turn(desk: Desk, model_server: ModelServer) -> None:
    """Section 6, State: the whole value is replaced; the next object of the agent sees it, in its instructions too."""
    assert await desk.client.state("Keeper", desk.name) == {"told": []}
    await desk.ask("Keeper", 'call remember {"text": "one"}')
    await desk.ask("Keeper", 'call remember {"text": "two"}')
    (call,) = (await desk.last("Keeper")).tool_parts
    assert call.output == {"told": ["one", "two"]}
    assert await desk.client.state("Keeper", desk.name) == {"told": ["one", "two"]}
    assert model_server.requests[-1].messages[0]["content"] == "You remember {'told': ['one', 'two']}."


async def test_dv_15_a_callback_sets_the_state(desk: Desk) -> None:
    """DV-15: also outside a turn."""
    await desk.ask("Keeper", 'call errand {"query": "say fetched"}')
    found = await eventually(lambda: desk.client.state("Keeper", desk.name), lambda state: state != {"told": []})
    assert found == {"told": ["fetched"]}


async def test_a_run_keeps_no_state(desk: Desk) -> None:
    """It is one turn: it sees the initial state, and is told why it cannot set another."""
    query = json.dumps({"query": 'call remember {"text": "nested"}'})
    await desk.ask("Keeper", f"call nested {query}")
    run = await desk.client.runs.messages(desk.session_id("Keeper"), ("1-0-0",))
    (call,) = run[-1].tool_parts
    assert call.output == {"refused": "a run is one turn and keeps no state; set that of the instance above it"}
    assert await desk.client.state("Keeper", desk.name) == {"told": []}


async def test_a_state_that_cannot_be_kept_is_refused(desk: Desk) -> None:
    """And the one before it stays."""
    await desk.ask("Keeper", 'call remember {"text": "kept"}')
    await desk.ask("Keeper", f"call remember {json.dumps({'text': 'x' * 1000, 'copies': 300})}")
    (call,) = (await desk.last("Keeper")).tool_parts
    assert isinstance(call.output, dict)
    assert "over the limit of 262,144" in str(call.output["refused"])
    with pytest.raises(TooLarge):
        await desk.client.set_state("Keeper", desk.name, "x" * MAX_STATE_BYTES)
    with pytest.raises(InvalidRequest):
        await desk.client.set_state("Keeper", desk.name, float("nan"))
    assert await desk.client.state("Keeper", desk.name) == {"told": ["kept"]}


async def test_the_same_request_sets_the_state_once(desk: Desk) -> None:
    """Design, section 3: a request that comes twice around a continue-as-new must not undo what came between."""
    await desk.ask("Keeper", "say hello")
    first = SetStateInput(request_id="first", value=1)
    for request in (first, SetStateInput(request_id="second", value=2), first):
        await desk.temporal.get_workflow_handle(desk.session_id("Keeper")).execute_update(names.SET_STATE, request)
    assert await desk.client.state("Keeper", desk.name) == 2
