"""What somebody who watches an instance knows of it: its turns and its tree of runs, as values that never change."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from pydantic import JsonValue

from turnkeeper.messages import Part, ToolPart
from turnkeeper.runs import (
    END_STATUSES,
    AgentToolMilestone,
    AgentToolProgress,
    Display,
    InterruptedReason,
    RunStatus,
)
from turnkeeper.streamed_parts import StreamedParts
from turnkeeper.turns import TURN_END_STATUSES, TurnStatus


class SubAgent(NamedTuple):
    """Where a run's agent is found (CR-01)."""

    agent: str
    name: str


@dataclass(frozen=True, kw_only=True)
class _View:
    error: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    streamed: StreamedParts = field(default_factory=StreamedParts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the message, as far as they have streamed."""
        return self.streamed.parts

    @property
    def text(self) -> str:
        """Its text."""
        return self.streamed.text

    @property
    def tool_parts(self) -> tuple[ToolPart, ...]:
        """Its tool calls, in order."""
        return self.streamed.tool_parts


@dataclass(frozen=True, kw_only=True)
class TurnView(_View):
    """A turn as far as its frames tell."""

    turn_id: str
    message_id: str
    status: TurnStatus = "running"

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status not in TURN_END_STATUSES


@dataclass(frozen=True, kw_only=True)
class RunView(_View):
    """A run as far as its frames tell."""

    run_id: str
    """Its path below the root instance: `a`, or `a/runs/b` for a run of a run."""
    agent_type: str
    status: RunStatus = "running"
    order: int = 0
    parent_tool_call_id: str | None = None
    input_preview: JsonValue = None
    display: Display | None = None
    summary: str | None = None
    reason: InterruptedReason | None = None
    child_still_running: bool | None = None
    is_refused: bool = False
    """Whether it was not admitted; the same run id may be dispatched again (DI-15)."""
    progress: AgentToolProgress | None = None
    """The latest report."""
    progress_sequence: int = -1
    """The sequence of the frame that `progress` is from."""
    milestones: tuple[AgentToolMilestone, ...] = ()
    """By their sequence."""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended, nor been given up."""
        return self.status not in END_STATUSES

    @property
    def sub_agent(self) -> SubAgent:
        """Where its agent is found."""
        return SubAgent(self.agent_type, self.run_id)

    @property
    def parent_id(self) -> str | None:
        """The path of the run that dispatched it, or None below the root instance."""
        return self.run_id.rpartition("/runs/")[0] or None


class Sequences(NamedTuple):
    """Numbers that were seen, as inclusive ranges in order: mostly one, because frames come in order."""

    ranges: tuple[tuple[int, int], ...] = ()

    def holds(self, number: int) -> bool:
        """Tell whether a number was seen."""
        place = self._place(number)
        return place > 0 and number <= self.ranges[place - 1][1]

    def plus(self, number: int) -> "Sequences":
        """Return these with one more that was not among them."""
        place = self._place(number)
        before, behind = self.ranges[:place], self.ranges[place:]
        first = last = number
        if before and before[-1][1] == number - 1:
            first, before = before[-1][0], before[:-1]
        if behind and behind[0][0] == number + 1:
            last, behind = behind[0][1], behind[1:]
        return Sequences((*before, (first, last), *behind))

    def _place(self, number: int) -> int:
        """Return how many ranges begin at a number or before."""
        return bisect_right(self.ranges, number, key=lambda known: known[0])


@dataclass(frozen=True)
class WatchState:
    """The turns and runs of an instance, as far as its frames tell."""

    runs_by_id: Mapping[str, RunView] = field(default_factory=dict)
    """By their path below the root instance."""
    turns_by_id: Mapping[str, TurnView] = field(default_factory=dict)
    lost: int = 0
    """How many entries the live log has lost, so that parts may be incomplete."""
    seen: Mapping[str, Sequences] = field(default_factory=dict)
    """Which frames of each source are accounted for (CR-18)."""

    @cached_property
    def turns(self) -> tuple[TurnView, ...]:
        """The turns in order."""
        return tuple(sorted(self.turns_by_id.values(), key=lambda turn: (len(turn.turn_id), turn.turn_id)))

    @cached_property
    def runs_by_tool_call_id(self) -> Mapping[str, tuple[RunView, ...]]:
        """The runs that tool calls dispatched, those of one call by their order, then by their id (CR-02)."""
        runs: dict[str, tuple[RunView, ...]] = {}
        for run in self._ordered_runs:
            if run.parent_tool_call_id is not None:
                runs[run.parent_tool_call_id] = (*runs.get(run.parent_tool_call_id, ()), run)
        return runs

    @cached_property
    def unbound_runs(self) -> tuple[RunView, ...]:
        """The runs that no tool call dispatched (CR-03)."""
        return tuple(run for run in self._ordered_runs if run.parent_tool_call_id is None)

    @cached_property
    def open_runs(self) -> tuple[RunView, ...]:
        """The runs that go on."""
        return tuple(run for run in self._ordered_runs if run.is_open)

    def get_runs_for_tool_call(self, tool_call_id: str) -> tuple[RunView, ...]:
        """Return the runs that a tool call dispatched; none for a call that dispatched none (CR-21)."""
        return self.runs_by_tool_call_id.get(tool_call_id, ())

    def runs_below(self, parent_id: str | None) -> tuple[RunView, ...]:
        """Return the runs that a run dispatched, or with None those that the root instance did."""
        return tuple(run for run in self._ordered_runs if run.parent_id == parent_id)

    @cached_property
    def _ordered_runs(self) -> list[RunView]:
        return sorted(self.runs_by_id.values(), key=lambda run: (run.order, run.run_id))
