"""The watch command as its user runs it, against the real API; and what its tree shows."""

import asyncio
import errno
import os
import pty
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from desk import eventually
from desk_agents import calls, gate
from desk_script import start_afresh
from model_server import ModelServer
from rich.console import Console
from served import served
from temporalio.client import Client

from api.app import create_app
from turnkeeper.dev_server import free_port
from turnkeeper.frames import (
    AgentToolEventFrame,
    Frame,
    GapFrame,
    RunChunk,
    RunEvent,
    RunFinished,
    RunInterrupted,
    RunStarted,
    TurnChunk,
    TurnEvent,
    TurnEventFrame,
    TurnStarted,
)
from turnkeeper.http_client import HttpClient
from turnkeeper.registry import AgentRegistry
from turnkeeper.run_views import apply_frame
from turnkeeper.settings import Settings
from turnkeeper.watch import main
from turnkeeper.watch_state import WatchState
from turnkeeper.watch_tree import instance_tree, printable

ROOT = Path(__file__).parent.parent.parent
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def name() -> str:
    """An instance name that nobody else uses."""
    return uuid4().hex[:12]


@pytest.fixture
async def client(
    temporal: Client, registry: AgentRegistry, settings: Settings, running_worker: None, model_server: ModelServer
) -> AsyncIterator[HttpClient]:
    """A client of the API."""
    start_afresh(model_server)
    async with served(create_app(settings, temporal, registry)) as url, HttpClient(url) as found:
        yield found


async def run_watch(*arguments: str) -> tuple[int | None, str, str]:
    """Run the command; returns its exit status and what it printed, and printed as errors."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnkeeper.watch", *arguments, cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    output, errors = await asyncio.wait_for(command.communicate(), 60)
    return command.returncode, output.decode(), errors.decode()


async def noted(text: str) -> bool:
    """Tell whether a tool has begun."""
    return text in calls


async def test_a_turn_with_two_runs_is_shown_as_a_tree_when_nothing_goes_on(client: HttpClient, name: str) -> None:
    """Issue B, item 7: without a terminal, the final tree."""
    wait = f'call wait {{\\"name\\": \\"{name}\\"}}'
    await client.submit("Assistant", name, f'call compare {{"left": "{wait}", "right": "say the right side"}}')
    await eventually(lambda: noted(f"wait {name}"), bool)
    watching = asyncio.create_task(run_watch(f"Assistant/{name}", "--url", client.url, "--once"))
    gate(name).set()
    await client.wait("Assistant", name, "1")
    status, output, errors = await watching
    lines = [line.rstrip() for line in output.splitlines()]
    assert (status, errors) == (0, "")
    assert lines[0] == f"Assistant/{name}"
    assert lines[1].startswith("└── ✓ turn 1  completed in ")
    assert lines[2].startswith("    ├── ✓ compare(left=")
    assert lines[3].startswith("    │   ├── ✓ Researcher  completed in ")
    assert lines[4] == f"    │   │   ├── ✓ wait(name='{name}')"
    assert lines[5] == f"    │   │   └── done: {name} is open"
    assert lines[6].startswith("    │   └── ✓ Researcher  completed in ")
    assert lines[7] == "    │       └── the right side"
    assert lines[8].startswith("    └── done: ")


async def test_one_run_is_watched_until_its_end(client: HttpClient, name: str) -> None:
    """Issue B, item 7: `--run`, also of a run of a run; it ends by itself."""
    inner = 'call research {\\"query\\": \\"say deep\\"}'
    await client.submit("Assistant", name, f'call delegate {{"query": "{inner}"}}')
    await client.wait("Assistant", name, "1")
    status, output, _ = await run_watch(f"Assistant/{name}", "--url", client.url, "--run", "1-0-0")
    assert (status, "✓ Assistant  completed" in output, "✓ Researcher  completed" in output) == (0, True, True)
    status, output, _ = await run_watch(f"Assistant/{name}", "--url", client.url, "--run", "1-0-0/runs/0-0-0", "--once")
    assert (status, output.splitlines()[0]) == (0, f"Assistant/{name}/runs/1-0-0/runs/0-0-0")
    assert (output.splitlines()[2].strip(), "Assistant  completed" in output) == ("└── deep", False)


async def test_a_terminal_shows_what_goes_on_while_it_goes_on(client: HttpClient, name: str) -> None:
    """Issue B, item 7: live, before the gate opens."""
    await client.submit("Clerk", name, f'call wait {{"name": "{name}"}}')
    screen, terminal = pty.openpty()
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnkeeper.watch", f"Clerk/{name}", "--url", client.url, "--once"),
        cwd=ROOT,
        stdout=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(terminal)
    try:
        shown = ""
        while f"● wait(name='{name}')" not in strip_styles(shown):
            shown += await asyncio.to_thread(read_screen, screen)
        assert "● turn 1  running" in strip_styles(shown)
        gate(name).set()
        while piece := await asyncio.to_thread(read_screen, screen):
            shown += piece
        assert await asyncio.wait_for(command.wait(), 30) == 0
        assert f"done: {name} is open" in strip_styles(shown)
    finally:
        os.close(screen)


def strip_styles(shown: str) -> str:
    """Return what a terminal shows without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


def read_screen(screen: int) -> str:
    """Return what a terminal shows next; nothing when nobody writes any more."""
    try:
        return os.read(screen, 65536).decode(errors="replace")
    except OSError as error:
        if error.errno != errno.EIO:  # How Linux says that the other side is closed.
            raise
        return ""


async def test_what_cannot_be_watched_is_said_at_once(client: HttpClient, name: str) -> None:
    """Issue B, item 7: clear errors, for people."""
    for arguments, text in (
        ((f"Nobody/{name}", "--url", client.url), "serves no agent 'Nobody', but Assistant, "),
        ((f"Assistant/{name}", "--url", client.url, "--once"), f"there is no instance Assistant/{name} yet"),
        ((f"Assistant/{name}", "--url", client.url, "--run", "a"), f"there is no run Assistant/{name}/runs/a"),
        ((f"Assistant/{name}", "--url", f"http://127.0.0.1:{free_port()}"), "does not answer"),
        ((f"Assistant/{name}", "--url", "http://127.0.0.1:port"), "is no address"),
    ):
        status, output, errors = await run_watch(*arguments)
        assert (status, output) == (1, "")
        assert errors.startswith("turnkeeper-watch: ")
        assert text in errors


@pytest.mark.parametrize("arguments", [[], ["Assistant"], ["a/b/c"], ["Assistant/x", "--run", "a/b"]])
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Issue B, item 7: as every command does it."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: turnkeeper-watch" in capsys.readouterr().err


def of_run(sequence: int, event: RunEvent, call: str | None = None) -> Frame:
    """Return a frame of a run."""
    at = AT + timedelta(seconds=sequence)
    source = f"t/A/n/runs/{event.run_id}"
    return AgentToolEventFrame(source=source, sequence=sequence, at=at, parent_tool_call_id=call, event=event)


def of_turn(sequence: int, event: TurnEvent, seconds: int = 0) -> Frame:
    """Return a frame of a turn."""
    at = AT + timedelta(seconds=seconds)
    return TurnEventFrame(source=f"t/A/n/turns/{event.turn_id}", sequence=sequence, at=at, event=event)


def shown(*frames: Frame, run: str | None = None) -> list[str]:
    """Return the lines of the tree that frames add up to."""
    state = WatchState()
    for frame in frames:
        state = apply_frame(state, frame)
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(instance_tree("A/n", state, run))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_run_shows_its_bar_phase_message_milestones_and_why_it_was_given_up() -> None:
    """Issue B, item 7."""
    reported = '{"type": "data-agent-progress", "data": {"fraction": 0.25, "phase": "reading", "message": "Page 5"}}'
    reached = '{"type": "data-agent-milestone", "id": "r:0", "data": {"name": "found", "sequence": 0}}'
    frames = [
        of_run(0, RunStarted(run_id="r", agent_type="Reader", input_preview={"q": "x"})),
        of_run(1, RunChunk(run_id="r", body=reached)),
        of_run(2, RunChunk(run_id="r", body=reported)),
    ]
    bar = f"{'━' * 20}  25%"
    assert shown(*frames)[1] == f'└── ● Reader  running  {{"q":"x"}}  {bar}  reading  Page 5  ◆ found'
    given_up = RunInterrupted(run_id="r", error="It took too long.", reason="no-progress", child_still_running=True)
    assert shown(*frames, of_run(3, given_up))[1:] == [
        f'└── ? Reader  interrupted in 3.0 s  {{"q":"x"}}  {bar}  ◆ found  no-progress, still running',
        "    └── It took too long.",
    ]


def test_runs_are_shown_under_the_turn_that_was_going_on_where_call_ids_are_used_twice() -> None:
    """DI-20: some providers reuse them; what no call dispatched is shown beside the turns."""
    body = '{"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {}}'
    frames: list[Frame] = []
    for turn, seconds in (("1", 0), ("2", 100)):
        frames.append(of_turn(0, TurnStarted(turn_id=turn, message_id="m"), seconds))
        frames.append(of_turn(1, TurnChunk(turn_id=turn, body=body), seconds))
    frames.append(of_run(50, RunStarted(run_id="early", agent_type="Early"), call="c"))
    frames.append(of_run(150, RunStarted(run_id="late", agent_type="Late"), call="c"))
    frames.append(of_run(0, RunStarted(run_id="alone", agent_type="Alone")))
    assert shown(*frames)[1:] == [
        "├── ● turn 1  running",
        "│   └── ● f()",
        "│       └── ● Early  running",
        "├── ● turn 2  running",
        "│   └── ● f()",
        "│       └── ● Late  running",
        "└── ● Alone  running",
    ]


def test_only_the_latest_turns_are_shown_and_what_was_lost_is_said() -> None:
    """Issue B, item 7: an instance may be old."""
    turns = [of_turn(0, TurnStarted(turn_id=str(number), message_id="m")) for number in range(1, 9)]
    lines = shown(*turns, GapFrame(source="t/A/n/turns/1", sequence=1, at=AT, lost=7))
    assert (lines[1], lines[2], lines[6]) == ("├── … 3 earlier turns", "├── ● turn 4  running", "├── ● turn 8  running")
    assert lines[7] == "└── the live log lost 7 entries: what is shown may be incomplete"


def test_one_run_is_shown_without_the_rest() -> None:
    """Issue B, item 7: `--run`."""
    frames = [of_run(0, RunStarted(run_id=run_id, agent_type=run_id[-1])) for run_id in ("a", "a/runs/b", "c")]
    frames.append(of_run(1, RunFinished(run_id="a/runs/b", summary="done")))
    assert shown(*frames, run="a")[1:] == [
        "└── ● a  running",
        "    └── ✓ b  completed in 1.0 s",
        "        └── done",
    ]
    assert shown(*frames, run="nope")[1:] == ["└── nothing yet"]


def test_what_an_agent_writes_cannot_take_over_the_terminal() -> None:
    """Design 8: control characters, direction marks and rich's own markup are only text."""
    assert printable("a\x1b[31mb\x9bc\u202ed\r\n\te") == "a[31mbcd\n e"
    ended = RunFinished(run_id="r", summary="[red]x[/red] \x1b]0;title\x07")
    frames = (of_run(0, RunStarted(run_id="r", agent_type="A")), of_run(1, ended))
    assert shown(*frames)[2] == "    └── [red]x[/red] ]0;title"
