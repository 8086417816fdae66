"""Has `on_progress` called with the reports of the runs that a workflow dispatched, one after the other (PR-11)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from turnkeeper.dispatches import RunReported
from turnkeeper.outcomes import failure_text
from turnkeeper.runs import AgentToolRunInfo
from workflows.run_starts import Dispatcher, call_hook

CLOSING_PATIENCE = timedelta(seconds=5)
"""How long a turn's end waits for `on_progress` to hear of milestones that are on their way to it."""


class ProgressHooks:
    """Reports on their way to the agent's hook; nobody waits for it, and its failure is logged and nothing else."""

    def __init__(
        self,
        find: Callable[[RunReported], tuple[Dispatcher, AgentToolRunInfo] | None],
        waiting: Iterable[RunReported] = (),
        should_pause: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call the hooks of the agents whose runs report.

        Args:
            find: finds who dispatched the run of a report, and its row.
            waiting: reports from before a continue-as-new.
            should_pause: tells that no further call should begin, because the workflow is about to continue as new.
        """
        self._find = find
        self._should_pause = should_pause
        self._queue = deque(waiting)
        self._caller: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way or waits."""
        return self._caller is not None and not self._caller.done()

    def offer(self, reported: RunReported) -> None:
        """Take a report: progress replaces older progress of the same run that still waits, a milestone does not."""
        found = self._find(reported)
        if found is None or "on_progress" not in found[0].profile.hooks:
            return
        if reported.progress.milestone is None:
            self._drop_progress(reported.path)
        self._queue.append(reported)
        if not self.is_busy:
            self._caller = asyncio.create_task(self._call_all())

    @property
    def waiting(self) -> tuple[RunReported, ...]:
        """What a continue-as-new carries."""
        return tuple(self._queue)

    def resume(self) -> None:
        """Go on calling, after a continue-as-new."""
        if self._queue and not self.is_busy:
            self._caller = asyncio.create_task(self._call_all())

    async def close(self) -> None:
        """Give the milestones that wait a moment, and drop the rest: nobody waits for this hook (PR-11)."""
        for path in {reported.path for reported in self._queue}:
            self._drop_progress(path)
        if self._caller is None:
            return
        try:
            await workflow.wait_condition(self._caller.done, timeout=CLOSING_PATIENCE)
        except TimeoutError:
            workflow.logger.warning("on_progress takes long: %d milestones are not told", len(self._queue))
        finally:
            self._queue.clear()
            self._caller.cancel()

    def _drop_progress(self, path: str) -> None:
        self._queue = deque(
            reported for reported in self._queue if reported.path != path or reported.progress.milestone is not None
        )

    async def _call_all(self) -> None:
        while self._queue and not self._should_pause():
            reported = self._queue.popleft()
            found = self._find(reported)
            if found is None:
                continue
            dispatcher, info = found
            row, progress = info.model_dump(mode="json"), reported.progress.model_dump(mode="json")
            about = f"{reported.path}/{reported.progress.at.isoformat()}"
            try:
                await call_hook(dispatcher, "on_progress", row, progress, about=about)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    return
                workflow.logger.error("on_progress failed for run %s: %s", reported.run_id, failure_text(error))
