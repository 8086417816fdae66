"""Appends from the background: in order, once, without holding anybody up."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from event_stores import (
    LOG,
    OTHER_LOG,
    OTHER_SOURCE,
    SOURCE,
    EventStore,
    WatchedLog,
    new_entries,
    new_entry,
    read_until,
)
from redis_server import RedisServer

from turnkeeper.event_log.entries import EventLog
from turnkeeper.event_log.redis import RedisEventLog
from turnkeeper.event_log.writer import BATCH, EventWriter

SOON = 0.5
"""Seconds in which what need not wait is done, also on a busy machine."""


@pytest.fixture
def watched(log: EventLog) -> WatchedLog:
    """The log that the writer appends to."""
    return WatchedLog(log)


@pytest.fixture
async def writer(watched: WatchedLog) -> AsyncIterator[EventWriter]:
    """A writer that tries again soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnkeeper.event_log.writer.RETRY_PAUSE", timedelta(milliseconds=20))
        writer = EventWriter(watched)
        yield writer
        await writer.close()


async def test_what_was_added_is_in_the_log_after_a_flush(writer: EventWriter, other: EventLog) -> None:
    """A reader who is told that a step ended finds it."""
    writer.add(*new_entries(3))
    await writer.flush()
    assert [entry.key for entry in await other.read(LOG)] == ["1", "2", "3"]


async def test_entries_keep_their_order_and_go_in_batches(
    writer: EventWriter, watched: WatchedLog, other: EventLog
) -> None:
    """However they come; a crowd of them takes few appends."""
    for entry in new_entries(3 * BATCH):
        writer.add(entry)
    await writer.flush()
    found = await read_until(other, LOG, 3 * BATCH)
    assert [entry.key for entry in found] == [str(number) for number in range(1, 3 * BATCH + 1)]
    assert watched.calls["append"] == 3


async def test_a_flush_of_nothing_returns_at_once(writer: EventWriter) -> None:
    """Before anything was added, and after all is in the log."""
    async with asyncio.timeout(SOON):
        await writer.flush()
    writer.add(new_entry("a"))
    await writer.flush()
    async with asyncio.timeout(SOON):
        await writer.flush()


async def test_a_flush_does_not_wait_for_what_others_go_on_adding(
    writer: EventWriter, watched: WatchedLog, other: EventLog
) -> None:
    """A worker streams many steps at once: each waits for its own entries alone."""
    is_over = False

    async def keep_adding() -> None:
        number = 0
        while not is_over:
            number += 1
            writer.add(new_entry(f"busy-{number}", OTHER_SOURCE))
            await watched.called("append", number)

    writer.add(new_entry("busy-0", OTHER_SOURCE))
    adding = asyncio.create_task(keep_adding())
    await watched.called("append", 3)
    writer.add(new_entry("mine"))
    async with asyncio.timeout(SOON):
        await writer.flush()
    assert [entry.key for entry in await other.read(LOG)] == ["mine"]
    is_over = True
    await adding


async def test_a_dead_log_holds_a_flush_up_for_a_second_once(
    store: EventStore, writer: EventWriter, other: EventLog
) -> None:
    """Then nobody waits until it is back, and nothing is lost."""
    writer.add(new_entry(1))
    await writer.flush()
    store.pause()
    writer.add(new_entry(2))
    async with asyncio.timeout(1 + SOON):
        await writer.flush()
    for number in range(3, 10):
        writer.add(new_entry(number))
        async with asyncio.timeout(SOON):
            await writer.flush()
    store.resume()
    found = await read_until(other, LOG, 9)
    assert [entry.key for entry in found] == [str(number) for number in range(1, 10)]


async def test_a_log_that_came_back_is_waited_for_again(
    store: EventStore, writer: EventWriter, other: EventLog
) -> None:
    """A flush means again what it says."""
    store.pause()
    writer.add(new_entry(1))
    await writer.flush()
    store.resume()
    writer.add(new_entry(2))
    await read_until(other, LOG, 2)  # So the writer has heard that the first one is in it.
    writer.add(new_entry(3))
    await writer.flush()
    assert len(await other.read(LOG)) == 3


async def test_an_append_that_was_tried_again_adds_nothing_twice(
    store: EventStore, writer: EventWriter, watched: WatchedLog, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log carries out what it had been asked before it was given up, and is then asked again."""
    monkeypatch.setattr("turnkeeper.event_log.writer.APPEND_PATIENCE", timedelta(milliseconds=50))
    watched.close_gate("append")
    writer.add(*new_entries(20))
    await watched.called("append", 3)
    watched.open_gate("append")
    await read_until(other, LOG, 20)
    store.pause()
    writer.add(*new_entries(20, first=21))
    await asyncio.wait([asyncio.create_task(writer.flush())], timeout=SOON)
    store.resume()
    writer.add(new_entry("last"))
    found = await read_until(other, LOG, 41)
    assert [entry.key for entry in found] == [*(str(number) for number in range(1, 41)), "last"]
    assert [entry.seq for entry in found] == list(range(41))


async def test_a_queue_that_overflows_says_how_many_entries_were_lost(
    store: EventStore, writer: EventWriter, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source where it lost them: behind what was kept, before what came later."""
    monkeypatch.setattr("turnkeeper.event_log.writer.QUEUED_ENTRIES", 10)
    store.pause()
    writer.add(*new_entries(8), *new_entries(2, OTHER_SOURCE))
    writer.add(*new_entries(5, first=9), *new_entries(3, OTHER_SOURCE, first=3))
    async with asyncio.timeout(1 + SOON):
        await writer.flush()
    writer.add(new_entry("also lost"))
    store.resume()
    mine = await read_until(other, LOG, 9)
    assert [entry.key for entry in mine[:8]] == [str(number) for number in range(1, 9)]
    assert (mine[8].kind, mine[8].source, mine[8].body) == ("gap", SOURCE, {"type": "gap", "lost": 6})
    others = await read_until(other, OTHER_LOG, 3)
    assert [entry.key for entry in others[:2]] == ["1", "2"]
    assert (others[2].kind, others[2].source, others[2].body) == ("gap", OTHER_SOURCE, {"type": "gap", "lost": 3})
    writer.add(new_entry("later"))
    await writer.flush()
    assert [entry.key for entry in await other.read(LOG, after=9)] == ["later"]


async def test_an_entry_that_cannot_be_stored_is_in_nobodys_way(writer: EventWriter, other: EventLog) -> None:
    """Half of a surrogate pair is no text: that entry is lost, and the log says so; what is around it is not."""
    writer.add(*new_entries(3), new_entry("bad", body="\ud800"), *new_entries(3, first=4), new_entry("o", OTHER_SOURCE))
    found = await read_until(other, LOG, 7)
    assert sorted(entry.key for entry in found if entry.kind == "chunk") == ["1", "2", "3", "4", "5", "6"]
    assert [entry.body for entry in found if entry.kind == "gap"] == [{"type": "gap", "lost": 1}]
    assert [entry.key for entry in await read_until(other, OTHER_LOG, 1)] == ["o"]


async def test_nothing_runs_after_a_writer_was_closed(log: EventLog, other: EventLog) -> None:
    """What was added is in the log; the log can be closed next."""
    before = asyncio.all_tasks()
    writer = EventWriter(log)
    writer.add(*new_entries(3))
    await writer.close()
    assert asyncio.all_tasks() - before == set()
    assert len(await other.read(LOG)) == 3


async def test_a_writer_whose_log_is_dead_is_closed_after_a_second(store: EventStore, log: EventLog) -> None:
    """A worker ends in time, and nothing of the writer stays."""
    before = asyncio.all_tasks()
    await log.bounds(LOG)
    writer = EventWriter(log)
    store.pause()
    writer.add(new_entry("a"))
    async with asyncio.timeout(1 + SOON):
        await writer.close()
    assert asyncio.all_tasks() - before == set()
    store.resume()


async def test_a_server_that_was_killed_holds_nobody_up_and_loses_nothing_that_was_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead server is noticed at once; what was added meanwhile is in the next one."""
    monkeypatch.setattr("turnkeeper.event_log.writer.RETRY_PAUSE", timedelta(milliseconds=20))
    server = RedisServer(tmp_path)
    await server.start()
    log = RedisEventLog(server.url)
    writer = EventWriter(log)
    writer.add(new_entry("gone"))
    await writer.flush()
    await server.kill()
    for number in range(1, 6):
        writer.add(new_entry(number))
        async with asyncio.timeout(SOON):
            await writer.flush()
    await server.start()
    found = await read_until(log, LOG, 5)
    assert [entry.key for entry in found] == ["1", "2", "3", "4", "5"]
    await writer.close()
    await log.close()
    await server.kill()
