"""Following a run that somebody else dispatched: as long as it shows signs of life (DI-09, RC-05 to RC-11).

A run that its dispatcher started needs none of this: it is awaited as a Temporal child, however long it takes (AW-03).
"""

import asyncio
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import Literal

from turnkeeper.dispatches import ReattachWindows
from turnkeeper.errors import NotFound
from turnkeeper.runs import AgentToolResult
from turnkeeper.workflow_requests import WorkflowRequests

LONGEST_LOOK_PAUSE = timedelta(seconds=5)
"""Between two looks at a run's signs of life, which needs no worker and leaves no history."""

GaveUp = Literal["no-progress", "window-exceeded"]

GAVE_UP_TEXTS: dict[GaveUp, str] = {
    "no-progress": "The run was given up: it showed no sign of progress for too long. It goes on.",
    "window-exceeded": "The run was given up and cancelled: it took too long.",
}


async def result_within(
    requests: WorkflowRequests,
    workflow_id: str,
    windows: ReattachWindows,
    waiting: Awaitable[AgentToolResult],
    waited: timedelta = timedelta(),
) -> AgentToolResult | GaveUp:
    """Wait for the end of a run within windows.

    Args:
        requests: looks at the run.
        workflow_id: the run.
        windows: how long to wait.
        waiting: the wait for its end itself.
        waited: how long it was waited for before, by an attempt that was lost.

    Returns:
        How it ended, or which window it exceeded.
    """
    ended = asyncio.ensure_future(waiting)
    started = time.monotonic() - waited.total_seconds()
    pause = _look_pause(windows)
    try:
        if windows.no_progress == timedelta() and (await requests.describe(workflow_id)).close_time is None:
            return "no-progress"
        signs, silent_since = await _signs_of_life(requests, workflow_id), time.monotonic()
        while not (await asyncio.wait([ended], timeout=pause))[0]:
            now = time.monotonic()
            if windows.max_window is not None and now - started >= windows.max_window.total_seconds():
                return "window-exceeded"
            seen = await _signs_of_life(requests, workflow_id)
            if seen != signs:
                signs, silent_since = seen, now
            elif windows.no_progress is not None and now - silent_since >= windows.no_progress.total_seconds():
                return "no-progress"
        return ended.result()
    finally:
        ended.cancel()


async def _signs_of_life(requests: WorkflowRequests, workflow_id: str) -> tuple[object, ...]:
    """Return what changes when a run gets on: its history, what its model streams, and the same of its own runs.

    That an activity's worker is alive is no such sign: its heartbeats count only for what they say of its progress.
    """
    try:
        found = (await requests.describe(workflow_id)).raw_description
    except NotFound:
        return ()
    streamed = tuple(
        payload.data for activity in found.pending_activities for payload in activity.heartbeat_details.payloads
    )
    children = [await _signs_of_life(requests, child.workflow_id) for child in found.pending_children]
    return (found.workflow_execution_info.history_length, streamed, *children)


def _look_pause(windows: ReattachWindows) -> float:
    limits = [window for window in (windows.no_progress, windows.max_window) if window]
    return min([LONGEST_LOOK_PAUSE, *(limit / 10 for limit in limits)]).total_seconds()
