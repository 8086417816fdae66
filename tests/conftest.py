"""What the tests share: the embedded Temporal server, a worker, a model server, and a desk to ask from."""

import os
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from desk import Desk, read_patience
from desk_agents import AGENTS
from desk_script import start_afresh
from model_server import ModelServer
from pydantic import SecretStr
from temporalio.client import Client
from webhook_receiver import WEBHOOK_SECRET, Receiver, webhook_receiver

import worker
from activities.model_answers import ModelClient
from turnkeeper.client import TurnkeeperClient
from turnkeeper.dev_server import DevServer, dev_server
from turnkeeper.event_log.entries import EventLog
from turnkeeper.event_log.opening import open_event_log
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records histories instead of replaying them."""
    parser.addoption("--record-histories", action="store_true", help="record the histories that are replayed")


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The settings of this test run; `TURNKEEPER_WORKFLOW_CACHE=0` has workflows replayed at every task."""
    return Settings(
        data_dir=tmp_path_factory.mktemp("data"),
        webhook_secret=(SecretStr(WEBHOOK_SECRET),),
        webhook_private_addresses=True,
    )


@pytest.fixture(scope="session")
async def model_server() -> AsyncIterator[ModelServer]:
    """A model server on loopback that litellm finds as the provider `openai`."""
    async with ModelServer() as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_API_BASE", server.url)
            patch.setenv("OPENAI_API_KEY", "test")
            yield server


@pytest.fixture(scope="session")
async def temporal_server() -> AsyncIterator[DevServer]:
    """An embedded Temporal server in memory."""
    async with dev_server(ROOT / "temporal-dev.yaml") as server:
        yield server


@pytest.fixture(scope="session")
async def temporal(temporal_server: DevServer, settings: Settings) -> Client:
    """A client with Turnkeeper's plugin."""
    return await Client.connect(temporal_server.address, plugins=[TurnkeeperPlugin(settings.payloads_dir)])


@pytest.fixture(scope="session")
def registry() -> AgentRegistry:
    """The agents that the tests talk to."""
    return AgentRegistry(AGENTS)


@pytest.fixture(scope="session")
async def models(registry: AgentRegistry, model_server: ModelServer) -> ModelClient:
    """The real litellm client, which talks to the model server."""
    return await worker.load_models(registry)


@pytest.fixture(scope="session")
async def event_log(settings: Settings) -> AsyncIterator[EventLog]:
    """The live log."""
    log = await open_event_log(settings)
    yield log
    await log.close()


@pytest.fixture(scope="session")
async def event_writer(event_log: EventLog) -> AsyncIterator[EventWriter]:
    """What writes to the live log."""
    writer = EventWriter(event_log)
    yield writer
    await writer.close()


@pytest.fixture(scope="session")
async def running_worker(
    temporal: Client, registry: AgentRegistry, models: ModelClient, event_writer: EventWriter, settings: Settings
) -> AsyncIterator[None]:
    """A worker in this process."""
    async with AsyncExitStack() as stack:
        for part in worker.build_workers(temporal, registry, models, event_writer, settings):
            await stack.enter_async_context(part)
        yield


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of webhooks."""
    async with webhook_receiver() as listening:
        yield listening


@pytest.fixture
def desk(
    temporal: Client, registry: AgentRegistry, settings: Settings, running_worker: None, model_server: ModelServer
) -> Desk:
    """A desk with an instance name of its own, served by the running worker."""
    start_afresh(model_server)
    return Desk(TurnkeeperClient(temporal, registry, query_patience=read_patience(settings)), temporal)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under `TURNKEEPER_TEST_ALL=1`, as in CI, count a skipped test as a failure."""
    report = yield
    if report.skipped and os.environ.get("TURNKEEPER_TEST_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped although TURNKEEPER_TEST_ALL=1: {report.longrepr}"
    return report
