"""The composition root of a worker process: the only place where workflows, activities, agents and litellm meet."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from activities.agent_objects import AgentObjects
from activities.author_workflows import AuthorWorkflowActivities
from activities.heartbeats import HEARTBEAT_INTERVAL
from activities.hook_calls import HookActivities
from activities.model_answers import ModelClient
from activities.model_calls import ModelCallActivities
from activities.progress_reports import ProgressReporter
from activities.publishing import PublishActivities
from activities.run_watch import RunWatchActivities
from activities.tool_calls import ToolCallActivities
from activities.transcripts import TranscriptReader
from activities.webhooks import WebhookActivities
from turnkeeper.client import TurnkeeperClient
from turnkeeper.connection import connect
from turnkeeper.errors import TurnkeeperError
from turnkeeper.event_log.opening import keep_trimmed, open_event_log
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

MAX_CONCURRENT_ACTIVITIES = 1_000
"""Activities are coroutines that mostly wait, some for other agents; few slots would let them block each other."""

MAX_CONCURRENT_WORKFLOW_TASKS = 100
"""The SDK's own default."""

logger = logging.getLogger("turnkeeper.worker")


def build_workers(
    temporal: Client, registry: AgentRegistry, models: ModelClient, writer: EventWriter, settings: Settings
) -> list[Worker]:
    """Return a worker for each task queue that this process polls, the workflows' own first.

    Args:
        temporal: a client that was connected with `TurnkeeperPlugin`.
        registry: the agents that this process runs.
        models: what calls their models.
        writer: where to show what happens.
        settings: the process's settings.
    """
    client = TurnkeeperClient(temporal, registry, task_queue=settings.task_queue)
    agents = AgentObjects(client, registry, ProgressReporter(writer, client.requests))
    transcripts = TranscriptReader(client.requests)
    hooks = HookActivities(agents, transcripts, client.requests)
    run_watch = RunWatchActivities(client)
    authors = AuthorWorkflowActivities(client, registry)
    activities: list[Callable[..., Any]] = [
        ModelCallActivities(agents, transcripts, models, writer).call_model,
        ToolCallActivities(agents, writer).call_tool,
        hooks.call_hook,
        hooks.check_output,
        run_watch.attach_run,
        run_watch.read_stopped_turn,
        run_watch.inspect_runs,
        run_watch.dispatch_detached,
        PublishActivities(writer).publish,
        authors.dispatch_for_author,
        authors.cancel_for_author,
        WebhookActivities(
            [secret.get_secret_value() for secret in settings.webhook_secret],
            allows_private=settings.webhook_private_addresses,
        ).post_webhook,
    ]
    return [
        Worker(
            temporal,
            task_queue=task_queue,
            activities=activities,
            max_concurrent_activities=MAX_CONCURRENT_ACTIVITIES,
            max_cached_workflows=settings.workflow_cache,
            max_concurrent_workflow_tasks=_workflow_tasks(settings.workflow_cache),
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
            graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace_seconds),
        )
        for task_queue in settings.poll or _task_queues(registry, settings)
    ]


def _workflow_tasks(workflow_cache: int) -> int:
    """Return how many workflow tasks may be open at a time: what the cache has room for.

    A task that finds no room in the cache has another workflow evicted, even one that waits in its task for a local
    activity, whose task then fails by its time-out of 10 s. With a cache of 0 the SDK keeps one workflow at a time.
    """
    return min(MAX_CONCURRENT_WORKFLOW_TASKS, max(1, workflow_cache))


def _task_queues(registry: AgentRegistry, settings: Settings) -> list[str]:
    """Return the workflows' task queue and those that agents name."""
    own = {agent.task_queue for agent in map(registry.get, registry.agent_types) if agent.task_queue is not None}
    return [settings.task_queue, *sorted(own - {settings.task_queue})]


async def load_models(registry: AgentRegistry) -> ModelClient:
    """Import litellm, which takes seconds, off the event loop, and return what calls models."""

    def load() -> ModelClient:
        from activities.litellm_client import LiteLLMClient

        return LiteLLMClient(registry.custom_models)

    return await asyncio.to_thread(load)


async def run_worker(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; then let activities finish, and cancel those that do not: others go on with them."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    registry = AgentRegistry.load(settings.agents)
    temporal = await connect(settings, [TurnkeeperPlugin(settings.payloads_dir)])
    models = await load_models(registry)
    log = await open_event_log(settings)
    writer = EventWriter(log)
    workers = build_workers(temporal, registry, models, writer, settings)
    running = [asyncio.create_task(worker.run()) for worker in workers]
    trimming = asyncio.create_task(keep_trimmed(log, settings.event_retention))
    stopping = asyncio.create_task(stop.wait())
    logger.info("ready: %s on task queue %s", ", ".join(registry.agent_types), settings.task_queue)
    await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
    logger.info("stopping")
    await asyncio.gather(*(worker.shutdown() for worker in workers))
    await asyncio.gather(*running)
    trimming.cancel()
    await writer.close()
    await log.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="worker.py", description="Run agents and their workflows.")
    parser.add_argument("--agents", help="modules that hold the agents, separated by commas (TURNKEEPER_AGENTS)")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run_worker(Settings(agents=given.agents) if given.agents else Settings()))
    except TurnkeeperError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
