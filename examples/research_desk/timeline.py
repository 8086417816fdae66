"""The demo's timeline: what the frames of an instance tell, line by line as it happens."""

import asyncio
import json
from collections import defaultdict
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from turnkeeper.frames import AgentToolEventFrame, Frame, MessageFrame, RunChunk, TurnChunk, TurnEventFrame
from turnkeeper.http_answers import Turn
from turnkeeper.run_views import apply_frame
from turnkeeper.runs import AgentToolProgress
from turnkeeper.watch_state import RunView, TurnView, WatchState
from turnkeeper.watch_tree import brief, call_title, printable, run_title

WIDTH = 100


class Timeline:
    """Prints what the frames of turns and runs tell, with the seconds since the first turn was submitted."""

    def __init__(self, console: Console, agent: str, turn: Turn) -> None:
        """Print to `console` what happens in an instance of `agent` from the beginning of `turn`."""
        self._ends: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._console = console
        self._agent = agent
        self._first_turn = int(turn.turn_id)
        self._has_begun = False
        self._began = turn.submitted_at or datetime.now(UTC)
        self._state = WatchState()

    async def has_shown_the_end_of(self, turn: Turn) -> None:
        """Wait until the end of a turn has been printed."""
        await self._ends[turn.turn_id].wait()

    def show(self, frame: Frame) -> None:
        """Print what a frame tells; nothing for what was before the first turn, which the log still holds."""
        before = self._state
        if isinstance(frame, TurnEventFrame) and int(frame.event.turn_id) >= self._first_turn:
            self._has_begun = True
        if not self._has_begun:
            return
        if isinstance(frame, MessageFrame):
            self._tell(frame, self._agent, f"says: {frame.message.text}", style="cyan")
            return
        self._state = apply_frame(before, frame)
        if self._state is before:
            return
        if isinstance(frame, TurnEventFrame):
            self._show_turn(frame)
        elif isinstance(frame, AgentToolEventFrame):
            self._show_run(frame, before.runs_by_id.get(frame.event.run_id))

    def _show_turn(self, frame: TurnEventFrame) -> None:
        turn = self._state.turns_by_id.get(frame.event.turn_id)
        if turn is None:
            return
        if isinstance(frame.event, TurnChunk):
            self._show_chunk(frame, frame.event.body, self._agent, turn)
            return
        style = {"completed": "green", "running": ""}.get(turn.status, "red")
        self._tell(frame, self._agent, f"turn {turn.turn_id} is {turn.status}", style=style)
        if not turn.is_open:
            self._ends[turn.turn_id].set()

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
        frame: AgentToolEventFrame | MessageFrame | TurnEventFrame,
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
