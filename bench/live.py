"""How soon live events reach their readers, beside one empty signal to a workflow, and what many readers cost."""

import asyncio
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from pydantic import BaseModel, JsonValue
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

import worker
from activities.model_replies import CallDelta, ModelDelta
from activities.provider_messages import ProviderMessage
from bench.floor import Signalled
from turnkeeper.agents import Agent
from turnkeeper.client import TurnkeeperClient
from turnkeeper.event_log.entries import NewEntry
from turnkeeper.event_log.sqlite import SQLiteEventLog
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import user_message
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings
from turnkeeper.tools import agent_tool, tool

READERS = 500
EVENTS = 200
PAUSE = 0.05
TOKENS = 200


class Nothing(BaseModel):
    """What a Reporting agent is asked."""


class Reporting(Agent):
    """Says the time in reports."""

    model = "bench/reporting"

    @tool
    async def report(self) -> str:
        """Report, with pauses in which each report shows."""
        for _ in range(40):
            await self.report_progress(message=str(time.time()))
            await asyncio.sleep(0.25)
        return "done"


class Delegating(Agent):
    """Has reports made."""

    model = "bench/delegating"
    reporting = agent_tool(Reporting, description="Have reports made.", input=Nothing)


class TimeModel:
    """Calls a tool first, and then says the time, word by word; without a provider."""

    async def stream(
        self,
        model: str,
        messages: Sequence[ProviderMessage],
        tools: Sequence[Mapping[str, JsonValue]],
        options: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Answer."""
        if messages[-1]["role"] == "user":
            name = str(tools[0]["function"]["name"])  # type: ignore[index,call-overload]  # a tool's schema
            yield ModelDelta(calls=(CallDelta(0, "c", name, "{}"),))
        for _ in range(TOKENS):
            yield ModelDelta(text=f"{time.time()} ")
            await asyncio.sleep(0.01)
        yield ModelDelta(finish_reason="stop")


async def measure_signal(temporal: Client) -> list[float]:
    """Return the seconds from sending a signal to what a workflow does at it."""
    arrival = asyncio.Event()

    @activity.defn(name="arrived")
    async def arrived() -> None:
        arrival.set()

    times = []
    async with Worker(temporal, task_queue="signalled", workflows=[Signalled], activities=[arrived]):
        handle = await temporal.start_workflow(Signalled.run, id="signalled", task_queue="signalled")
        for _ in range(60):
            began = time.perf_counter()
            await handle.signal(Signalled.ping)
            await arrival.wait()
            times.append(time.perf_counter() - began)
            arrival.clear()
        await handle.terminate()
    return times[10:]


@asynccontextmanager
async def api_process(address: str, data_dir: Path) -> AsyncIterator[tuple[str, int]]:
    """Run the API as its users do; gives its address and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "TEMPORAL_ADDRESS": address,
        "TURNKEEPER_DATA_DIR": str(data_dir),
        "TURNKEEPER_API_PORT": str(port),
        "TURNKEEPER_AGENTS": "bench.live",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "api", env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient() as client:
            while True:
                try:
                    await client.get(f"{url}/healthz")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
        yield url, process.pid
    finally:
        process.terminate()
        await process.wait()


async def measure_turn(temporal: Client, address: str, data_dir: Path) -> tuple[list[float], list[float]]:
    """Return the seconds from a report, and from a model's token, to a reader of the feed."""
    settings = Settings(data_dir=data_dir)
    registry = AgentRegistry([Delegating, Reporting])
    log = await SQLiteEventLog.open(data_dir / "events.sqlite")
    writer = EventWriter(log)
    (main,) = worker.build_workers(temporal, registry, TimeModel(), writer, settings)
    reports: list[float] = []
    tokens: list[float] = []

    def take(frame: dict[str, Any]) -> bool:
        now, event = time.time(), frame["event"]
        body = json.loads(event["body"]) if event["kind"] == "chunk" else {}
        if body.get("type") == "data-agent-progress":
            reports.append(now - float(body["data"]["message"]))
        elif body.get("type") == "text-delta" and frame["type"] == "turn-event":
            tokens.extend(now - float(word) for word in body["delta"].split())
        return bool(frame["type"] == "turn-event" and event["kind"] == "finished")

    async with main, api_process(address, data_dir) as (url, _), httpx.AsyncClient(timeout=60) as client:
        turnkeeper = TurnkeeperClient(temporal, registry)
        async with client.stream("GET", f"{url}/agents/Delegating/bench/events") as answer:
            await turnkeeper.submit("Delegating", "bench", user_message(uuid4().hex, "go"))
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and take(json.loads(line.removeprefix("data: "))):
                    break
    await writer.close()
    await log.close()
    return reports, tokens


async def measure_readers(address: str, data_dir: Path) -> tuple[list[float], float]:
    """Return the seconds from an append to each of many readers, and the share of a core that the API took."""
    log = await SQLiteEventLog.open(data_dir / "events.sqlite")
    source = "default/Reporting/readers/turns/1"
    times: list[float] = []
    async with api_process(address, data_dir) as (url, pid):
        port = int(url.rpartition(":")[2])
        begun = asyncio.Semaphore(0)
        readers = [asyncio.create_task(_read(port, times, begun)) for _ in range(READERS)]
        await log.append([_stamped(source, 0)])
        for _ in readers:
            await begun.acquire()
        times.clear()
        used, began = _cpu_seconds(pid), time.monotonic()
        for number in range(1, EVENTS + 1):
            await log.append([_stamped(source, number)])
            await asyncio.sleep(PAUSE)
        await asyncio.gather(*readers)
        share = (_cpu_seconds(pid) - used) / (time.monotonic() - began)
    await log.close()
    return times, share


async def _read(port: int, times: list[float], begun: asyncio.Semaphore) -> None:
    """Read a feed until its last event, as cheaply as can be: the readers share a core with nobody but each other."""
    reader, connection = await asyncio.open_connection("127.0.0.1", port)
    connection.write(b"GET /agents/Reporting/readers/events HTTP/1.1\r\nHost: x\r\n\r\n")
    count = 0
    while count <= EVENTS:
        line = await reader.readline()
        if line.startswith(b"data: "):
            now = time.time()
            times.append(now - float(line.rpartition(b'"at ')[2].partition(b'\\"')[0].partition(b'"')[0] or now))
            count += 1
            if count == 1:
                begun.release()
    connection.close()


def _stamped(source: str, number: int) -> NewEntry:
    body: dict[str, JsonValue] = {"type": "text-delta", "id": "t", "delta": f"at {time.time()}"}
    return NewEntry(source=source, key=f"{source}#{uuid4().hex}", kind="chunk", body=body, at=datetime.now(UTC))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and the 99th percentile."""
    cut = statistics.quantiles(times, n=100)
    return cut[49], cut[98]
