"""A worker with agents whose detached runs are counted."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from desk import Desk, read_patience
from desk_script import start_afresh
from detached_agents import AGENTS, NOTES_VARIABLE
from model_server import ModelServer
from temporalio.client import Client

import worker
from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings

TASK_QUEUE = "foremen"


@pytest.fixture(scope="session")
def foremen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentRegistry]:
    """The agents of `detached_agents`, which note in a file of this test run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES_VARIABLE, str(tmp_path_factory.mktemp("notes") / "notes.jsonl"))
        yield AgentRegistry(AGENTS)


@pytest.fixture(scope="session")
async def foreman_worker(
    temporal: Client, foremen: AgentRegistry, models: ModelClient, event_writer: EventWriter, settings: Settings
) -> AsyncIterator[None]:
    """A worker in this process for those agents."""
    own = settings.model_copy(update={"task_queue": TASK_QUEUE})
    async with AsyncExitStack() as stack:
        for part in worker.build_workers(temporal, foremen, models, event_writer, own):
            await stack.enter_async_context(part)
        yield


@pytest.fixture
def foreman_desk(
    temporal: Client, foremen: AgentRegistry, settings: Settings, foreman_worker: None, model_server: ModelServer
) -> Desk:
    """A desk to ask them from."""
    start_afresh(model_server)
    client = TurnkeeperClient(temporal, foremen, task_queue=TASK_QUEUE, query_patience=read_patience(settings))
    return Desk(client, temporal)
