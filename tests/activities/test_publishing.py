"""What workflows tell the live log: each thing is in it once, however often and by whomever it is told."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from desk import Desk, eventually
from desk_agents import gate
from temporalio.testing import ActivityEnvironment

from activities.publishing import PublishActivities, output_entry, published, settled_entries
from turnkeeper import names
from turnkeeper.dispatches import DispatchRunInput
from turnkeeper.event_log.entries import Entry, EventLog
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.frames import (
    RunAborted,
    RunError,
    RunEvent,
    RunFinished,
    RunInterrupted,
    RunStarted,
    TurnAborted,
    TurnError,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from turnkeeper.messages import ToolPart
from turnkeeper.runs import AgentToolMilestone
from turnkeeper.steps import PublishInput, ReachedMilestone, SettledStep, ToolResult
from turnkeeper.turns import Report

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOG = "t/A/n"
TURN = f"{LOG}/turns/1"
RUN = f"{LOG}/runs/r/runs/s"
CALL = ToolPart(type="tool-add", tool_call_id="c", state="input-available", input={})
STARTED = RunStarted(run_id="r/runs/s", agent_type="A")


def _milestone(sequence: int) -> ReachedMilestone:
    return ReachedMilestone(
        milestone=AgentToolMilestone(name="found", sequence=sequence, at=AT),
        report=Report(report_id=f"u{sequence}", at=AT, milestone="found", message="half"),
    )


class Board:
    """The activity on a log of its own."""

    def __init__(self, log: SQLiteEventLog) -> None:
        """Tell `log`."""
        self.log = log
        self.writer = EventWriter(log)

    async def tell(self, *told: PublishInput) -> None:
        """Tell things, one after the other."""
        for one in told:
            await ActivityEnvironment().run(PublishActivities(self.writer).publish, one)

    async def entries(self) -> list[Entry]:
        """Return what is in the log."""
        return await self.log.read(LOG)

    async def kinds(self) -> list[tuple[str, object]]:
        """Return what the entries are, and which kind of event or type of chunk each holds."""
        return [(entry.kind, entry.body.get("kind") or entry.body["type"]) for entry in await self.entries()]


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    """An empty log."""
    board = Board(SQLiteEventLog(tmp_path / "events.sqlite"))
    yield board
    await board.writer.close()
    await board.log.close()


async def test_what_is_told_is_in_the_log_when_the_activity_ends(board: Board) -> None:
    """In order: how the last step ended, milestones, and then the course of what tells it."""
    call = ToolResult(output=None).settle(CALL)
    settled = SettledStep(step=2, calls=(call,))
    await board.tell(
        PublishInput(source=RUN, settled=settled, milestones=(_milestone(0), _milestone(1)), runs=(STARTED,))
    )
    assert await board.kinds() == [
        ("chunk", "tool-output-available"),
        ("chunk", "finish-step"),
        ("milestone", "data-agent-milestone"),
        ("milestone", "data-agent-milestone"),
        ("run", "started"),
    ]
    entries = await board.entries()
    assert [(entry.source, entry.step, entry.attempt) for entry in entries[:3]] == [
        (RUN, None, 1),
        (RUN, None, 1),
        (RUN, None, 1),
    ]
    assert entries[0].body["output"] is None
    assert entries[2].body["id"] == "r/runs/s:0"


async def test_nothing_to_tell_is_nothing_in_the_log(board: Board) -> None:
    """The beginning of a turn has no step before it."""
    await board.tell(PublishInput(source=TURN))
    assert await board.entries() == []


EVERYTHING = PublishInput(
    source=RUN,
    settled=SettledStep(step=0, calls=(ToolResult(output=1).settle(CALL),)),
    milestones=(_milestone(0), _milestone(1)),
    runs=(STARTED, RunFinished(run_id="r/runs/s")),
    turn=TurnStarted(turn_id="1", message_id="m"),
)


async def test_what_is_told_again_is_not_in_the_log_again(board: Board) -> None:
    """A workflow task that failed runs its local activities again, in whatever process."""
    await board.tell(EVERYTHING)
    entries = await board.entries()
    await board.tell(EVERYTHING, EVERYTHING.model_copy(update={"runs": (STARTED,)}))
    other = EventWriter(board.log)
    other.add(*published(EVERYTHING))
    await other.close()
    assert await board.entries() == entries


def test_keys_are_the_same_at_every_time_and_different_for_everything_that_is_told() -> None:
    """Nothing is taken for a repetition of something else: of another step, call, milestone or source."""
    two_calls = tuple(CALL.model_copy(update={"tool_call_id": f"c{n}", "state": "output-available"}) for n in (1, 11))
    told = [
        EVERYTHING.model_copy(update={"source": source, "settled": SettledStep(step=step, calls=two_calls)})
        for source in (TURN, f"{TURN}1", RUN, f"{LOG}/runs/r")
        for step in (0, 1, 11)
    ]
    keys = {entry.key for one in told for entry in published(one)}
    assert keys == {entry.key for one in told for entry in published(one)}
    assert len(keys) == 4 * (3 * (2 + 1) + 2 + 2)


async def test_an_output_that_its_own_activity_showed_is_not_shown_again(board: Board) -> None:
    """A tool's activity, the next model step and the workflow all tell of it; the first one counts."""
    calls = tuple(CALL.model_copy(update={"tool_call_id": call_id}) for call_id in ("a", "b", "c"))
    results = (ToolResult(output=1), ToolResult(error="no"), ToolResult(output=3))
    settled = tuple(result.settle(call) for result, call in zip(results, calls, strict=True))
    board.writer.add(output_entry(TURN, 0, settled[1]), output_entry(TURN, 0, settled[0]))
    step = SettledStep(step=0, calls=settled)
    board.writer.add(*settled_entries(TURN, step))
    await board.tell(PublishInput(source=TURN, settled=step, turn=TurnFinished(turn_id="1")))
    assert [(entry.kind, entry.body.get("toolCallId")) for entry in await board.entries()] == [
        ("chunk", "b"),
        ("chunk", "a"),
        ("chunk", "c"),
        ("chunk", None),
        ("turn", None),
        ("turn", None),
    ]


async def test_calls_of_one_id_in_two_steps_have_an_output_each(board: Board) -> None:
    """Field case 13: some providers count their calls from 0 in every answer."""
    for step in (0, 1):
        settled = SettledStep(step=step, calls=(ToolResult(output=step).settle(CALL),))
        await board.tell(PublishInput(source=TURN, settled=settled))
    outputs = [entry.body["output"] for entry in await board.entries() if "output" in entry.body]
    assert outputs == [0, 1]


async def test_a_call_without_a_result_has_none_in_the_log(board: Board) -> None:
    """Neither an open call nor what a call has come to so far is a result."""
    preliminary = CALL.model_copy(update={"state": "output-available", "output": 1, "preliminary": True})
    await board.tell(PublishInput(source=TURN, settled=SettledStep(step=0, calls=(CALL, preliminary))))
    assert await board.kinds() == [("chunk", "finish-step")]


async def test_ev_17_a_run_that_was_given_up_ends_once_more(board: Board) -> None:
    """EV-17: `interrupted` and the end that comes after it are two things, each of them once."""
    given_up = RunInterrupted(run_id="r/runs/s", error="e", reason="no-progress", child_still_running=True)
    finished = RunFinished(run_id="r/runs/s", summary="s")
    for event in (given_up, given_up, finished, given_up, finished):
        await board.tell(PublishInput(source=RUN, runs=(event,)))
    assert [entry.body for entry in await board.entries()] == [
        {
            "kind": "interrupted",
            "runId": "r/runs/s",
            "error": "e",
            "reason": "no-progress",
            "childStillRunning": True,
        },
        {"kind": "finished", "runId": "r/runs/s", "summary": "s"},
    ]


@pytest.mark.parametrize(
    "ends",
    [
        (RunFinished(run_id="r"), RunError(run_id="r", error="e"), RunAborted(run_id="r")),
        (RunAborted(run_id="r"), RunError(run_id="r", error="e"), RunFinished(run_id="r")),
    ],
)
async def test_cr_14_a_run_ends_once_whoever_tells_of_it(board: Board, ends: tuple[RunEvent, ...]) -> None:
    """CR-14: the run itself and the one that dispatched it may both tell, and not in the same words."""
    for event in ends:
        await board.tell(PublishInput(source=RUN, runs=(event,)))
    assert await board.kinds() == [("run", ends[0].kind)]


@pytest.mark.parametrize(
    "ends",
    [
        (TurnFinished(turn_id="1"), TurnError(turn_id="1", error="e")),
        (TurnAborted(turn_id="1"), TurnFinished(turn_id="1")),
    ],
)
async def test_a_turn_ends_once_whoever_tells_of_it(board: Board, ends: tuple[TurnEvent, ...]) -> None:
    """The turn itself and its session may both tell."""
    for event in ends:
        await board.tell(PublishInput(source=TURN, turn=event))
    assert await board.kinds() == [("turn", "started"), ("turn", ends[0].kind)]


async def test_di_15_a_run_that_was_refused_and_dispatched_again_ends_in_the_log_as_it_did(
    desk: Desk, event_log: EventLog
) -> None:
    """DI-15 as decided: a refusal is not remembered, so it is not the last word of the live log either."""
    registry, session = desk.client.registry, desk.session_id("Capped")

    async def dispatch(run_id: str, query: str) -> bool:
        request = DispatchRunInput(run_id=run_id, profile=registry.profile("Researcher"), input={"query": query})
        return (await desk.client.runs.dispatch(session, registry.profile("Capped"), request)).refused

    for run_id in ("a", "b"):
        assert not await dispatch(run_id, f'call wait {{"name": "{desk.name}"}}')
    assert await dispatch("c", "say c")
    gate(desk.name).set()
    await desk.client.runs.wait(session, ("a",))
    await eventually(lambda: dispatch("c", "say c"), lambda refused: not refused)
    assert (await desk.client.runs.wait(session, ("c",))).status == "completed"
    entries = await event_log.read(session, source=names.run_workflow_id(session, "c"))
    assert (entries[-1].kind, entries[-1].body.get("kind")) == ("run", "finished")
