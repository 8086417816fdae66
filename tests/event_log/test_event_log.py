"""What every backend of the event log does (design, section 5); each test runs on each."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from event_stores import (
    LOG,
    OTHER_LOG,
    OTHER_SOURCE,
    SOURCE,
    EventStore,
    RedisStore,
    SQLiteStore,
    new_entries,
    new_entry,
    read_until,
)
from pydantic import JsonValue
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ServerUnreachable
from redis_server import RedisServer

from turnkeeper.dev_server import free_port
from turnkeeper.event_log.entries import PAGE, Bounds, Entry, EventLog, NewEntry
from turnkeeper.event_log.redis import CONNECTIONS, RedisEventLog
from turnkeeper.event_log.sqlite import SQLiteEventLog

SHORT = timedelta(milliseconds=100)
LONG = timedelta(seconds=20)
NOW = datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)


def ids_of(entries: list[Entry]) -> list[int]:
    """Return the ids of entries."""
    return [entry.id for entry in entries]


def keys_of(entries: list[Entry]) -> list[str]:
    """Return the keys of entries."""
    return [entry.key for entry in entries]


async def read_all(log: EventLog, name: str = LOG) -> list[Entry]:
    """Return all entries of a log, page by page."""
    found: list[Entry] = []
    while page := await log.read(name, found[-1].id if found else 0):
        found += page
    return found


async def append_singly(log: EventLog, entries: list[NewEntry]) -> None:
    """Append entries one by one."""
    for entry in entries:
        await log.append([entry])


async def begin_to_wait(log: EventLog, positions: dict[str, int]) -> asyncio.Task[dict[str, list[Entry]]]:
    """Return a wait that found nothing yet."""
    waiting = asyncio.create_task(log.wait(positions, LONG))
    done, _ = await asyncio.wait([waiting], timeout=SHORT.total_seconds())
    assert not done
    return waiting


async def test_ids_grow_by_one_in_a_log_from_one(log: EventLog) -> None:
    """Design 5: also when entries come in several batches and of several sources."""
    await log.append([*new_entries(3), new_entry("run", f"{LOG}/runs/a")])
    await log.append(new_entries(2, first=4))
    assert ids_of(await log.read(LOG)) == [1, 2, 3, 4, 5, 6]


async def test_seqs_grow_by_one_in_a_source_from_zero(log: EventLog) -> None:
    """Design 5: each source counts its own entries."""
    run = f"{LOG}/runs/a"
    await log.append([new_entry("a"), new_entry("b", run), new_entry("c"), new_entry("d", run)])
    await log.append([new_entry("e", run), new_entry("f")])
    found = await log.read(LOG)
    assert [entry.seq for entry in found if entry.source == SOURCE] == [0, 1, 2]
    assert [entry.seq for entry in found if entry.source == run] == [0, 1, 2]


async def test_what_was_appended_is_read_in_order(log: EventLog) -> None:
    """The order is that of the batch, never that of the clock."""
    entries = [new_entry(number, at=NOW - timedelta(seconds=number)) for number in range(50)]
    await log.append(entries)
    assert keys_of(await log.read(LOG)) == [entry.key for entry in entries]


async def test_an_entry_is_read_as_it_was_appended(log: EventLog, other: EventLog) -> None:
    """Every field; a time in another zone is the same time."""
    plain = NewEntry(source=SOURCE, key="plain", kind="turn", body={}, at=NOW.astimezone())
    full = NewEntry(source=SOURCE, key="full", kind="progress", body={"a": 1}, at=NOW, step=3, attempt=2)
    await log.append([plain, full])
    read = await other.read(LOG)
    assert read == [Entry(id=1, seq=0, **dict(plain)), Entry(id=2, seq=1, **dict(full))]
    assert [entry.at.tzinfo for entry in read] == [UTC, UTC]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "Grüße, 世界 👩‍👩‍👧 \u2028 \x00 end",
        {"deep": [{"er": [None, True, 1, 1.5, -0.0, "", {}, []]}]},
        [2**63, -(2**70), 1e300],
        "x" * 200_000,
        ["ü" * 1000] * 100,
    ],
    ids=["null", "empty", "unicode", "nested", "numbers", "200-kb", "400-kb"],
)
async def test_body_values_survive(log: EventLog, value: JsonValue) -> None:
    """A body is any JSON object."""
    await log.append([new_entry("a", body=value)])
    [entry] = await log.read(LOG)
    assert entry.body == {"value": value}


async def test_the_same_key_again_adds_nothing(log: EventLog, other: EventLog) -> None:
    """Design 5: a retried append adds nothing, whoever tries again, and takes no id."""
    await log.append(new_entries(3))
    await other.append([new_entry(2, body="again"), new_entry(4), new_entry(1, f"{LOG}/runs/a")])
    found = await log.read(LOG)
    assert keys_of(found) == ["1", "2", "3", "4"]
    assert ids_of(found) == [1, 2, 3, 4]
    assert [entry.seq for entry in found] == [0, 1, 2, 3]
    assert found[1].body == {"value": None}


async def test_the_same_key_twice_in_a_batch_adds_one(log: EventLog) -> None:
    """The first one counts."""
    await log.append([new_entry("a", body=1), new_entry("a", body=2), new_entry("b", body=3)])
    found = await log.read(LOG)
    assert [(entry.id, entry.body["value"]) for entry in found] == [(1, 1), (2, 3)]


async def test_the_same_key_is_another_in_another_log(log: EventLog) -> None:
    """Keys are unique in a log."""
    await log.append([new_entry("a"), new_entry("a", OTHER_SOURCE)])
    assert keys_of(await log.read(LOG)) == keys_of(await log.read(OTHER_LOG)) == ["a"]


async def test_the_same_keys_from_two_sides_at_once_are_added_once(log: EventLog, other: EventLog) -> None:
    """Two workers that both carry out an attempt."""
    await asyncio.gather(append_singly(log, new_entries(200)), append_singly(other, new_entries(200)))
    assert keys_of(await log.read(LOG)) == [str(number) for number in range(1, 201)]


async def test_two_writers_at_once_leave_no_gap(log: EventLog, other: EventLog) -> None:
    """500 entries each, singly: the ids are 1 to 1000, and each writer's entries keep their order."""
    mine = [new_entry(f"mine-{number}", f"{LOG}/runs/mine") for number in range(500)]
    theirs = [new_entry(f"theirs-{number}", f"{LOG}/runs/theirs") for number in range(500)]
    await asyncio.gather(append_singly(log, mine), append_singly(other, theirs))
    found = await read_all(log)
    assert ids_of(found) == list(range(1, 1001))
    for entries in (mine, theirs):
        own = [entry for entry in found if entry.source == entries[0].source]
        assert keys_of(own) == [entry.key for entry in entries]
        assert [entry.seq for entry in own] == list(range(500))


async def test_a_batch_for_several_logs_is_complete_in_each(log: EventLog) -> None:
    """Each log has its own ids."""
    await log.append([new_entry(number, (SOURCE, OTHER_SOURCE)[number % 2]) for number in range(10)])
    assert keys_of(await log.read(LOG)) == ["0", "2", "4", "6", "8"]
    assert keys_of(await log.read(OTHER_LOG)) == ["1", "3", "5", "7", "9"]
    assert ids_of(await log.read(OTHER_LOG)) == [1, 2, 3, 4, 5]


async def test_a_batch_is_seen_whole_or_not_at_all(log: EventLog, other: EventLog) -> None:
    """A reader never meets half a batch."""
    appending = asyncio.create_task(append_batches(log))
    position = 0
    while position < 1000:
        news = await other.wait({LOG: position}, LONG)
        position += len(news[LOG])
        assert position % 20 == 0
    await appending


async def append_batches(log: EventLog) -> None:
    """Append 50 batches of 20 entries."""
    for number in range(50):
        await log.append(new_entries(20, first=number * 20 + 1))


async def test_a_batch_with_an_entry_that_cannot_be_stored_adds_nothing(log: EventLog) -> None:
    """All or none: half of a surrogate pair is no text."""
    with pytest.raises(UnicodeEncodeError):
        await log.append([new_entry("a"), new_entry("b", OTHER_SOURCE), new_entry("c", body="\ud800")])
    assert await log.bounds(LOG) == await log.bounds(OTHER_LOG) == Bounds(1, 0)
    await log.append([new_entry("a")])
    assert ids_of(await log.read(LOG)) == [1]


async def test_appending_nothing_does_nothing(log: EventLog) -> None:
    """An empty batch is no error."""
    await log.append([])
    assert await log.bounds(LOG) == Bounds(1, 0)


async def test_reading_begins_after_an_id_and_ends_at_a_limit(log: EventLog) -> None:
    """One page at a time."""
    await log.append(new_entries(10))
    assert ids_of(await log.read(LOG, after=3)) == [4, 5, 6, 7, 8, 9, 10]
    assert ids_of(await log.read(LOG, after=3, limit=2)) == [4, 5]
    assert await log.read(LOG, after=10) == []
    assert await log.read(LOG, after=99) == []
    assert await log.read(OTHER_LOG) == []


async def test_a_read_returns_one_page_at_most(log: EventLog) -> None:
    """And goes on from its last id."""
    await log.append(new_entries(PAGE + 1))
    assert ids_of(await log.read(LOG)) == list(range(1, PAGE + 1))
    assert ids_of(await log.read(LOG, after=PAGE)) == [PAGE + 1]


async def test_one_source_is_read_across_pages(log: EventLog) -> None:
    """A source's few entries are found among many of others, up to the limit."""
    run = f"{LOG}/runs/rare"
    for first in (1, 701, 1401):
        await log.append([*new_entries(700, first=first), new_entry(f"rare-{first}", run)])
    assert ids_of(await log.read(LOG, source=run)) == [701, 1402, 2103]
    assert ids_of(await log.read(LOG, after=701, limit=1, source=run)) == [1402]
    assert await log.read(LOG, source=f"{LOG}/runs/none") == []


async def test_a_wait_for_what_is_there_returns_at_once(log: EventLog) -> None:
    """Of each log, what comes after its position."""
    await log.append([*new_entries(3), *new_entries(2, OTHER_SOURCE)])
    async with asyncio.timeout(1):
        news = await log.wait({LOG: 1, OTHER_LOG: 2, "default/Desk/none": 0}, LONG)
    assert {name: ids_of(entries) for name, entries in news.items()} == {LOG: [2, 3]}


async def test_a_wait_returns_one_page_of_a_log_at_most(log: EventLog) -> None:
    """As a read does."""
    await log.append(new_entries(PAGE + 1))
    news = await log.wait({LOG: 0}, LONG)
    assert ids_of(news[LOG]) == list(range(1, PAGE + 1))


@pytest.mark.parametrize("name", [LOG, OTHER_LOG])
async def test_a_wait_ends_soon_after_somebody_elses_append(log: EventLog, other: EventLog, name: str) -> None:
    """Whichever of the logs it is to; much faster than a second."""
    waiting = await begin_to_wait(log, {OTHER_LOG: 0, LOG: 0})
    async with asyncio.timeout(0.5):
        await other.append([new_entry("a", f"{name}/turns/1")])
        news = await waiting
    assert {name: keys_of(entries) for name, entries in news.items()} == {name: ["a"]}


async def test_a_wait_ends_after_an_append_of_its_own_side(log: EventLog) -> None:
    """An API with a worker in the same process."""
    waiting = await begin_to_wait(log, {LOG: 0})
    async with asyncio.timeout(0.5):
        await log.append([new_entry("a")])
        assert ids_of((await waiting)[LOG]) == [1]


async def test_a_wait_for_nothing_ends_after_its_patience(log: EventLog) -> None:
    """And returns nothing."""
    await log.append(new_entries(2))
    began = asyncio.get_running_loop().time()
    assert await log.wait({LOG: 2, OTHER_LOG: 0}, 2 * SHORT) == {}
    assert 0.15 < asyncio.get_running_loop().time() - began < 1


async def test_a_wait_without_patience_looks_once(log: EventLog) -> None:
    """No patience is not endless patience."""
    async with asyncio.timeout(1):
        assert await log.wait({LOG: 0}, timedelta()) == {}
    await log.append(new_entries(1))
    assert ids_of((await log.wait({LOG: 0}, timedelta()))[LOG]) == [1]


async def test_a_waits_patience_ends_also_while_another_log_is_busy(log: EventLog, other: EventLog) -> None:
    """What happens elsewhere is no news and no delay."""
    is_over = asyncio.Event()

    async def keep_busy() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            await other.append([new_entry(number, OTHER_SOURCE)])

    busy = asyncio.create_task(keep_busy())
    try:
        async with asyncio.timeout(3):
            assert await log.wait({LOG: 0}, 3 * SHORT) == {}
    finally:
        is_over.set()
        await busy


async def test_a_cancelled_wait_leaves_the_log_usable(log: EventLog, other: EventLog) -> None:
    """More often than there are connections; a feed does so whenever somebody follows another log."""
    for _ in range(2 * CONNECTIONS):
        waiting = asyncio.create_task(log.wait({LOG: 0}, LONG))
        await asyncio.wait([waiting], timeout=0.005)
        waiting.cancel()
    assert await log.wait({LOG: 0}, SHORT) == {}
    await log.append(new_entries(2))
    assert ids_of(await log.read(LOG)) == [1, 2]
    waiting = await begin_to_wait(log, {LOG: 2})
    await other.append([new_entry("a")])
    assert ids_of((await waiting)[LOG]) == [3]


async def test_more_calls_at_once_than_connections_are_answered(log: EventLog) -> None:
    """A crowd of readers that catch up together."""
    await log.append(new_entries(5))
    pages = await asyncio.gather(*(log.read(LOG) for _ in range(10 * CONNECTIONS)))
    assert all(ids_of(page) == [1, 2, 3, 4, 5] for page in pages)


async def test_bounds_say_which_ids_can_be_read(log: EventLog) -> None:
    """Of an unknown log, a full one, a trimmed one and an emptied one."""
    assert await log.bounds(LOG) == Bounds(oldest=1, newest=0)
    await log.append([new_entry(number, at=NOW + timedelta(hours=number)) for number in range(5)])
    assert await log.bounds(LOG) == Bounds(oldest=1, newest=5)
    await log.trim(NOW + timedelta(hours=2))
    assert await log.bounds(LOG) == Bounds(oldest=3, newest=5)
    assert ids_of(await log.read(LOG)) == [3, 4, 5]
    await log.trim(NOW + timedelta(hours=9))
    assert await log.bounds(LOG) == Bounds(oldest=6, newest=5)
    assert await log.read(LOG) == []


async def test_ids_and_seqs_go_on_after_a_trim(log: EventLog, other: EventLog) -> None:
    """Also when nothing is left, and for whoever appends."""
    await log.append([new_entry(number, at=NOW) for number in range(3)])
    await log.trim(NOW + timedelta(seconds=1))
    await other.append([new_entry("a")])
    [entry] = await log.read(LOG)
    assert (entry.id, entry.seq) == (4, 3)
    assert ids_of((await log.wait({LOG: 0}, SHORT))[LOG]) == [4]


async def test_a_trim_is_of_all_logs_and_of_many_entries(log: EventLog) -> None:
    """However many there are of either."""
    names = [f"default/Desk/{number}" for number in range(30)]
    await log.append([new_entry(number, at=NOW) for number in range(1234)])
    await log.append([new_entry("old", f"{name}/turns/1", at=NOW) for name in names])
    await log.append([new_entry("new", f"{name}/turns/1", at=NOW + timedelta(days=1)) for name in [LOG, *names]])
    await log.trim(NOW + timedelta(hours=1))
    assert [keys_of(await log.read(name)) for name in [LOG, *names]] == [["new"]] * 31
    assert await log.bounds(LOG) == Bounds(1235, 1235)


async def test_a_trimmed_key_may_come_again(log: EventLog) -> None:
    """A key is remembered as long as its entry."""
    await log.append([new_entry("a", at=NOW), new_entry("b", at=NOW + timedelta(days=1))])
    await log.trim(NOW + timedelta(hours=1))
    await log.append([new_entry("a"), new_entry("b")])
    assert [(entry.id, entry.key) for entry in await log.read(LOG)] == [(2, "b"), (3, "a")]


async def test_a_deleted_log_begins_anew(log: EventLog, other: EventLog) -> None:
    """Its ids, seqs and keys; other logs stay."""
    await log.append([*new_entries(3), *new_entries(2, OTHER_SOURCE)])
    await other.delete(LOG)
    assert await log.bounds(LOG) == Bounds(1, 0)
    assert await log.read(LOG) == []
    assert ids_of(await log.read(OTHER_LOG)) == [1, 2]
    await log.append([new_entry(2)])
    assert [(entry.id, entry.seq, entry.key) for entry in await log.read(LOG)] == [(1, 0, "2")]
    await log.trim(datetime.now(UTC) + timedelta(days=1))
    assert await log.read(LOG) == []


async def test_logs_do_not_mix(log: EventLog) -> None:
    """Also when their names begin alike, and at once; every path below an instance is in its log."""
    sources = ["default/Desk/m/turns/1", "default/Desk/main/runs/a/runs/b", "default/Desk/main-2", "other/Desk/main"]
    await asyncio.gather(*(append_singly(log, new_entries(20, source)) for source in sources))
    for source in sources:
        found = await log.read("/".join(source.split("/")[:3]))
        assert ids_of(found) == list(range(1, 21))
        assert {entry.source for entry in found} == {source}


async def test_what_is_appended_outlives_the_log(store: EventStore) -> None:
    """Another process goes on where this one ended."""
    for number in range(3):
        log = store.open()
        await log.append([new_entry(number)])
        await log.close()
    log = store.open()
    assert ids_of(await log.read(LOG)) == [1, 2, 3]
    await log.close()


async def test_a_file_can_be_opened_by_many_at_once(sqlite_store: SQLiteStore) -> None:
    """API and workers start together; whoever comes while another makes the file waits for it."""
    sqlite_store.pause()
    opening = [asyncio.create_task(SQLiteEventLog.open(sqlite_store.path)) for _ in range(8)]
    await asyncio.wait(opening, timeout=SHORT.total_seconds())
    sqlite_store.resume()
    logs = await asyncio.gather(*opening)
    await asyncio.gather(*(log.append([new_entry(place)]) for place, log in enumerate(logs)))
    assert len(await logs[0].read(LOG)) == 8
    for log in logs:
        await log.close()


async def test_a_server_that_is_down_fails_a_call_soon_and_not_before() -> None:
    """Making the log asks nothing of the server."""
    log = RedisEventLog(f"redis://127.0.0.1:{free_port()}")
    for call in (log.append(new_entries(1)), log.read(LOG), log.wait({LOG: 0}, LONG), log.bounds(LOG)):
        async with asyncio.timeout(1):
            with pytest.raises(ServerUnreachable):
                await call
    await log.close()


async def test_a_server_that_does_not_answer_fails_a_call_soon(
    redis_store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is used again when it does."""
    log = redis_store.open()
    await log.append(new_entries(1))
    monkeypatch.setattr("turnkeeper.event_log.redis.SERVER_PATIENCE", SHORT)
    redis_store.pause()
    for call in (log.append(new_entries(2)), log.read(LOG), log.wait({LOG: 9}, SHORT), log.bounds(LOG)):
        async with asyncio.timeout(1):
            with pytest.raises(TimeoutError):
                await call
    redis_store.resume()
    monkeypatch.undo()
    await log.append(new_entries(2))
    assert ids_of(await log.read(LOG)) == [1, 2]
    await log.close()


async def test_a_server_that_was_started_anew_is_used_at_once(tmp_path: Path) -> None:
    """No call pays for connections of the pool that are older than the server; a wait goes on."""
    server = RedisServer(tmp_path)
    await server.start()
    log = RedisEventLog(server.url)
    await asyncio.gather(*(log.append([new_entry(number)]) for number in range(5)))
    await server.kill()
    await server.start()
    await log.append(new_entries(1))
    assert ids_of(await read_until(log, LOG, 1)) == [1]
    await log.close()
    await server.kill()


async def test_a_server_that_evicts_keys_does_not_stop_a_log(
    redis_store: RedisStore, redis_server: RedisServer
) -> None:
    """A server that is also a cache may drop any one key of a log: what is left is never in the way of an append."""
    log = redis_store.open()
    async with Redis.from_url(redis_server.url, decode_responses=True) as client:
        for place in range(3):
            await log.append(new_entries(2, first=10 * place))
            keys = sorted([key async for key in client.scan_iter(f"*{LOG}*")])
            assert len(keys) == 3
            await client.delete(keys[place])
            await log.append(new_entries(2, first=10 * place + 5))
    found = await log.read(LOG)
    assert [entry.id for entry in found] == list(range(found[0].id, found[0].id + len(found)))
    await log.close()
