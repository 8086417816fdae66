"""The application, with a worker behind it."""

from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest
from desk_script import start_afresh
from model_server import ModelServer
from temporalio.client import Client

from api.app import create_app
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings


@pytest.fixture
async def api(
    temporal: Client, registry: AgentRegistry, settings: Settings, running_worker: None, model_server: ModelServer
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, with a worker behind it."""
    start_afresh(model_server)
    app = create_app(settings, temporal, registry)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            yield client


@pytest.fixture
def name() -> str:
    """An instance name that nobody else uses."""
    return uuid4().hex[:12]
