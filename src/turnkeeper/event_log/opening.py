"""Opens the log that a process's settings name, and keeps it from growing for ever."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from turnkeeper.event_log.entries import EventLog
from turnkeeper.event_log.redis import RedisEventLog
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.settings import Settings

TRIM_INTERVAL = timedelta(hours=1)

logger = logging.getLogger("turnkeeper.event_log")


async def open_event_log(settings: Settings) -> EventLog:
    """Return the log of `TURNKEEPER_EVENT_LOG`: Redis or Valkey for a `redis://` address, else a SQLite file.

    A Redis server need not answer yet.
    """
    if settings.event_log:
        return RedisEventLog(settings.event_log)
    return await SQLiteEventLog.open(settings.data_dir / "events.sqlite")


async def keep_trimmed(log: EventLog, retention: timedelta) -> None:
    """Forget what is older than `retention`, every `TRIM_INTERVAL`, until cancelled."""
    while True:
        try:
            await log.trim(datetime.now(UTC) - retention)
        except Exception as error:
            logger.warning("the event log could not be trimmed, and will be later: %r", error)
        await asyncio.sleep(TRIM_INTERVAL.total_seconds())
