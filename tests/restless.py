"""A server that suggests to continue as new early, with a worker: for what must hold over a continue-as-new."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from temporalio.client import Client

import worker
from activities.model_answers import ModelClient
from turnkeeper.dev_server import dev_server
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

ROOT = Path(__file__).parent.parent


@asynccontextmanager
async def restless_server(
    suggested_at: int, registry: AgentRegistry, models: ModelClient, writer: EventWriter, settings: Settings
) -> AsyncIterator[Client]:
    """Run a server that suggests to continue as new after `suggested_at` events, and a worker; gives a client."""
    overrides = {"dynamic-config-value": [f"limit.historyCount.suggestContinueAsNew={suggested_at}"]}
    async with dev_server(ROOT / "temporal-dev.yaml", overrides=overrides) as server, AsyncExitStack() as stack:
        temporal = await Client.connect(server.address, plugins=[TurnkeeperPlugin(settings.payloads_dir)])
        for part in worker.build_workers(temporal, registry, models, writer, settings):
            await stack.enter_async_context(part)
        yield temporal


async def executions(temporal: Client, workflow_id: str) -> int:
    """Count the executions of a workflow id."""
    return len([it async for it in temporal.list_workflows(f"WorkflowId = '{workflow_id}'")])
