"""The backend for several machines: a Redis or Valkey stream for each log.

One server, with replicas or not, but no cluster: batches and waits are of several logs at once.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from turnkeeper.event_log.entries import PAGE, Bounds, Entry, NewEntry

SERVER_PATIENCE = timedelta(seconds=3)
"""How long a server may take to answer before the call fails; a `wait` has its own patience on top."""

CONNECTIONS = 20
"""Connections that a process has at most; further calls wait for one."""

TRIM_PAGE = 100
"""Entries that one script looks at while trimming; the server does nothing else meanwhile."""

_LOGS = "turnkeeper:logs"
"""The set of the logs there are, for `trim`."""

# The stream itself remembers the last id, also when it is trimmed to nothing: a count beside it could be evicted
# without it, and would then give ids that the stream refuses for ever. Heads count the entries of each source.
_APPEND = """
local stream, heads, keys = KEYS[1], KEYS[2], KEYS[3]
local last = 0
if redis.call('EXISTS', stream) == 1 then
    local facts = redis.call('XINFO', 'STREAM', stream)
    for place = 1, #facts, 2 do
        if facts[place] == 'last-generated-id' then last = tonumber(string.match(facts[place + 1], '^%d+')) end
    end
end
for place = 1, #ARGV, 7 do
    local at, key, source, kind, step, attempt, body = unpack(ARGV, place, place + 6)
    if redis.call('SADD', keys, key) == 1 then
        last = last + 1
        local seq = redis.call('HINCRBY', heads, source, 1) - 1
        if seq == 0 then redis.call('HSET', heads, 'first:' .. source, last) end
        redis.call('XADD', stream, string.format('%d-0', last), 'at', at, 'key', key, 'source', source, 'seq', seq,
            'kind', kind, 'step', step, 'attempt', attempt, 'body', body)
    end
end
"""

# The first fields of an entry are its time and its key, see above.
_TRIM = """
local stream, keys = KEYS[1], KEYS[2]
local gone = 0
for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', ARGV[2])) do
    local fields = entry[2]
    if tonumber(fields[2]) >= tonumber(ARGV[1]) then break end
    redis.call('SREM', keys, fields[4])
    redis.call('XDEL', stream, entry[1])
    gone = gone + 1
end
return gone
"""


class RedisEventLog:
    """See `EventLog`."""

    def __init__(self, url: str) -> None:
        """Use the server at an address, which is first called when something is asked of it."""
        # One retry, because a connection of the pool may be older than the server. Calls are timed here, not by the
        # sockets, whose time-out would apply to every step of a call and cut a `wait` short.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 1),
            protocol=2,
            decode_responses=True,
        )
        self._redis: Redis = Redis.from_pool(pool)

    async def append(self, entries: Sequence[NewEntry]) -> None:
        """See `EventLog.append`."""
        by_log: dict[str, list[str | int | float]] = {}
        for entry in entries:
            by_log.setdefault(entry.log, []).extend(_values(entry))
        async with _answer(), self._redis.pipeline(transaction=True) as pipeline:
            for log, values in by_log.items():
                pipeline.eval(_APPEND, 3, _stream(log), _heads(log), _keys(log), *values)
            if by_log:
                pipeline.sadd(_LOGS, *by_log)
            await pipeline.execute()

    async def read(self, log: str, after: int = 0, limit: int = PAGE, source: str | None = None) -> list[Entry]:
        """See `EventLog.read`."""
        found: list[Entry] = []
        if source is not None:
            async with _answer():
                first = await self._redis.hget(_heads(log), f"first:{source}")
            if first is None:
                return []
            after = max(after, int(first) - 1)
        while True:
            count = limit if source is None else PAGE
            async with _answer():
                page: Any = await self._redis.xrange(_stream(log), min=f"{after + 1}-0", count=count)
            entries = [_entry(*item) for item in page]
            found += [entry for entry in entries if source is None or entry.source == source]
            if len(found) >= limit or len(entries) < count:
                return found[:limit]
            after = entries[-1].id

    async def wait(self, positions: Mapping[str, int], patience: timedelta) -> dict[str, list[Entry]]:
        """See `EventLog.wait`."""
        logs = {_stream(log): log for log in positions}
        after = {_stream(log): f"{position}-0" for log, position in positions.items()}
        # To block for 0 would mean for ever.
        milliseconds = max(1, round(patience.total_seconds() * 1000))
        async with _answer(patience):
            news: Any = await self._redis.xread(after, count=PAGE, block=milliseconds)  # type: ignore[arg-type]  # dict is invariant
        return {logs[stream]: [_entry(*item) for item in items] for stream, items in news}

    async def bounds(self, log: str) -> Bounds:
        """See `EventLog.bounds`."""
        async with _answer(), self._redis.pipeline(transaction=True) as pipeline:
            pipeline.exists(_stream(log))
            pipeline.xinfo_stream(_stream(log))
            exists, facts = await pipeline.execute(raise_on_error=False)
        if not exists:
            return Bounds(1, 0)
        if isinstance(facts, Exception):
            raise facts
        newest = _number(facts["last-generated-id"])
        oldest = facts["first-entry"]
        return Bounds(_number(oldest[0]) if oldest else newest + 1, newest)

    async def delete(self, log: str) -> None:
        """See `EventLog.delete`."""
        async with _answer(), self._redis.pipeline(transaction=True) as pipeline:
            pipeline.delete(_stream(log), _heads(log), _keys(log))
            pipeline.srem(_LOGS, log)
            await pipeline.execute()

    async def trim(self, before: datetime) -> None:
        """See `EventLog.trim`."""
        async with _answer():
            logs: Any = await self._redis.smembers(_LOGS)
        for log in logs:
            gone = TRIM_PAGE
            while gone == TRIM_PAGE:
                async with _answer():
                    gone = await self._redis.eval(_TRIM, 2, _stream(log), _keys(log), before.timestamp(), TRIM_PAGE)

    async def close(self) -> None:
        """See `EventLog.close`."""
        await self._redis.aclose()


@asynccontextmanager
async def _answer(patience: timedelta = timedelta()) -> AsyncIterator[None]:
    """Bound a call; redis-py drops a connection on which a call was cut short."""
    async with asyncio.timeout((patience + SERVER_PATIENCE).total_seconds()):
        yield


# The braces keep what belongs to a log in one place wherever keys are spread over servers.
def _stream(log: str) -> str:
    return f"turnkeeper:{{{log}}}:entries"


def _heads(log: str) -> str:
    return f"turnkeeper:{{{log}}}:heads"


def _keys(log: str) -> str:
    return f"turnkeeper:{{{log}}}:keys"


def _values(entry: NewEntry) -> tuple[str | int | float, ...]:
    body = json.dumps(entry.body, ensure_ascii=False, separators=(",", ":"))
    step = "" if entry.step is None else entry.step
    return entry.at.timestamp(), entry.key, entry.source, entry.kind, step, entry.attempt, body


def _entry(stream_id: str, fields: dict[str, Any]) -> Entry:
    # Only this file writes these, so they need no checking; that is most of the cost of reading one.
    return Entry.model_construct(
        id=_number(stream_id),
        at=datetime.fromtimestamp(float(fields["at"]), UTC),
        source=fields["source"],
        seq=int(fields["seq"]),
        key=fields["key"],
        kind=fields["kind"],
        step=int(fields["step"]) if fields["step"] else None,
        attempt=int(fields["attempt"]),
        body=json.loads(fields["body"]),
    )


def _number(stream_id: str) -> int:
    return int(stream_id.partition("-")[0])
