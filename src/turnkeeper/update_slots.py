"""How many updates one process has under way at one workflow: fewer than Temporal lets a workflow have in flight."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from weakref import WeakValueDictionary

from turnkeeper import names

PROMPT_SLOTS = 2
"""Updates under way at a time that their handler answers in the workflow task which brings them."""

WAITING_SLOTS = 3
"""Updates under way at a time whose handler waits for something, such as the start of a run."""

WAITING_UPDATES = frozenset({names.DISPATCH_RUN, names.CANCEL_RUN, names.CLEAR_RUNS})


class UpdateSlots:
    """Has updates to one workflow wait for each other in this process, first come, first served.

    A server that has 10 updates of a workflow in flight refuses the next one, and by that forgets the workflow task
    that carries the ten: all of them have to be sent again, and the worker's answer is in vain. Two processes, such as
    the API and a worker, stay below that together.
    """

    def __init__(self) -> None:
        """Begin with all slots free."""
        self._slots: WeakValueDictionary[tuple[str, bool], asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, workflow_id: str, name: str, patience: timedelta) -> AsyncIterator[timedelta]:
        """Hold a slot for an update; gives what is left of `patience`.

        Raises:
            TimeoutError: no slot came free in that time.
        """
        until = time.monotonic() + patience.total_seconds()
        slots = self._of(workflow_id, waits=name in WAITING_UPDATES)
        async with asyncio.timeout(patience.total_seconds()):
            await slots.acquire()
        try:
            yield timedelta(seconds=max(0.0, until - time.monotonic()))
        finally:
            slots.release()

    def _of(self, workflow_id: str, waits: bool) -> asyncio.Semaphore:
        # Kept by those who wait for one or hold one, so that a workflow nobody updates costs nothing.
        slots = self._slots.get((workflow_id, waits))
        if slots is None:
            slots = asyncio.Semaphore(WAITING_SLOTS if waits else PROMPT_SLOTS)
            self._slots[workflow_id, waits] = slots
        return slots
