"""`make bench`: what a turn takes, as a ratio to a hand-written workflow of the same shape on the same server."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.client import Client
from temporalio.worker import Worker

import worker
from activities.model_replies import ModelDelta
from activities.provider_messages import ProviderMessage
from bench.floor import Floor, FloorTurn, answer
from bench.live import EVENTS, PAUSE, READERS, measure_readers, measure_signal, measure_turn, percentiles
from turnkeeper.agents import Agent
from turnkeeper.client import TurnkeeperClient
from turnkeeper.dev_server import dev_server
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter
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

    async def stream(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Answer."""
        yield ModelDelta(text="an answer", finish_reason="stop")


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
        writer = EventWriter(await SQLiteEventLog.open(database.parent / "events.sqlite"))
        (main,) = worker.build_workers(temporal, registry, EchoModel(), writer, settings)
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
        await live(Path(folder))


async def live(folder: Path) -> None:
    """Measure how soon events reach their readers."""
    async with dev_server(CONFIG, database=folder / "live.db") as server:
        data_dir = folder / "live"
        temporal = await Client.connect(server.address, plugins=[TurnkeeperPlugin(data_dir / "payloads")])
        signal = percentiles(await measure_signal(temporal))
        reports, tokens = await measure_turn(temporal, server.address, data_dir)
        print("From where it happens to a reader of the feed, and as a ratio to one signal to a workflow:")
        print(f"  {'a signal':18} p50 {signal[0] * 1000:6.1f} ms   p99 {signal[1] * 1000:6.1f} ms")
        for name, times in (("a report", percentiles(reports)), ("a model's token", percentiles(tokens))):
            ratios = "  ".join(f"{own / other:.2f}" for own, other in zip(times, signal, strict=True))
            print(f"  {name:18} p50 {times[0] * 1000:6.1f} ms   p99 {times[1] * 1000:6.1f} ms   ratios {ratios}")
        delays, share = await measure_readers(server.address, data_dir)
        p50, p99 = percentiles(delays)
        print(f"{READERS} readers of one feed, {EVENTS} events, one each {PAUSE * 1000:.0f} ms, from append to reader:")
        print(f"  p50 {p50 * 1000:.1f} ms   p99 {p99 * 1000:.1f} ms   the API took {share:.0%} of a core")


asyncio.run(main())
