"""The feed of live events: whole, in order, resumable, for any number of readers."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from desk_script import start_afresh
from model_server import ModelServer
from served import Json, Received, received, served
from temporalio.client import Client

from api.app import create_app
from turnkeeper.event_log.entries import EventLog, NewEntry
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings

COMPARE = 'call compare {"left": "say l", "right": "say r"}'


@pytest.fixture
async def address(
    temporal: Client, registry: AgentRegistry, settings: Settings, running_worker: None, model_server: ModelServer
) -> AsyncIterator[str]:
    """The address of the API."""
    start_afresh(model_server)
    async with served(create_app(settings, temporal, registry)) as url:
        yield url


@pytest.fixture
def instance() -> str:
    """The path of an instance that nobody else uses."""
    return f"/agents/Assistant/{uuid4().hex[:12]}"


def is_last(event: Received) -> bool:
    """Tell whether an event is a turn's end."""
    return event.json["type"] == "turn-event" and event.json["event"]["kind"] in ("finished", "error", "aborted")


async def read(
    url: str, last_id: int | str | None = None, until: Callable[[Received], bool] = is_last, **query: Any
) -> list[Received]:
    """Return the events of a feed until one that `until` is true of, or until the stream ends."""
    headers = {} if last_id is None else {b"Last-Event-ID": str(last_id).encode()}
    found: list[Received] = []
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"{url}/events", headers=headers, params=query) as answer,
    ):
        assert answer.status_code == 200, answer.status_code
        async for event in received(answer):
            found.append(event)
            if until(event):
                break
    return found


async def ask(url: str, text: str) -> Json:
    """Submit a message and return its turn when it has ended."""
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{url}/turns?wait=true", json={"message": text})
        assert answer.status_code == 200, answer.text
        turn: Json = answer.json()
        return turn


def ids_are(*ids: int) -> Callable[[Received], bool]:
    """Return what tells whether an event has one of some ids."""
    return lambda event: event.id in ids


def without_replay(events: list[Received]) -> list[tuple[int | None, Json]]:
    """Return events without the mark that they were there before their reader."""
    return [(event.id, {key: value for key, value in event.json.items() if key != "replay"}) for event in events]


def entry(instance: str, number: int, text: str = "x") -> NewEntry:
    """Return an entry of a turn."""
    source = f"default{instance.removeprefix('/agents')}/turns/1"
    body = {"type": "text-delta", "id": "t", "delta": text}
    return NewEntry(source=source, key=f"{source}#{number}", kind="chunk", body=body, at=datetime.now(UTC))


async def test_field_27_a_client_cut_at_any_event_misses_and_doubles_nothing(address: str, instance: str) -> None:
    """Issue B, field case 27, EV-12: from each id the rest, the same frames live and replayed."""
    url = address + instance
    live = asyncio.create_task(read(url))
    await ask(url, COMPARE)
    whole = await live
    assert [event.id for event in whole] == list(range(1, len(whole) + 1))
    assert len({event.json["source"] for event in whole}) == 3
    for place, event in enumerate(whole[:-1], start=1):
        rest = await read(url, last_id=event.id)
        assert without_replay(rest) == without_replay(whole[place:])
        assert all(again.json["replay"] is True for again in rest)


async def test_ev_09_each_run_begins_first_and_ends_last(address: str, instance: str) -> None:
    """EV-01, EV-02, EV-09: `started` 0, one more for each frame, the end last; the call on every frame."""
    url = address + instance
    await ask(url, COMPARE)
    frames = [event.json for event in await read(url)]
    calls = {frame.get("parentToolCallId") for frame in frames if frame["type"] == "agent-tool-event"}
    assert len(calls) == 1
    assert None not in calls
    for source in {frame["source"] for frame in frames}:
        own = [frame for frame in frames if frame["source"] == source]
        assert [frame["sequence"] for frame in own] == list(range(len(own)))
        assert (own[0]["event"]["kind"], own[-1]["event"]["kind"]) == ("started", "finished")


async def test_a_feed_goes_on_over_a_restart_of_the_api(
    address: str, instance: str, temporal: Client, registry: AgentRegistry, settings: Settings
) -> None:
    """Field case 27: numbers go on upward."""
    await ask(address + instance, "say one")
    before = await read(address + instance)
    async with served(create_app(settings, temporal, registry)) as restarted:
        await ask(restarted + instance, "say two")
        after = await read(restarted + instance, last_id=before[-1].id)
    assert [event.id for event in (*before, *after)] == list(range(1, len(before) + len(after) + 1))


async def test_a_feed_can_be_narrowed_to_a_run_and_to_kinds(address: str, instance: str) -> None:
    """Issue B: filters by run and kind; the feed of a run ends with it, for good."""
    url = address + instance
    nested = 'call delegate {"query": "call research {\\"query\\": \\"say deep\\"}"}'
    await ask(url, nested)
    own = await read(url, run="1-0-0")
    sources = {event.json["source"].rpartition("1-0-0")[2] for event in own}
    ends = await read(url, kind=["run"], until=lambda event: event.json["event"].get("summary") == "done: deep")
    async with httpx.AsyncClient() as client:
        again = await client.get(f"{url}/events?run=1-0-0", headers={"Last-Event-ID": str(own[-1].id)})
        unknown = await client.get(f"{url}/events?run=nobody")
    assert sources == {"", "/runs/0-0-0"}
    assert own[-1].json["event"] == {"kind": "finished", "runId": "1-0-0", "summary": "done: deep"}
    assert [event.json["event"]["kind"] for event in ends] == ["started", "started", "finished", "finished"]
    assert {event.json["event"]["runId"] for event in own} == {"1-0-0", "1-0-0/runs/0-0-0"}
    assert again.status_code == 204
    assert unknown.status_code == 404


@pytest.mark.parametrize("last_id", ["junk", "-1", "999999", "1.5", "٣"])
async def test_field_27_an_id_that_is_none_is_answered_with_a_resync_and_everything(
    address: str, instance: str, last_id: str
) -> None:
    """Field case 27: an explicit mark, then the whole."""
    url = address + instance
    await ask(url, "say one")
    first, *rest = await read(url, last_id=last_id)
    assert first.json == {"type": "resync", "reason": "unknown"}
    assert [event.id for event in rest] == list(range(1, len(rest) + 1))


async def test_the_feed_of_an_ended_run_ends_although_its_log_was_lost(
    address: str, instance: str, event_log: EventLog
) -> None:
    """Field case 27: rejoining a finished run does not hang; Temporal knows that it has ended."""
    url = address + instance
    await ask(url, 'call research {"query": "say one"}')
    await event_log.trim(datetime.now(UTC))
    snapshot, *rest = await read(url, run="1-0-0")
    assert [run["status"] for run in snapshot.json["runs"]] == ["completed"]
    assert rest == []


async def test_field_27_an_id_that_is_too_old_is_answered_with_a_snapshot(
    address: str, instance: str, event_log: EventLog
) -> None:
    """Field case 27: how the instance stands by Temporal, and what the log still holds."""
    url = address + instance
    await ask(url, 'call research {"query": "say one"}')
    await event_log.trim(datetime.now(UTC))
    await ask(url, "say two")
    resync, snapshot, *rest = await read(url, last_id=3)
    fresh, *_ = await read(url)
    assert resync.json == {"type": "resync", "reason": "too-old"}
    assert [run["runId"] for run in snapshot.json["runs"]] == ["1-0-0"]
    assert [turn["status"] for turn in snapshot.json["turns"]] == ["completed", "completed"]
    assert rest[0].json["event"]["kind"] == "started"
    assert fresh.json["type"] == "snapshot"


async def test_field_27_fifty_clients_come_and_go_and_each_sees_everything_once(
    address: str, instance: str, event_log: EventLog
) -> None:
    """Field case 27: 500 events, clients that join at random moments, drop, and come back."""
    url, seed = address + instance, random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    total = 500

    async def follow(joins_at: int) -> list[int | None]:
        await until_logged(event_log, instance, joins_at)
        seen: list[int | None] = []
        while len(seen) < total:
            drop_after = chance.randint(1, total)
            last = seen[-1] if seen else None
            found = await read(url, last_id=last, until=ids_are(total, (last or 0) + drop_after))
            seen.extend(event.id for event in found)
        return seen

    clients = [asyncio.create_task(follow(chance.randint(0, total))) for _ in range(50)]
    for number in range(total):
        await event_log.append([entry(instance, number)])
    for seen in await asyncio.gather(*clients):
        assert seen == list(range(1, total + 1))


async def until_logged(log: EventLog, instance: str, count: int) -> None:
    """Wait until a log holds so many entries."""
    name = f"default{instance.removeprefix('/agents')}"
    position = 0
    while position < count:
        news = await log.wait({name: position}, timedelta(seconds=10))
        position = news[name][-1].id


async def test_field_28_a_client_that_does_not_read_holds_nobody_up(
    address: str, instance: str, event_log: EventLog
) -> None:
    """Field case 28: it is told to resume, and misses nothing; another client gets everything meanwhile."""
    url = address + instance
    await event_log.append([entry(instance, 0)])
    async with httpx.AsyncClient(timeout=60) as client, client.stream("GET", f"{url}/events") as idle:
        events = received(idle)
        first = await anext(events)
        total = 6_000
        reading = asyncio.create_task(read(url, until=ids_are(total)))
        for number in range(1, total, 100):
            numbers = range(number, min(number + 100, total))
            await event_log.append([entry(instance, each, "y" * 2_000) for each in numbers])
        quick = await reading
        while quick[-1].id is None:
            # Told to resume as well: this one process is client and server at once.
            last_id = quick[-2].id
            quick = [*quick[:-1], *await read(url, last_id=last_id, until=ids_are(total))]
        slow = [first, *[event async for event in events]]
    told = slow.pop()
    rest = await read(url, last_id=slow[-1].id, until=ids_are(total))
    assert [event.id for event in quick] == list(range(1, total + 1))
    assert told.json == {"type": "resync", "reason": "too-slow"}
    assert [event.id for event in (*slow, *rest)] == list(range(1, total + 1))


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb\rc", "\ndata: forged\n\n", "\u2028\u2029\x00\x0b", "id: 9\nretry: 1"])
async def test_field_29_a_text_with_line_breaks_is_one_event(
    address: str, instance: str, event_log: EventLog, text: str
) -> None:
    """Field case 29: each event decodes to the original value, and none is forged."""
    await event_log.append([entry(instance, 1, text), entry(instance, 2, "end")])
    first, second = await read(address + instance, until=ids_are(2))
    assert text in str(json.loads(first.json["event"]["body"])["delta"])
    assert second.id == 2


async def test_field_29_nothing_between_may_hold_events_back(address: str, instance: str) -> None:
    """Field case 29: headers against buffering and caching, and no compression although it is asked for."""
    headers = {"Accept-Encoding": "gzip, br"}
    await ask(address + instance, "say one")
    async with (
        httpx.AsyncClient(timeout=10) as client,
        client.stream("GET", f"{address}{instance}/events", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
        assert "content-encoding" not in answer.headers


async def test_events_of_an_unknown_agent_are_not_found(address: str) -> None:
    """DG-03: nothing is created."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{address}/agents/Nobody/x/events")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
