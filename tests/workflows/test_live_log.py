"""What turns and runs leave in the live log, and what that costs."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
from desk import Desk, eventually, kinds, read_patience, size
from desk_agents import calls
from desk_script import start_afresh
from model_server import Cut, ModelServer, Say, Trickle, in_turn
from temporalio.client import Client

import worker
from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.dev_server import free_port
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.event_log.entries import Entry, EventLog
from turnkeeper.event_log.redis import RedisEventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings


async def logged(desk: Desk, log: EventLog, agent_type: str) -> list[Entry]:
    """Return what an instance's log holds."""
    return await log.read(desk.session_id(agent_type), limit=10_000)


def said(entries: list[Entry]) -> list[str]:
    """Return entries in a word each: the kind of what began and ended, the type of what streamed."""
    return [str(entry.body.get("kind") or entry.body["type"]) for entry in entries]


def by_source(entries: list[Entry]) -> dict[str, list[Entry]]:
    """Group entries by turn and run."""
    sources: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        sources[entry.source.partition("/")[2].partition("/")[2].partition("/")[2]].append(entry)
    return sources


async def test_a_turn_streams_from_its_beginning_to_its_end(desk: Desk, event_log: EventLog) -> None:
    """Design 5, EV-09: one growing sequence for each turn and run, `started` first, the end last."""
    lines = ['call research {"query": "say one"}', 'call add {"left": 1, "right": 2}']
    await desk.ask("Busy", "\n".join(lines))
    entries = await logged(desk, event_log, "Busy")
    sources = by_source(entries)
    assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
    assert set(sources) == {"turns/1", "runs/1-0-0"}
    for own in sources.values():
        assert [entry.seq for entry in own] == list(range(len(own)))
        assert (said(own)[0], said(own)[-1]) == ("started", "finished")
    assert [word for word in said(sources["turns/1"]) if "delta" not in word] == [
        "started",
        "start-step",
        *("tool-input-start", "tool-input-start"),
        *("tool-input-available", "tool-input-available"),
        *("tool-output-available", "tool-output-available"),
        "finish-step",
        "start-step",
        *("text-start", "text-end"),
        "finish-step",
        "finished",
    ]
    assert sources["runs/1-0-0"][0].body["parentToolCallId"]


async def test_publishing_costs_a_marker_or_two_and_no_workflow_task(desk: Desk) -> None:
    """Issue B: at most two marker events to a turn and two to a run; a turn's model step tells its beginning."""
    turn = await desk.ask("Assistant", 'call research {"query": "say one"}')
    turn_kinds = kinds(await desk.history(desk.turn_workflow_id("Assistant", turn)))
    run_kinds = kinds(await desk.history(f"{desk.session_id('Assistant')}/runs/1-0-0"))
    assert (turn_kinds["MARKER_RECORDED"], run_kinds["MARKER_RECORDED"]) == (1, 2)
    # The first, and one for each model step; the child's start and its end.
    assert turn_kinds["WORKFLOW_TASK_SCHEDULED"] <= 5
    assert run_kinds["WORKFLOW_TASK_SCHEDULED"] == 2


async def test_history_does_not_grow_with_the_pieces_that_streamed(desk: Desk, model_server: ModelServer) -> None:
    """Issue B: within 1 % the same bytes for one piece as for hundreds."""
    sizes = []
    for pieces in (1, 400):
        model_server.piece = -(-4_000 // pieces)
        turn = await desk.ask("Echo", "say " + " ".join(map(str, range(1_000))))
        sizes.append(size(await desk.history(desk.turn_workflow_id("Echo", turn))))
    model_server.piece = 8
    assert abs(sizes[1] - sizes[0]) <= sizes[0] * 0.01


async def test_the_first_words_show_while_the_model_still_writes(
    desk: Desk, event_log: EventLog, model_server: ModelServer
) -> None:
    """Issue B: the first token at once."""
    go_on = asyncio.Event()
    model_server.script = in_turn(Trickle("the first words", go_on, " and the rest"))
    turn = await desk.submit("Echo", "hello")

    async def text() -> str:
        found = await logged(desk, event_log, "Echo")
        return "".join(str(entry.body["delta"]) for entry in found if entry.body.get("type") == "text-delta")

    assert await eventually(text, lambda shown: shown == "the first words")
    go_on.set()
    await desk.client.wait_for_turn("Echo", desk.name, turn.turn_id)
    assert await text() == (await desk.last("Echo")).text == "the first words and the rest"


async def test_field_19_a_later_attempt_of_a_step_says_that_it_is_one(
    desk: Desk, event_log: EventLog, model_server: ModelServer
) -> None:
    """Field case 19: the pieces of a cut stream are superseded."""
    model_server.script = in_turn(Cut("half an ans"), Say("a whole answer"))
    await desk.ask("Echo", "hello")
    chunks = [entry for entry in await logged(desk, event_log, "Echo") if entry.kind == "chunk"]
    begun = [(entry.step, entry.attempt) for entry in chunks if entry.body["type"] == "start-step"]
    kept = "".join(str(e.body["delta"]) for e in chunks if e.attempt == 2 and e.body["type"] == "text-delta")
    assert begun == [(0, 1), (0, 2)]
    assert kept == "a whole answer"


async def test_cc_06_a_refused_run_begins_and_ends_in_the_log(desk: Desk, event_log: EventLog) -> None:
    """CC-06: `started` and `error`, and no run."""
    lines = [f'call research {{"query": "say {number}"}}' for number in range(3)]
    await desk.ask("Capped", "\n".join(lines))
    refused = by_source(await logged(desk, event_log, "Capped"))["runs/1-0-2"]
    assert [(entry.seq, entry.body["kind"]) for entry in refused] == [(0, "started"), (1, "error")]
    assert "maxConcurrentAgentTools (2) exceeded" in str(refused[1].body["error"])


async def test_what_an_operator_terminates_ends_in_the_log_too(desk: Desk, event_log: EventLog) -> None:
    """Design 8: nothing is shown as running that is not; here a run, and then a turn."""
    query = f"call wait {json.dumps({'name': desk.name})}"
    for number, stopped in ((1, "runs/1-0-0"), (2, "turns/2")):
        turn = await desk.submit("Assistant", f"call research {json.dumps({'query': query})}")
        run = f"{desk.session_id('Assistant')}/runs/{turn.turn_id}-0-0"
        await eventually(lambda: waits(desk), number.__eq__)
        workflow_id = f"{desk.session_id('Assistant')}/{stopped}"
        await desk.temporal.get_workflow_handle(workflow_id).terminate("by hand")
        await desk.client.wait_for_turn("Assistant", desk.name, turn.turn_id)
        await until_ended(desk, event_log, workflow_id)
        await until_ended(desk, event_log, run)


async def test_a_run_that_a_session_dispatched_and_an_operator_terminates_ends_in_the_log(
    desk: Desk, event_log: EventLog
) -> None:
    """The same where nobody awaits it."""
    registry, session_id = desk.client.registry, desk.session_id("Assistant")
    query = f"call wait {json.dumps({'name': desk.name})}"
    request = DispatchRunInput(run_id="own", profile=registry.profile("Researcher"), input={"query": query})
    await desk.client.runs.dispatch(session_id, registry.profile("Assistant"), request)
    await eventually(lambda: waits(desk), bool)
    await desk.temporal.get_workflow_handle(f"{session_id}/runs/own").terminate("by hand")
    await until_ended(desk, event_log, f"{session_id}/runs/own")


@pytest.fixture(params=["refuses", "hangs"])
async def unlogged_desk(
    request: pytest.FixtureRequest,
    temporal: Client,
    registry: AgentRegistry,
    models: ModelClient,
    settings: Settings,
    model_server: ModelServer,
) -> AsyncIterator[Desk]:
    """A desk whose worker has a live log that refuses connections, or takes them and does not answer."""
    start_afresh(model_server)
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: accepted.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1] if request.param == "hangs" else free_port()
    queue = settings.model_copy(update={"task_queue": "unlogged", "poll": ("unlogged",)})
    writer = EventWriter(RedisEventLog(f"redis://127.0.0.1:{port}"))
    main, *_ = worker.build_workers(temporal, registry, models, writer, queue)
    async with main:
        client = TurnkeeperClient(temporal, registry, task_queue="unlogged", query_patience=read_patience(settings))
        yield Desk(client, temporal)
    await writer.close()
    silent.close()
    for connection in accepted:
        # It has seen the other side's end, and stays open for this one's.
        connection.close()
        await connection.wait_closed()


async def test_a_dead_log_holds_no_work_up(unlogged_desk: Desk) -> None:
    """Issue B: a dead log degrades the live view, not the work; no step waits longer than a second for it."""
    desk = unlogged_desk
    turn = await desk.ask("Clerk", 'repeat 5 call add {"left": 1, "right": 2}')
    assert turn.status == "completed"
    assert turn.started_at is not None
    assert turn.completed_at is not None
    assert (turn.completed_at - turn.started_at).total_seconds() < 4


async def waits(desk: Desk) -> int:
    """Count the calls of the tool `wait`."""
    return calls.count(f"wait {desk.name}")


async def until_ended(desk: Desk, log: EventLog, source: str) -> None:
    """Wait until the log says that a turn or run did not end well."""

    async def ends() -> list[str]:
        entries = await log.read(desk.session_id("Assistant"), limit=10_000, source=source)
        return [str(entry.body["kind"]) for entry in entries if entry.body.get("kind") in ("error", "aborted")]

    assert len(await eventually(ends, bool)) == 1
