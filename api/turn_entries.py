"""The entries of a log from a turn's beginning, until its end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta

from api.dependencies import Instance
from api.event_reader import EventReader
from turnkeeper import names
from turnkeeper.errors import NotFound, Unavailable
from turnkeeper.event_log.entries import PAGE, Entry
from turnkeeper.event_log.feed import FellBehind
from turnkeeper.turns import TURN_END_STATUSES

CHECK_INTERVAL = timedelta(seconds=2)
"""How often, while nothing comes, a turn is asked whether it has ended without the log's knowledge."""

STORE_PATIENCE = timedelta(seconds=5)
"""How long the end of a stream waits for the turn's message to be in the transcript."""


async def first_position(events: EventReader, instance: Instance, turn_id: str) -> int | None:
    """Return the id before a turn's first entry, or None if it has none (yet)."""
    source = names.turn_workflow_id(instance.session_id, turn_id)
    try:
        first = await events.read(instance.session_id, limit=1, source=source)
    except Unavailable:
        return None  # The turn is told from Temporal at its end, or from the log when it is back.
    return first[0].id - 1 if first else None


async def backlog(events: EventReader, instance: Instance, after: int) -> list[Entry]:
    """Return everything that a log holds after an id."""
    entries: list[Entry] = []
    with suppress(Unavailable):
        while page := await events.read(instance.session_id, after, PAGE):
            entries.extend(page)
            after = page[-1].id
    return entries


async def live_entries(
    events: EventReader, instance: Instance, turn_id: str, after: int
) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield what comes after an id, and an empty list whenever nothing came for `CHECK_INTERVAL`.

    Ends by itself when the turn has ended and the log stays silent about it.
    """
    check = _EndCheck(instance, turn_id)
    while True:
        try:
            async with aclosing(events.follow(instance.session_id, after, CHECK_INTERVAL)) as batches:
                async for entries in batches:
                    yield entries
                    after = entries[-1].id if entries else after
                    if await check.says_ended():
                        return
        except FellBehind:
            continue  # A slow reader of one turn reads on from the log itself, at its own pace.
        except Unavailable:
            yield []
            await asyncio.sleep(CHECK_INTERVAL.total_seconds())
            if await check.says_ended():
                return


class _EndCheck:
    """Asks now and then whether a turn has ended, whatever else the log tells of."""

    def __init__(self, instance: Instance, turn_id: str) -> None:
        self._instance = instance
        self._turn_id = turn_id
        self._checked_at = time.monotonic()
        self._positive = 0

    async def says_ended(self) -> bool:
        """Tell whether the turn had ended at two checks in a row: the log may be a moment behind."""
        if time.monotonic() - self._checked_at < CHECK_INTERVAL.total_seconds():
            return False
        self._checked_at = time.monotonic()
        self._positive = self._positive + 1 if await _has_ended(self._instance, self._turn_id) else 0
        return self._positive >= 2


async def _has_ended(instance: Instance, turn_id: str) -> bool:
    try:
        turn = await instance.client.standing(instance.agent, instance.name, turn_id)
    except (NotFound, Unavailable):
        return False
    return turn.status in TURN_END_STATUSES


async def until_stored(instance: Instance, turn_id: str) -> None:
    """Wait until a turn that has ended is in its session's transcript, so that its reader finds it there."""
    with suppress(NotFound, Unavailable, TimeoutError):
        async with asyncio.timeout(STORE_PATIENCE.total_seconds()):
            await instance.client.wait_for_turn(instance.agent, instance.name, turn_id)
