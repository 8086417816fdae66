"""How one attempt of a model step gets into the live log: soon, in few entries, and never twice."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from event_stores import read_until

from activities.step_stream import BATCH_INTERVAL, StepStream
from turnkeeper.chunks import (
    ReasoningDelta,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    UIMessageChunk,
)
from turnkeeper.event_log.entries import Entry
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter

LOG = "t/A/n"
SOURCE = f"{LOG}/turns/1"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SQLiteEventLog]:
    """An empty log."""
    log = SQLiteEventLog(tmp_path / "events.sqlite")
    yield log
    await log.close()


@pytest.fixture
async def writer(log: SQLiteEventLog) -> AsyncIterator[EventWriter]:
    """What writes to it."""
    writer = EventWriter(log)
    yield writer
    await writer.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches wait so long that only a close ends them."""
    monkeypatch.setattr("activities.step_stream.BATCH_INTERVAL", timedelta(hours=1))


def _text(delta: str, part_id: str = "0") -> TextDelta:
    return TextDelta(id=part_id, delta=delta)


def _pieces(entries: list[Entry]) -> list[object]:
    return [entry.body.get("delta", entry.body.get("inputTextDelta", entry.body["type"])) for entry in entries]


async def _streamed(writer: EventWriter, log: SQLiteEventLog, *chunks: UIMessageChunk) -> list[Entry]:
    stream = StepStream(writer, SOURCE, 2, 1)
    for chunk in chunks:
        stream.add(chunk)
    await stream.close()
    return (await log.read(LOG))[1:]


def test_a_batch_is_collected_for_50_ms_at_most() -> None:
    """Issue B: nobody who reads along notices them, and a log is asked twenty times a second at most."""
    assert timedelta() < BATCH_INTERVAL <= timedelta(milliseconds=50)


@pytest.mark.usefixtures("slow")
async def test_the_first_chunk_is_in_the_log_before_anything_else_comes(
    writer: EventWriter, log: SQLiteEventLog
) -> None:
    """A reader sees at once that the step began; what comes after it waits for its batch."""
    stream = StepStream(writer, SOURCE, 2, 1)
    stream.add(TextStart(id="0"))
    [entry] = await read_until(log, LOG, 1)
    assert entry.body == {"type": "start-step"}
    await writer.flush()
    assert len(await log.read(LOG)) == 1
    await stream.close()


async def test_what_comes_after_a_pause_is_in_the_log_at_once(
    writer: EventWriter, log: SQLiteEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first word of an answer, for which the model thought a while, waits for no batch."""
    monkeypatch.setattr("activities.step_stream.BATCH_INTERVAL", timedelta())
    stream = StepStream(writer, SOURCE, 2, 1)
    stream.add(TextStart(id="0"))
    stream.add(_text("hello"))
    await writer.flush()
    assert _pieces(await log.read(LOG)) == ["start-step", "text-start", "hello"]
    await stream.close()


async def test_a_batch_is_written_by_itself_when_its_time_is_over(writer: EventWriter, log: SQLiteEventLog) -> None:
    """Nothing further has to come, and the next batch waits again."""
    stream = StepStream(writer, SOURCE, 2, 1)
    for round_number in range(3):
        for chunk in (TextStart(id="0"), _text("hel"), _text("lo"), TextEnd(id="0")):
            stream.add(chunk)
        found = await read_until(log, LOG, 1 + 3 * (round_number + 1))
        assert _pieces(found)[-3:] == ["text-start", "hello", "text-end"]
    await stream.close()
    assert len(await log.read(LOG)) == 10


async def test_a_fast_stream_takes_few_entries(writer: EventWriter, log: SQLiteEventLog) -> None:
    """Neighbouring deltas become one: as many entries as batches, however many pieces there are."""
    stream = StepStream(writer, SOURCE, 2, 1)
    stream.add(TextStart(id="0"))
    began = datetime.now(UTC)
    for number in range(5_000):
        stream.add(_text(f"{number} "))
        if number % 100 == 0:
            await asyncio.sleep(0)
    await stream.close()
    batches = (datetime.now(UTC) - began) / BATCH_INTERVAL
    deltas = [entry for entry in await log.read(LOG) if entry.body["type"] == "text-delta"]
    assert "".join(str(entry.body["delta"]) for entry in deltas) == "".join(f"{number} " for number in range(5_000))
    assert len(deltas) <= batches + 2


@pytest.mark.usefixtures("slow")
async def test_only_neighbours_of_one_part_are_joined(writer: EventWriter, log: SQLiteEventLog) -> None:
    """What belongs to another part, or stands between, keeps its place."""
    pieces = await _streamed(
        writer,
        log,
        *(_text("a"), _text("b"), _text("c", "1"), _text("d")),
        *(ReasoningDelta(id="0", delta="e"), ReasoningDelta(id="0", delta="f"), _text("g")),
        *(TextEnd(id="0"), TextStart(id="0"), _text("h")),
        *(ToolInputDelta(tool_call_id=call_id, input_text_delta=call_id) for call_id in ("x", "x", "y", "x")),
    )
    assert _pieces(pieces) == ["ab", "c", "d", "ef", "g", "text-end", "text-start", "h", "xx", "y", "x"]


@pytest.mark.usefixtures("slow")
async def test_an_entry_says_where_it_belongs(writer: EventWriter, log: SQLiteEventLog) -> None:
    """A reader knows the step and the attempt, which supersedes the ones before."""
    before = datetime.now(UTC)
    stream = StepStream(writer, SOURCE, 2, 3)
    stream.add(_text("a"))
    await stream.close()
    entries = await log.read(LOG)
    assert [(entry.source, entry.kind, entry.step, entry.attempt) for entry in entries] == [(SOURCE, "chunk", 2, 3)] * 2
    assert all(before <= entry.at <= datetime.now(UTC) for entry in entries)


async def test_the_keys_of_steps_and_attempts_never_meet(writer: EventWriter, log: SQLiteEventLog) -> None:
    """Each attempt of each step of each source has keys of its own, so that nothing of it is taken for a repetition."""
    streams = [
        StepStream(writer, source, step, attempt)
        for source in (SOURCE, f"{SOURCE}1", f"{LOG}/runs/1", f"{LOG}/runs/1/runs/1")
        for step in (0, 1, 11)
        for attempt in (1, 2, 11)
    ]
    for stream in streams:
        for number in range(12):
            stream.add(_text("x", str(number)))
        await stream.close()
    entries = await log.read(LOG, limit=1_000)
    assert len(entries) == len(streams) * 13
    assert len({entry.key for entry in entries}) == len(entries)


@pytest.mark.usefixtures("slow")
async def test_the_keys_of_an_attempt_are_always_the_same(writer: EventWriter, log: SQLiteEventLog) -> None:
    """An append that is tried again adds nothing."""
    first = [entry.key for entry in await _streamed(writer, log, _text("a"), _text("b", "1"))]
    second = [entry.key for entry in await _streamed(writer, log, _text("a"), _text("b", "1"))]
    assert first == second
    assert len(first) == 2


@pytest.mark.usefixtures("slow")
async def test_a_close_leaves_nothing_behind(writer: EventWriter, log: SQLiteEventLog) -> None:
    """When a step's activity ends, everything that it streamed can be read, and no timer goes off later."""
    entries = await _streamed(writer, log, TextStart(id="0"), _text("a"), TextEnd(id="0"))
    assert _pieces(entries) == ["text-start", "a", "text-end"]
    stream = StepStream(writer, SOURCE, 3, 1)
    await stream.close()
    await stream.close()
    assert _pieces(await log.read(LOG))[-1] == "start-step"
