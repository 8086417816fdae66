"""Unit tests of the worker's composition root."""

import pytest
from temporalio.client import Client

import worker
from activities.model_answers import ModelClient
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings


@pytest.mark.parametrize(("cache", "tasks"), [(0, 1), (2, 2), (4, 4), (100, 100), (1000, 100)])
async def test_no_more_workflow_tasks_are_open_than_the_cache_has_room_for(
    temporal: Client,
    registry: AgentRegistry,
    models: ModelClient,
    event_writer: EventWriter,
    settings: Settings,
    cache: int,
    tasks: int,
) -> None:
    """A task without room evicts a workflow that waits in its own task for a local activity, which then times out."""
    own = settings.model_copy(update={"workflow_cache": cache, "poll": (f"room-for-{cache}",)})

    built = worker.build_workers(temporal, registry, models, event_writer, own)

    assert {part.config()["max_concurrent_workflow_tasks"] for part in built} == {tasks}
