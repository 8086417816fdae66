"""The ends of detached runs are posted to people outside, beside everything else."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from desk import Desk, eventually, read_patience
from desk_agents import gate
from desk_script import start_afresh
from model_server import ModelServer
from restless import executions, restless_server
from starlette.responses import Response
from webhook_receiver import Receiver

from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.detached import Detached, options_of
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.event_log.entries import EventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import DeliveryInfo
from turnkeeper.settings import Settings
from workflows import webhooks


async def dispatch(desk: Desk, url: str, query: str, run_id: str = "r", **more: Any) -> None:
    """Start a detached run from outside."""
    registry = desk.client.registry
    options = options_of(registry.get("Dispatching"), Detached(webhook=url, **more))
    profile = registry.profile("Surveyor")
    request = DispatchRunInput(run_id=run_id, profile=profile, input={"query": query}, detached=options)
    await desk.client.runs.dispatch(desk.session_id("Dispatching"), registry.profile("Dispatching"), request)


async def posting(desk: Desk, run_id: str = "r", slot: str = "finish") -> DeliveryInfo | None:
    """Return how far the posting of a run's end has come."""
    info = await desk.client.runs.info(desk.session_id("Dispatching"), (run_id,))
    return next((told for told in info.deliveries or () if (told.to, told.slot) == ("webhook", slot)), None)


def body(receiver: Receiver, number: int = 0) -> dict[str, Any]:
    """Return what was posted."""
    found: dict[str, Any] = json.loads(receiver.posts[number].body)
    return found


async def test_an_end_is_posted_once(desk: Desk, receiver: Receiver) -> None:
    """Issue C, item 8: beside the callback, with an id of the event's own."""
    await dispatch(desk, receiver.url, "say one", on_finish="on_done")
    found = await eventually(lambda: posting(desk), lambda told: told is not None and told.status == "delivered")
    assert found == DeliveryInfo(to="webhook", slot="finish", status="delivered", attempts=1)
    assert body(receiver)["type"] == "agent_tool_run.completed"
    assert body(receiver)["data"]["result"] == {
        "runId": "r",
        "agentType": "Surveyor",
        "status": "completed",
        "summary": "one",
    }
    assert body(receiver)["data"]["instance"] == desk.session_id("Dispatching")
    assert len(receiver.posts) == 1


async def test_a_post_that_fails_is_made_again_with_the_same_id(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visible meanwhile."""
    monkeypatch.setattr(webhooks, "RETRY_PAUSES", (timedelta(seconds=1),) * 3)
    receiver.answer = lambda number: Response(status_code=500 if number < 3 else 204)
    await dispatch(desk, receiver.url, "say one")
    opened = await eventually(lambda: posting(desk), lambda told: told is not None and told.status == "open")
    found = await eventually(lambda: posting(desk), lambda told: told is not None and told.status == "delivered")
    assert opened is not None
    assert opened.error == "The receiver answered with HTTP 500."
    assert found is not None
    assert found.attempts == 3
    assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1


async def test_a_post_that_nobody_takes_is_a_visible_dead_letter(
    desk: Desk, receiver: Receiver, event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the row, and as an event."""
    monkeypatch.setattr(webhooks, "RETRY_PAUSES", (timedelta(milliseconds=100),))
    receiver.answer = lambda number: Response(status_code=404)
    await dispatch(desk, receiver.url, "say one")
    found = await eventually(lambda: posting(desk), lambda told: told is not None and told.status == "dead")

    async def events() -> list[Any]:
        entries = await event_log.read(desk.session_id("Dispatching"), limit=500)
        return [entry.body for entry in entries if entry.kind == "event"]

    (event,) = await eventually(events, bool)
    assert found == DeliveryInfo(
        to="webhook", slot="finish", status="dead", attempts=2, error="The receiver answered with HTTP 404."
    )
    assert event["type"] == "agent_tool:webhook:dead_letter"
    assert (event["payload"]["runId"], event["payload"]["attempts"]) == ("r", 2)


async def test_a_receiver_that_hangs_holds_up_neither_turns_nor_callbacks(desk: Desk, receiver: Receiver) -> None:
    """It is posted to beside the inbox."""
    receiver.holds = asyncio.Event()
    await dispatch(desk, receiver.url, "say one", on_finish="on_done")
    await eventually(lambda: _count(receiver), bool)
    turn = await desk.ask("Dispatching", "say meanwhile")
    info = await desk.client.runs.info(desk.session_id("Dispatching"), ("r",))
    receiver.holds.set()
    assert turn.status == "completed"
    assert [told.status for told in info.deliveries or () if told.to == "agent"] == ["delivered"]


async def test_a_give_up_is_posted_too(desk: Desk, receiver: Receiver) -> None:
    """DV-04: each end is an event of its own."""
    query = f"call pause {json.dumps({'name': desk.name})}"
    await dispatch(desk, receiver.url, query, max_budget=timedelta(seconds=1))
    await eventually(
        lambda: posting(desk, slot="give_up"), lambda told: told is not None and told.status == "delivered"
    )
    gate(desk.name).set()
    assert body(receiver)["type"] == "agent_tool_run.interrupted"
    assert body(receiver)["data"]["result"]["reason"] == "budget-exceeded"


async def _count(receiver: Receiver) -> int:
    return len(receiver.posts)


async def test_a_continue_as_new_posts_again_what_it_cut_off(
    registry: AgentRegistry,
    models: ModelClient,
    event_writer: EventWriter,
    settings: Settings,
    model_server: ModelServer,
    receiver: Receiver,
) -> None:
    """A receiver that hangs does not put it off, and knows the repeat by its id."""
    start_afresh(model_server)
    receiver.holds = asyncio.Event()
    async with restless_server(60, registry, models, event_writer, settings) as temporal:
        desk = Desk(TurnkeeperClient(temporal, registry, query_patience=read_patience(settings)), temporal)
        await dispatch(desk, receiver.url, "say one")
        await eventually(lambda: _count(receiver), bool)
        for number in range(8):
            await desk.ask("Dispatching", f"say {number}")
        executed = await executions(temporal, desk.session_id("Dispatching"))
        receiver.holds.set()
        await eventually(lambda: posting(desk), lambda told: told is not None and told.status == "delivered")
    assert executed > 1
    assert len(receiver.posts) > 1
    assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1
