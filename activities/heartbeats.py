"""Heartbeats from the background, so that a cancel or a dead worker is noticed whatever the activity does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Beat every third of the heartbeat time-out while the body runs.

    A cancel of the activity is delivered by the server's answer to a heartbeat; without one it would never arrive
    (field case 20).
    """
    timeout = activity.info().heartbeat_timeout
    if timeout is None:
        yield
        return

    async def beat(seconds: float) -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(seconds)

    beater = asyncio.create_task(beat(timeout.total_seconds() / 3))
    try:
        yield
    finally:
        beater.cancel()
