"""Heartbeats from the background, so that a cancel or a dead worker is noticed whatever the activity does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity

HEARTBEAT_INTERVAL = timedelta(seconds=3)
"""A cancel reaches an activity within about this time. Workers must not throttle heartbeats more than that: by default
the SDK lets one pass every 80 % of the heartbeat time-out, 16 s of 20 s."""


class Heart:
    """What the heartbeats say."""

    progress: int = 0
    """Grows as the work gets on, for those who look whether it does (`turnkeeper.reattachment`)."""


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    """Beat every `HEARTBEAT_INTERVAL` while the body runs.

    A cancel of the activity is delivered by the server's answer to a heartbeat; without one it would never arrive
    (field case 20).
    """
    heart = Heart()

    async def beat() -> None:
        while True:
            activity.heartbeat(heart.progress)
            await asyncio.sleep(HEARTBEAT_INTERVAL.total_seconds())

    beater = asyncio.create_task(beat())
    try:
        yield heart
    finally:
        beater.cancel()
