"""Has `on_progress` called with the reports of the runs that a workflow dispatched, one after the other (PR-11)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from turnkeeper.outcomes import failure_text
from turnkeeper.runs import AgentToolRunInfo
from turnkeeper.turns import RunReported
from workflows.run_starts import Dispatcher, call_hook

CLOSING_PATIENCE = timedelta(seconds=5)
"""How long a turn's end waits for `on_progress` to hear of milestones that are on their way to it."""


class ProgressHooks:
    """Reports on their way to the agent's hook; nobody waits for it, and its failure is logged and nothing else."""

    def __init__(
        self,
        dispatcher: Callable[[], Dispatcher],
        find_info: Callable[[str], AgentToolRunInfo | None],
        waiting: Iterable[RunReported] = (),
        should_pause: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call the hook of the dispatcher's agent.

        Args:
            dispatcher: gives whose agent it is.
            find_info: finds a run's row by its id.
            waiting: reports from before a continue-as-new.
            should_pause: tells that no further call should begin, because the workflow is about to continue as new.
        """
        self._dispatcher = dispatcher
        self._find_info = find_info
        self._should_pause = should_pause
        self._queue = deque(waiting)
        self._caller: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way or waits."""
        return self._caller is not None and not self._caller.done()

    def offer(self, reported: RunReported) -> None:
        """Take a report: progress replaces older progress of the same run that still waits, a milestone does not."""
        if reported.progress.milestone is None:
            self._drop_progress(reported.run_id)
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
        for run_id in {reported.run_id for reported in self._queue}:
            self._drop_progress(run_id)
        if self._caller is None:
            return
        try:
            await workflow.wait_condition(self._caller.done, timeout=CLOSING_PATIENCE)
        except TimeoutError:
            workflow.logger.warning("on_progress takes long: %d milestones are not told", len(self._queue))
        finally:
            self._queue.clear()
            self._caller.cancel()

    def _drop_progress(self, run_id: str) -> None:
        self._queue = deque(
            reported for reported in self._queue if reported.run_id != run_id or reported.progress.milestone is not None
        )

    async def _call_all(self) -> None:
        while self._queue and not self._should_pause():
            reported = self._queue.popleft()
            info = self._find_info(reported.run_id)
            if info is None:
                continue
            row, progress = info.model_dump(mode="json"), reported.progress.model_dump(mode="json")
            about = f"{reported.run_id}/{reported.progress.at.isoformat()}"
            try:
                await call_hook(self._dispatcher(), "on_progress", row, progress, about=about)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    return
                workflow.logger.error("on_progress failed for run %s: %s", reported.run_id, failure_text(error))
