"""`make demo`: the whole stack, one compare turn watched live, and what to try next."""

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from deploy.local_stack import LocalStack, local_stack, run_until
from turnkeeper.errors import TurnkeeperError
from turnkeeper.frames import AgentToolEventFrame, Frame, RunChunk, TurnChunk, TurnEventFrame
from turnkeeper.http_answers import Run, Turn
from turnkeeper.http_client import HttpClient
from turnkeeper.messages import TextPart
from turnkeeper.run_views import apply_frame
from turnkeeper.runs import AgentToolProgress
from turnkeeper.settings import Settings
from turnkeeper.watch_state import RunView, TurnView, WatchState
from turnkeeper.watch_tree import brief, call_title, printable, run_title

AGENT, NAME = "Assistant", "demo"
QUESTION = "Compare pydantic and attrs"
WIDTH = 100

LAST_FRAMES_PATIENCE = timedelta(seconds=3)
"""How long the timeline waits for the rest of a turn that has ended: what shows live may be lost, the turn is not."""


class Timeline:
    """Prints what the frames of a turn and its runs tell, with the seconds since the turn was submitted."""

    def __init__(self, console: Console, turn: Turn) -> None:
        """Print to `console` what happens from the beginning of `turn`."""
        self.has_ended = False
        self._console = console
        self._turn_id = turn.turn_id
        self._began = turn.submitted_at or datetime.now(UTC)
        self._state = WatchState()

    def show(self, frame: Frame) -> None:
        """Print what a frame tells; nothing for the frames of earlier turns, which the log still holds."""
        before = self._state
        if isinstance(frame, TurnEventFrame) and frame.event.turn_id != self._turn_id:
            return
        is_beginning = isinstance(frame, TurnEventFrame) and frame.event.kind == "started"
        if not is_beginning and self._turn_id not in before.turns_by_id:
            return
        self._state = apply_frame(before, frame)
        if self._state is before:
            return
        if isinstance(frame, TurnEventFrame):
            self._show_turn(frame)
        elif isinstance(frame, AgentToolEventFrame):
            self._show_run(frame, before.runs_by_id.get(frame.event.run_id))

    def _show_turn(self, frame: TurnEventFrame) -> None:
        turn = self._state.turns_by_id[self._turn_id]
        if isinstance(frame.event, TurnChunk):
            self._show_chunk(frame, frame.event.body, AGENT, turn)
            return
        style = {"completed": "green", "running": ""}.get(turn.status, "red")
        self._tell(frame, AGENT, f"turn {turn.turn_id} is {turn.status}", style=style)
        self.has_ended = not turn.is_open

    def _show_run(self, frame: AgentToolEventFrame, before: RunView | None) -> None:
        run = self._state.runs_by_id[frame.event.run_id]
        who = f"{run_title(run)} {run.order + 1}"
        if before is None:
            self._tell(frame, who, f"starts on {brief(run.input_preview)}", run=run)
        elif isinstance(frame.event, RunChunk):
            if len(run.milestones) > len(before.milestones):
                milestone = run.milestones[-1]
                self._tell(frame, who, f"◆ {milestone.name} {brief(milestone.data)}", run=run, style="cyan")
            elif run.progress is not None and run.progress != before.progress:
                self._tell(frame, who, _progress_line(run.progress), run=run, style="dim")
            else:
                self._show_chunk(frame, frame.event.body, who, run)
        else:
            style = "green" if run.status == "completed" else "red"
            self._tell(frame, who, f"{run.status}: {run.error or run.summary or ''}", run=run, style=style)

    def _show_chunk(
        self, frame: AgentToolEventFrame | TurnEventFrame, body: str, who: str, view: TurnView | RunView
    ) -> None:
        """Print a step's beginning, a call with its input, or how a call ended; text shows in the answer."""
        run = view if isinstance(view, RunView) else None
        chunk = json.loads(body)
        call = next((part for part in view.tool_parts if part.tool_call_id == chunk.get("toolCallId")), None)
        if chunk["type"] == "start-step":
            self._tell(frame, who, f"step {(frame.step or 0) + 1}", run=run, style="dim")
        elif call is None:
            return
        elif chunk["type"] == "tool-input-available":
            self._tell(frame, who, f"calls {call_title(call)}", run=run)
        elif call.state == "output-error":
            self._tell(frame, who, f"{call.tool_name} failed: {call.error_text}", run=run, style="red")
        elif call.is_settled:
            self._tell(frame, who, f"{call.tool_name} answered", run=run, style="green")

    def _tell(
        self,
        frame: AgentToolEventFrame | TurnEventFrame,
        who: str,
        what: str,
        *,
        run: RunView | None = None,
        style: str = "",
    ) -> None:
        depth = 0 if run is None else 1 + run.run_id.count("/runs/")
        line = Text(f"{(frame.at - self._began).total_seconds():6.2f} s  ", style="dim")
        line.append("   " * depth)
        line.append(f"{printable(who)}  ", style="bold magenta" if depth else "bold cyan")
        line.append(printable(what).replace("\n", " "), style=style)
        line.truncate(WIDTH, overflow="ellipsis")
        self._console.print(line)


def _progress_line(progress: AgentToolProgress) -> str:
    fraction = "" if progress.fraction is None else f"{progress.fraction:4.0%}"
    return "  ".join(told for told in (fraction, progress.phase, progress.message) if told)


async def watch(client: HttpClient, turn: Turn, timeline: Timeline) -> Turn:
    """Print a turn and its runs as they go on; returns the turn when it has ended."""
    showing = asyncio.create_task(show_events(client, timeline))
    try:
        ended = await client.wait(AGENT, NAME, turn.turn_id)
        await asyncio.wait([showing], timeout=LAST_FRAMES_PATIENCE.total_seconds())
        return ended
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def show_events(client: HttpClient, timeline: Timeline) -> None:
    """Print what happens until the timeline's turn has ended."""
    async with aclosing(client.events(AGENT, NAME)) as events:
        async for _, frame in events:
            timeline.show(frame)
            if timeline.has_ended:
                return


def ui_link(stack: LocalStack, workflow_id: str) -> str:
    """Return the address of a workflow in the Temporal UI."""
    return f"{stack.temporal_ui_url}/namespaces/default/workflows/{quote(workflow_id, safe='')}"


async def run_demo(stack: LocalStack, console: Console) -> bool:
    """Submit the question, watch its turn and print what came of it; returns whether it was answered."""
    model = os.environ.get("TURNKEEPER_MODEL")
    console.print(f"Model: {model or 'the offline model, a set of rules (set TURNKEEPER_MODEL for a real one)'}\n")
    async with HttpClient(stack.api_url) as client:
        submitted = await client.submit(AGENT, NAME, QUESTION)
        console.print(f"[bold]You:[/bold] {QUESTION}\n")
        turn = await watch(client, submitted, Timeline(console, submitted))
        runs = await runs_of(client, turn)
    print_answer(console, turn)
    console.print("In the Temporal UI:")
    console.print(f"  the turn  {ui_link(stack, turn.workflow_id)}", soft_wrap=True)
    for run in runs:
        console.print(f"  a run     {ui_link(stack, run.workflow_id)}", soft_wrap=True)
    print_next_steps(console, stack)
    return turn.status == "completed"


async def runs_of(client: HttpClient, turn: Turn) -> list[Run]:
    """Return the runs that a turn dispatched, in the order in which they are to be shown."""
    runs = await client.runs(AGENT, NAME)
    begun = [run for run in runs if turn.started_at is not None and run.started_at >= turn.started_at]
    return sorted(begun, key=lambda run: run.display_order)


def print_next_steps(console: Console, stack: LocalStack) -> None:
    """Print commands to try while the stack is up."""
    instance = f"{stack.api_url}/agents/{AGENT}/{NAME}"
    console.print("\nTry next:")
    for line in (
        f".venv/bin/turnkeeper-watch {AGENT}/{NAME} --url {stack.api_url}",
        f"curl -s '{instance}/turns?wait=true' -H 'content-type: application/json' "
        '-d \'{"message": "Research temporal workflows"}\'',
        f"curl -sN {instance}/events",
        f"{stack.api_url}/docs",
    ):
        console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
    console.print()


def print_answer(console: Console, turn: Turn) -> None:
    """Print what the assistant wrote, or why there is nothing."""
    if turn.status == "completed":
        parts = turn.message.parts if turn.message else ()
        text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
        console.print(Panel(Markdown(printable(text)), title=AGENT, border_style="green"))
    else:
        console.print(Panel(Text(printable(turn.error or turn.status)), title="The turn failed", border_style="red"))


async def main() -> int:
    """Run the demo; with DEMO_ONCE=1 stop after the turn. Returns the exit status."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH + 20)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console.print("Starting Temporal, a worker and the API ...")
    try:
        async with local_stack(Settings()) as stack:
            answered = await run_demo(stack, console)
            if os.environ.get("DEMO_ONCE") == "1" or not answered:
                return 0 if answered else 1
            console.print("Everything stays up until Ctrl-C.")
            return await run_until(stack, stop)
    except (TurnkeeperError, httpx.HTTPError) as error:
        console.print(f"demo: {error}", style="red")
        return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
