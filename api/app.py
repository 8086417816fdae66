"""The HTTP application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from temporalio.client import Client

from api.body_limit import BodyLimit
from api.errors import install_error_handlers
from api.event_reader import EventReader
from api.routes import agents, chat, events, health, pasted_ids, runs, turns
from turnkeeper.client import TurnkeeperClient
from turnkeeper.connection import connect
from turnkeeper.event_log.opening import open_event_log
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings


def create_app(
    settings: Settings | None = None, temporal: Client | None = None, registry: AgentRegistry | None = None
) -> FastAPI:
    """Return the application.

    Args:
        settings: read from the environment if not given.
        temporal: a client to use instead of connecting at start.
        registry: agents to serve instead of those in the modules that the settings name.
    """
    known_settings = settings or Settings()
    known_registry = registry or AgentRegistry.load(known_settings.agents)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        connected = temporal or await connect(known_settings)
        log = await open_event_log(known_settings)
        app.state.client = TurnkeeperClient(connected, known_registry, task_queue=known_settings.task_queue)
        app.state.events = EventReader(log)
        yield
        await app.state.events.close()
        await log.close()

    app = FastAPI(
        title="Turnkeeper",
        description="Agents as tools, durable, on Temporal.",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.add_middleware(BodyLimit)
    install_error_handlers(app)
    for module in (health, agents, turns, events, chat, runs, pasted_ids):
        app.include_router(module.router)
    return app
