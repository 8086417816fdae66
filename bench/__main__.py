"""`make bench`: what a turn takes, as a ratio to a hand-written workflow of the same shape on the same server."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.client import Client
from temporalio.worker import Worker

import worker
from activities.model_calls import ModelReply
from activities.provider_messages import ProviderMessage
from bench.floor import Floor, FloorTurn, answer
from turnkeeper.agents import Agent
from turnkeeper.client import TurnkeeperClient
from turnkeeper.dev_server import dev_server
from turnkeeper.messages import user_message
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from workflows.plugin import TurnkeeperPlugin

ROUNDS = 60
CONFIG = Path(__file__).parent.parent / "temporal-dev.yaml"
STOCK = "log-level: error\nsearch-attribute:\n" + "".join(
    f"  - Turnkeeper{name}=Keyword\n" for name in ("Tenant", "Agent", "Instance", "RunId", "ParentRunId", "Outcome")
)
"""`temporal server start-dev` as it comes, but for what the workflows cannot do without."""


class Echo(Agent):
    """Answers at once."""

    model = "bench/echo"


class EchoModel:
    """Answers without a provider, so that only Turnkeeper and Temporal are measured."""

    async def complete(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> ModelReply:
        """Answer."""
        return ModelReply(text="an answer")


async def median_seconds(action: Callable[[], Awaitable[object]]) -> float:
    """Return the median time of an action, one after the other, after a few to warm up."""
    times = []
    for number in range(ROUNDS + 5):
        began = time.perf_counter()
        await action()
        if number >= 5:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


async def measure(config: Path, database: Path) -> tuple[float, float]:
    """Return the median seconds of a turn and of the floor, on a server started with `config`."""
    async with dev_server(config, database=database) as server:
        settings = Settings(data_dir=database.parent)
        temporal = await Client.connect(server.address, plugins=[TurnkeeperPlugin(settings.payloads_dir)])
        registry = AgentRegistry([Echo])
        client = TurnkeeperClient(temporal, registry)
        (main,) = worker.build_workers(temporal, registry, EchoModel(), settings)
        floor = Worker(temporal, task_queue="floor", workflows=[Floor, FloorTurn], activities=[answer])

        async def turn() -> None:
            info = await client.submit("Echo", "bench", user_message(uuid4().hex, "a question"))
            await client.wait_for_turn("Echo", "bench", info.turn_id)

        async with main, floor:
            handle = await temporal.start_workflow(Floor.run, id="floor", task_queue="floor")
            return await median_seconds(turn), await median_seconds(
                lambda: handle.execute_update(Floor.turn, "a question")
            )


async def main() -> None:
    """Measure on the stock server and on ours."""
    with tempfile.TemporaryDirectory() as folder:
        stock = Path(folder) / "stock.yaml"
        stock.write_text(STOCK)
        print(f"A turn without tools, file database, median of {ROUNDS}:")
        for name, config in (("stock settings", stock), ("temporal-dev.yaml", CONFIG)):
            turn, floor = await measure(config, Path(folder) / f"{config.stem}.db")
            print(f"  {name:18} turn {turn * 1000:6.1f} ms   floor {floor * 1000:6.1f} ms   ratio {turn / floor:.2f}")


asyncio.run(main())
