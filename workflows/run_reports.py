"""What an agent-tool run does with its code's reports: keeps, numbers, shows and forwards them (PR and MS rows)."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from temporalio import workflow

from turnkeeper.progress import MAX_MILESTONES, progress_of
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress
from turnkeeper.steps import PublishInput, ReachedMilestone
from turnkeeper.turns import Report, ReportInput, ReportState
from workflows.publishing import publish

REMEMBERED_REPORTS = 200
"""Milestone reports that are recognised when their signal comes twice, which happens around a continue-as-new."""

BAR_LENGTH = 20


class RunReports:
    """The latest progress and the milestones of one run."""

    def __init__(
        self, source: str, state: ReportState | None, forward: Callable[[AgentToolProgress], Awaitable[None]] | None
    ) -> None:
        """Begin, or go on from `state` after a continue-as-new.

        Args:
            source: the run's workflow id.
            state: what was before.
            forward: tells the dispatcher, if its agent wants to hear of it.
        """
        known = state or ReportState()
        self._source = source
        self._forward = forward
        self._seen = deque(known.seen, maxlen=REMEMBERED_REPORTS)
        self._to_publish: deque[ReachedMilestone] = deque()
        self._publisher: asyncio.Task[None] | None = None
        self._to_forward: deque[AgentToolProgress] = deque()
        self._forwarder: asyncio.Task[None] | None = None
        self.progress = known.progress
        self.milestones = list(known.milestones)

    @property
    def state(self) -> ReportState:
        """What a continue-as-new carries."""
        return ReportState(progress=self.progress, milestones=tuple(self.milestones), seen=tuple(self._seen))

    def take(self, told: ReportInput) -> None:
        """Note reports; what they set off happens beside the run's work."""
        for report in told.reports:
            if report.milestone is None:
                self.progress = progress_of(report)
                self._offer(self.progress)
            elif len(self.milestones) >= MAX_MILESTONES:
                workflow.logger.warning("milestone %s is dropped: the run has %d", report.milestone, MAX_MILESTONES)
            elif report.report_id not in self._seen:
                self._reach(report, report.milestone)
        workflow.set_current_details(self._details())
        # Apart from each other: the log does not wait for the dispatcher.
        if self._to_publish and _is_idle(self._publisher):
            self._publisher = asyncio.create_task(self._publish_all())
        if self._to_forward and _is_idle(self._forwarder):
            self._forwarder = asyncio.create_task(self._forward_all())

    @property
    def is_drained(self) -> bool:
        """Whether everything that was noted has been passed on."""
        return _is_idle(self._publisher) and _is_idle(self._forwarder)

    @property
    def is_published(self) -> bool:
        """Whether every milestone is in the live log."""
        return _is_idle(self._publisher)

    def _reach(self, report: Report, name: str) -> None:
        self._seen.append(report.report_id)
        milestone = AgentToolMilestone(name=name, sequence=len(self.milestones), at=report.at, data=report.data)
        self.milestones.append(milestone)
        self._to_publish.append(ReachedMilestone(milestone=milestone, report=report))
        self._offer(progress_of(report))

    def _offer(self, progress: AgentToolProgress) -> None:
        """Put a report last, in place of one before it that is no milestone and still waits."""
        if self._forward is None:
            return
        if progress.milestone is None and self._to_forward and self._to_forward[-1].milestone is None:
            self._to_forward.pop()
        self._to_forward.append(progress)

    async def _publish_all(self) -> None:
        while self._to_publish:
            reached = tuple(self._to_publish)
            self._to_publish.clear()
            # One after the other, so that they are told in order.
            await asyncio.wait([publish(PublishInput(source=self._source, milestones=reached))])

    async def _forward_all(self) -> None:
        while self._to_forward and self._forward is not None:
            await self._forward(self._to_forward.popleft())

    def _details(self) -> str:
        """Return what the Temporal UI shows as the run's current details, in Markdown."""
        lines = [f"- {milestone.at:%H:%M:%S} **{milestone.name}**" for milestone in self.milestones[-20:]]
        if self.progress is None:
            return "\n".join(lines)
        said = " · ".join(text for text in (self.progress.phase, self.progress.message) if text)
        if self.progress.fraction is not None:
            filled = round(self.progress.fraction * BAR_LENGTH)
            bar = "█" * filled + "░" * (BAR_LENGTH - filled)
            said = f"`{bar}` {self.progress.fraction:.0%} {said}".strip()
        return "\n\n".join(part for part in (said, "\n".join(lines)) if part)


def _is_idle(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
