"""The whole system as processes that a test kills and starts again: the Temporal server, a worker and the API."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
from desk import eventually

from turnkeeper.dev_server import DevServer, dev_server, free_port

ROOT = Path(__file__).parent.parent
PARTS = ("temporal", "worker", "api")


class KilledStack:
    """Starts its parts on ports that stay the same, and kills them without a warning."""

    def __init__(self, data_dir: Path, agents: str, variables: Mapping[str, str]) -> None:
        """Prepare a stack.

        Args:
            data_dir: where its database, live log and logs are kept.
            agents: the module that holds its agents, under `tests`.
            variables: further environment variables of its processes.
        """
        self._data_dir = data_dir
        self._temporal_port, api_port = free_port(), free_port()
        self.api_url = f"http://127.0.0.1:{api_port}"
        self._environment = {
            **os.environ,
            **variables,
            "PYTHONPATH": str(ROOT / "tests"),
            "TEMPORAL_ADDRESS": f"127.0.0.1:{self._temporal_port}",
            "TURNKEEPER_AGENTS": agents,
            "TURNKEEPER_API_PORT": str(api_port),
            "TURNKEEPER_DATA_DIR": str(data_dir),
        }
        self._processes: dict[str, Process] = {}
        self._server: DevServer | None = None
        self._serving = AsyncExitStack()

    async def start(self, parts: Sequence[str]) -> None:
        """Start parts and wait until they are ready; the server first, for the others need it."""
        if "temporal" in parts:
            await self._start_temporal()
        await asyncio.gather(*(self._start(part) for part in parts if part != "temporal"))

    async def kill(self, parts: Sequence[str]) -> None:
        """Kill parts at once, without a chance to say goodbye."""
        for part in parts:
            if part == "temporal" and self._server is not None:
                os.kill(self._server.pid, signal.SIGKILL)
            elif part != "temporal":
                self._processes[part].kill()
        for part in parts:
            if part == "temporal" and self._server is not None:
                await self._server.wait()
                await self._serving.aclose()
                self._server = None
            elif part != "temporal":
                await self._processes.pop(part).wait()

    def dead(self) -> list[str]:
        """Return the parts that ended by themselves."""
        return [part for part, process in self._processes.items() if process.returncode is not None]

    async def close(self) -> None:
        """End what is left."""
        await self.kill([*self._processes])
        if self._server is not None:
            await self.kill(["temporal"])

    async def _start_temporal(self) -> None:
        running = dev_server(
            ROOT / "temporal-dev.yaml", port=self._temporal_port, database=self._data_dir / "temporal.db"
        )
        self._server = await self._serving.enter_async_context(running)

    async def _start(self, part: str) -> None:
        log = self._data_dir / f"{part}.log"
        log.unlink(missing_ok=True)
        arguments = ["worker.py"] if part == "worker" else ["-m", "api"]
        with log.open("wb") as output:
            self._processes[part] = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                cwd=ROOT,
                env=self._environment,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )
        if part == "worker":
            await eventually(lambda: asyncio.to_thread(log.read_text), lambda text: "ready:" in text, seconds=90)
        else:
            await eventually(self._answers, bool, seconds=90)

    async def _answers(self) -> bool:
        async with httpx.AsyncClient(base_url=self.api_url) as api:
            try:
                return (await api.get("/healthz")).is_success
            except httpx.TransportError:
                return False
