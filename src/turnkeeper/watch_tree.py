"""How an instance looks to whoever watches it: a tree of turns, tool calls and runs, for `rich`."""

import unicodedata
from collections.abc import Sequence
from datetime import datetime

from pydantic import JsonValue
from rich.text import Text
from rich.tree import Tree

from turnkeeper.messages import TextPart, ToolPart
from turnkeeper.runs import compact_json
from turnkeeper.watch_state import RunView, TurnView, WatchState

LATEST_TURNS = 5
"""How many turns are shown; those before are only counted."""

TEXT_LINES = 6
VALUE_LENGTH = 60
BAR_LENGTH = 20

MARKS = {
    "queued": ("…", "dim"),
    "starting": ("…", "dim"),
    "running": ("●", "yellow"),
    "completed": ("✓", "green"),
    "error": ("✗", "red"),
    "aborted": ("■", "red"),
    "interrupted": ("?", "magenta"),
}
"""The sign and the style of each status."""

_CALL_STATUSES = {"output-available": "completed", "output-error": "error"}


def instance_tree(title: str, state: WatchState, run_id: str | None = None) -> Tree:
    """Return the tree of an instance, or of one of its runs and what is below it."""
    tree = Tree(Text(printable(title), "bold"), guide_style="dim")
    if run_id is not None:
        if run_id in state.runs_by_id:
            _add_run(tree, state.runs_by_id[run_id], state)
    else:
        _add_turns(tree, state)
    if not tree.children:
        tree.add(Text("nothing yet", "dim"))
    if state.lost:
        tree.add(Text(f"the live log lost {state.lost} entries: what is shown may be incomplete", "yellow"))
    return tree


def printable(text: str) -> str:
    """Return `text` without control characters, by which what an agent writes could take over a terminal."""
    spaced = text.replace("\t", " ")
    return "".join(char for char in spaced if char == "\n" or not unicodedata.category(char).startswith("C"))


def run_title(run: RunView) -> str:
    """Return what a run is called."""
    return (run.display.name if run.display else None) or run.agent_type


def brief(value: JsonValue, length: int = VALUE_LENGTH) -> str:
    """Return a value in one line."""
    text = value if isinstance(value, str) else compact_json(value)
    line = " ".join(printable(text).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def call_title(part: ToolPart) -> str:
    """Return a tool call as it would be written."""
    given = part.input if isinstance(part.input, dict) else {}
    arguments = ", ".join(f"{name}={brief(repr(value), VALUE_LENGTH // 2)}" for name, value in given.items())
    return f"{printable(part.tool_name)}({printable(arguments)})"


def _add_turns(tree: Tree, state: WatchState) -> None:
    owners = {run.run_id: _turn_of(run, state.turns) for run in state.runs_below(None)}
    if len(state.turns) > LATEST_TURNS:
        tree.add(Text(f"… {len(state.turns) - LATEST_TURNS} earlier turns", "dim"))
    for turn in state.turns[-LATEST_TURNS:]:
        branch = tree.add(_turn_line(turn))
        runs = [run for run in state.runs_below(None) if owners[run.run_id] == turn.turn_id]
        _add_message(branch, turn, runs, state)
        if turn.error is not None:
            branch.add(_block(turn.error, "red"))
    for run in state.runs_below(None):
        if owners[run.run_id] is None:
            _add_run(tree, run, state)


def _turn_of(run: RunView, turns: Sequence[TurnView]) -> str | None:
    """Return the turn that dispatched a run: the latest that made the call, because providers reuse call ids."""
    calling = [turn for turn in turns if any(part.tool_call_id == run.parent_tool_call_id for part in turn.tool_parts)]
    before = [turn for turn in calling if _is_before(turn.started_at, run.started_at)]
    found = before or calling
    return found[-1].turn_id if found else None


def _is_before(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and other is not None and one <= other


def _add_run(branch: Tree, run: RunView, state: WatchState) -> None:
    inner = branch.add(_run_line(run))
    _add_message(inner, run, state.runs_below(run.run_id), state)
    if run.error is not None:
        inner.add(_block(run.error, "red"))
    elif run.summary:
        inner.add(_block(run.summary))


def _add_message(branch: Tree, view: TurnView | RunView, runs: Sequence[RunView], state: WatchState) -> None:
    """Add what a turn or run has written: its calls with their runs, and its text."""
    remaining = list(runs)
    for part in view.parts:
        if isinstance(part, ToolPart):
            call = branch.add(_call_line(part))
            for run in [run for run in remaining if run.parent_tool_call_id == part.tool_call_id]:
                remaining.remove(run)
                _add_run(call, run, state)
        elif isinstance(part, TextPart) and part.text.strip() and (isinstance(view, TurnView) or view.is_open):
            # Of a run that has ended, its summary is shown.
            branch.add(_block(part.text, from_end=view.is_open))
    for run in remaining:
        _add_run(branch, run, state)


def _turn_line(turn: TurnView) -> Text:
    line = _status_line(f"turn {turn.turn_id}", turn.status)
    return line.append(_duration(turn), "dim")


def _run_line(run: RunView) -> Text:
    line = _status_line(run_title(run), run.status, "bold magenta").append(_duration(run), "dim")
    if run.input_preview is not None:
        line.append(f"  {brief(run.input_preview)}", "dim")
    progress = run.progress
    fraction = 1.0 if run.status == "completed" else progress.fraction if progress else None
    if fraction is not None and progress is not None:
        line.append("  ").append_text(_bar(fraction, MARKS[run.status][1]))
    if progress is not None and run.is_open:
        line.append("".join(f"  {brief(told)}" for told in (progress.phase, progress.message) if told))
    for milestone in run.milestones:
        line.append("  ").append(f"◆ {brief(milestone.name)}", "cyan")
    if run.reason is not None:
        line.append(f"  {run.reason}{', still running' if run.child_still_running else ''}", "magenta")
    return line


def _call_line(part: ToolPart) -> Text:
    status = _CALL_STATUSES.get(part.state, "running") if not part.preliminary else "running"
    line = Text(f"{MARKS[status][0]} ", MARKS[status][1]).append(call_title(part), "cyan")
    return line.append(f"  {brief(part.error_text)}", "red") if part.error_text else line


def _status_line(title: str, status: str, style: str = "bold") -> Text:
    mark, color = MARKS[status]
    return Text(f"{mark} ", color).append(printable(title), style).append(f"  {status}", color)


def _duration(view: TurnView | RunView) -> str:
    if view.started_at is None or view.ended_at is None:
        return ""
    return f" in {(view.ended_at - view.started_at).total_seconds():.1f} s"


def _bar(fraction: float, style: str) -> Text:
    done = round(fraction * BAR_LENGTH)
    bar = Text("━" * done, style).append("━" * (BAR_LENGTH - done), "bright_black")
    return bar.append(f" {fraction:4.0%}", style)


def _block(text: str, style: str = "", *, from_end: bool = False) -> Text:
    """Return the beginning of a text, or while it is being written, its end."""
    lines = [line for line in printable(text).strip().splitlines() if line.strip()]
    if len(lines) > TEXT_LINES:
        lines = ["…", *lines[-TEXT_LINES:]] if from_end else [*lines[:TEXT_LINES], "…"]
    return Text("\n".join(lines), style)
