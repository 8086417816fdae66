"""A worker and an API for the clients' agents, on a task queue of their own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from clients.chat_agents import AGENTS
from clients.chats import Chat
from clients.npm_clients import NpmClients
from desk_script import start_afresh
from model_server import ModelServer
from served import served
from temporalio.client import Client

import worker
from activities.model_answers import ModelClient
from api.app import create_app
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings


@pytest.fixture(scope="session")
async def chat_server(
    temporal: Client, models: ModelClient, event_writer: EventWriter, settings: Settings
) -> AsyncIterator[str]:
    """The address of the API, with a worker behind it."""
    own_settings = settings.model_copy(update={"task_queue": "clients"})
    registry = AgentRegistry(AGENTS)
    async with AsyncExitStack() as stack:
        for part in worker.build_workers(temporal, registry, models, event_writer, own_settings):
            await stack.enter_async_context(part)
        yield await stack.enter_async_context(served(create_app(own_settings, temporal, registry)))


@pytest.fixture(scope="session")
async def npm_clients() -> AsyncIterator[NpmClients]:
    """The real clients."""
    async with NpmClients() as clients:
        yield clients


@pytest.fixture
async def chat(chat_server: str, npm_clients: NpmClients, model_server: ModelServer) -> AsyncIterator[Chat]:
    """A chat that nobody else has."""
    start_afresh(model_server)
    async with Chat(chat_server, npm_clients) as chat:
        yield chat
