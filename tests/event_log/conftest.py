"""An empty store of each backend for every test of the event log."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from event_stores import EventStore, RedisStore, SQLiteStore
from redis.asyncio import Redis
from redis_server import RedisServer

from turnkeeper.event_log.entries import EventLog


@pytest.fixture(scope="session")
async def redis_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisServer]:
    """A server for all tests that do not end it."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> SQLiteStore:
    """A file that is not there yet."""
    return SQLiteStore(tmp_path / "events.sqlite")


@pytest.fixture
async def redis_store(redis_server: RedisServer) -> RedisStore:
    """A server that holds nothing."""
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    return RedisStore(redis_server)


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[EventStore]:
    """An empty store, of each backend in turn."""
    found: EventStore = request.getfixturevalue(f"{request.param}_store")
    yield found
    found.resume()


@pytest.fixture
async def log(store: EventStore) -> AsyncIterator[EventLog]:
    """A log on the store."""
    async with AsyncExitStack() as stack:
        opened = store.open()
        stack.push_async_callback(opened.close)
        yield opened


@pytest.fixture
async def other(store: EventStore) -> AsyncIterator[EventLog]:
    """A log on the same store with connections of its own, as another process has."""
    async with AsyncExitStack() as stack:
        opened = store.open()
        stack.push_async_callback(opened.close)
        yield opened
