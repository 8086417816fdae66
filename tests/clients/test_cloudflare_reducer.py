"""What Cloudflare's `agents` package makes of the frames of `GET .../events`: its reducer, and its React hook."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from clients.chats import Chat
from clients.npm_clients import Json, NpmClients
from desk_script import start_afresh
from model_server import ModelServer

CLIENT = "agents"
TWO_RUNS = 'call survey_both {"left": "north", "right": "south"}'
REDUCED = ("reducedLive", "reducedReplayed")
HOOKED = ("hookedLive", "hookedTwice")


@pytest.fixture(scope="module")
async def two_runs(chat_server: str, npm_clients: NpmClients, model_server: ModelServer) -> AsyncIterator[Json]:
    """What the client makes of a turn with two runs, and the turn's message."""
    start_afresh(model_server)
    async with Chat(chat_server, npm_clients) as chat:
        yield {**await followed(chat, TWO_RUNS), "answer": (await chat.history())[1]}


async def followed(chat: Chat, text: str) -> Json:
    """Have the client follow a turn, and then its replay."""
    return await chat.clients.drive(CLIENT, {"url": chat.url("").rstrip("/"), "text": text})


def timeless(value: Any) -> Any:
    """Leave out the times at which the client took something in."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "at"}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def chunks_of(found: Json, kind: str) -> list[tuple[str, Json]]:
    """Return the chunks of a type that came live, each with its run's id."""
    frames = [frame["event"] for frame in found["live"] if frame["type"] == "agent-tool-event"]
    chunks = [(event["runId"], json.loads(event["body"])) for event in frames if event["kind"] == "chunk"]
    return [(run_id, chunk) for run_id, chunk in chunks if chunk["type"] == kind]


async def test_a_late_client_gets_the_same_frames_and_the_same_state(two_runs: Json) -> None:
    """EV-10 to EV-12: the replay is the sequence that was seen live, marked as replay."""
    assert all(frame.get("replay") is True for frame in two_runs["replayed"])
    assert [{**frame, "replay": None} for frame in two_runs["live"]] == [
        {**frame, "replay": None} for frame in two_runs["replayed"]
    ]
    assert timeless(two_runs["reducedLive"]) == timeless(two_runs["reducedReplayed"])


@pytest.mark.parametrize("view", REDUCED)
async def test_runs_are_found_by_their_tool_call_in_order(two_runs: Json, view: str) -> None:
    """CR rows: grouped under the call that dispatched them, by display order."""
    state = two_runs[view]
    [call] = [part for part in two_runs["answer"]["parts"] if "toolCallId" in part]
    runs = state["runsByToolCallId"][call["toolCallId"]]
    assert [(run["order"], run["agentType"], run["status"]) for run in runs] == [
        (0, "Surveyor", "completed"),
        (1, "Surveyor", "completed"),
    ]
    assert [run["summary"] for run in runs] == ["done: looked at south", "done: looked at north"]
    assert list(state["runsByToolCallId"]) == [call["toolCallId"]]
    assert state["unboundRuns"] == []
    assert {run["runId"] for run in runs} == set(state["runsById"])


@pytest.mark.parametrize("view", REDUCED)
async def test_a_run_is_drawn_with_its_parts(two_runs: Json, view: str) -> None:
    """EV-03: the parts that the reducer builds are those of the run's own transcript."""
    state = two_runs[view]
    for run in state["runsById"].values():
        kinds = [part["type"] for part in run["parts"]]
        milestones = ["data-agent-milestone"] * 2
        assert kinds == ["step-start", "tool-look", *milestones, "step-start", "text"]
        assert run["parts"][-1]["text"] == run["summary"]
        assert run["parts"][1]["state"] == "output-available"


@pytest.mark.parametrize("view", [*REDUCED, *HOOKED])
async def test_the_bar_stands_at_the_last_report(two_runs: Json, view: str) -> None:
    """CR-06: progress is the latest report, live, replayed, and in the hook that drops what it has seen."""
    state = two_runs[view]
    shown = [(run["progress"].get("fraction"), run["progress"].get("phase")) for run in state["runsById"].values()]
    assert shown == [(1.0, "done")] * 2


@pytest.mark.parametrize("view", [*REDUCED, *HOOKED])
async def test_milestones_are_in_order_and_there_once(two_runs: Json, view: str) -> None:
    """MS-03, MS-06: name, sequence and data, however often they come."""
    state = two_runs[view]
    for run in state["runsById"].values():
        milestones = [(item["name"], item["sequence"], sorted(item["data"])) for item in run["milestones"]]
        assert milestones == [("half-way", 0, ["seen"]), ("drawn", 1, ["pages"])]


@pytest.mark.parametrize("view", REDUCED)
async def test_a_milestones_time_is_when_it_was_reached(two_runs: Json, view: str) -> None:
    """MS-06: the client reads `at` as milliseconds, and takes its own clock for anything else."""
    told = {(run_id, body["data"]["at"]) for run_id, body in chunks_of(two_runs, "data-agent-milestone")}
    shown = {(run["runId"], item["at"]) for run in two_runs[view]["runsById"].values() for item in run["milestones"]}
    assert shown == told


async def test_the_progress_that_came_before_a_milestone_is_not_lost(chat: Chat) -> None:
    """MS-07: a milestone without a fraction leaves the bar where it is, at least in a replay."""
    found = await followed(chat, f"call survey {json.dumps({'query': 'call reach {}'})}")
    [run] = found["reducedReplayed"]["runsById"].values()
    assert run["progress"].get("fraction") == 0.5


async def test_frames_that_come_twice_change_nothing(two_runs: Json) -> None:
    """EV-12: a page that reconnects gets the whole replay on top of what it has."""
    assert timeless(two_runs["hookedTwice"]) == timeless(two_runs["hookedLive"])
    assert timeless(two_runs["hookedLive"]) == timeless(two_runs["reducedLive"])


async def test_every_report_is_new_to_a_client_that_drops_what_it_has_seen(two_runs: Json) -> None:
    """Clients 3: `useAgentToolEvents` knows a report by its chunk's id, so each needs one of its own."""
    ids = [(run_id, body["id"]) for run_id, body in chunks_of(two_runs, "data-agent-progress")]
    assert len(ids) > 2
    assert len(set(ids)) == len(ids)


async def test_a_run_of_a_run_does_not_disturb_its_parent(chat: Chat) -> None:
    """Design 5: the whole tree is in one feed; each run has its own state, its own call and its own numbers."""
    look = json.dumps({"query": 'call look {"name": "deep"}'})
    text = f"call delegate {json.dumps({'query': f'call survey {look}'})}"
    found = await followed(chat, text)
    for view in REDUCED:
        state = found[view]
        outer, inner = (state["runsById"][run_id] for run_id in ("1-0-0", "1-0-0/runs/0-0-0"))
        assert (outer["agentType"], inner["agentType"]) == ("Foreman", "Surveyor")
        assert [part["type"] for part in outer["parts"]] == ["step-start", "tool-survey", "step-start", "text"]
        assert "progress" not in outer
        assert "milestones" not in outer
        assert [item["name"] for item in inner["milestones"]] == ["half-way", "drawn"]
        assert inner["parentToolCallId"] == outer["parts"][1]["toolCallId"]
        assert {len(runs) for runs in state["runsByToolCallId"].values()} == {1}
    numbers: dict[str, list[int]] = {}
    for frame in found["live"]:
        numbers.setdefault(frame["source"], []).append(frame["sequence"])
    assert all(given == list(range(len(given))) for given in numbers.values())


async def test_a_run_that_fails_is_told_with_its_error(chat: Chat) -> None:
    """EV-05."""
    found = await followed(chat, f"call research {json.dumps({'query': 'refuse 400'})}")
    for view in (*REDUCED, *HOOKED):
        [run] = found[view]["runsById"].values()
        assert (run["status"], bool(run["error"])) == ("error", True)
