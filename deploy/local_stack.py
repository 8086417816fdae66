"""The whole system on one machine: the embedded Temporal server, a worker and the API, as processes of their own."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx

from turnkeeper.dev_server import DevServer, check_port, dev_server
from turnkeeper.errors import TurnkeeperError
from turnkeeper.settings import Settings

ROOT = Path(__file__).parent.parent
READY_PATIENCE = timedelta(seconds=120)
"""The first start compiles the dependencies' bytecode, and litellm alone takes 10 s to import."""
STOP_PATIENCE = timedelta(seconds=30)


class StackError(TurnkeeperError):
    """The stack could not be started, or a part of it ended."""


@dataclass(frozen=True)
class LocalStack:
    """A running stack."""

    api_url: str
    temporal_address: str
    temporal_ui_url: str
    processes: dict[str, int]
    """Process ids by part."""
    parts: dict[str, Process]

    async def wait_for_failure(self) -> str:
        """Wait until a part ends by itself; returns its name."""
        waiting = {asyncio.create_task(part.wait()): name for name, part in self.parts.items()}
        ended, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        return waiting[ended.pop()]


@asynccontextmanager
async def local_stack(settings: Settings) -> AsyncIterator[LocalStack]:
    """Run the stack while the body runs; `.data/up.json` tells others where it is.

    Raises:
        StackError: a part ended while it was starting, or another stack is running.
        DevServerError: a port is taken.
    """
    up_file = settings.data_dir / "up.json"
    await asyncio.to_thread(_clear_leftovers, up_file)
    check_port(settings.api_port)
    async with dev_server(
        ROOT / "temporal-dev.yaml",
        port=settings.temporal_port,
        ui_port=settings.temporal_ui_port,
        database=settings.data_dir / "temporal.db",
    ) as server:
        logs = settings.data_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        parts: dict[str, Process] = {}
        try:
            parts["worker"] = await _spawn(server, logs / "worker.log", "worker.py")
            parts["api"] = await _spawn(server, logs / "api.log", "-m", "api")
            stack = LocalStack(
                api_url=f"http://{settings.api_host}:{settings.api_port}",
                temporal_address=server.address,
                temporal_ui_url=server.ui_url or "",
                processes={"stack": os.getpid(), "temporal": server.pid, **{name: p.pid for name, p in parts.items()}},
                parts=parts,
            )
            await _wait_until_ready(stack, logs)
            _write(up_file, stack)
            yield stack
        finally:
            up_file.unlink(missing_ok=True)
            await asyncio.gather(*(_stop(part) for part in parts.values()))


async def _spawn(server: DevServer, log: Path, *arguments: str) -> Process:
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=ROOT,
            env=_environment(server),
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C goes to the stack alone, which stops its parts in order.
            start_new_session=True,
        )


def _environment(server: DevServer) -> dict[str, str]:
    """Return the environment of a part: without what the shell says of another Temporal, its API key among it."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    return {**others, "TEMPORAL_ADDRESS": server.address, "TEMPORAL_CONFIG_FILE": os.devnull}


async def _wait_until_ready(stack: LocalStack, logs: Path) -> None:
    failure = asyncio.create_task(stack.wait_for_failure())
    ready = asyncio.create_task(_poll_until_ready(stack.api_url))
    done, _ = await asyncio.wait(
        [failure, ready], timeout=READY_PATIENCE.total_seconds(), return_when=asyncio.FIRST_COMPLETED
    )
    failure.cancel()
    ready.cancel()
    if failure in done:
        last_words = (logs / f"{failure.result()}.log").read_text()[-2_000:]
        raise StackError(f"the {failure.result()} ended while it was starting:\n{last_words}")
    if ready not in done:
        raise StackError(f"the stack was not ready within {READY_PATIENCE.total_seconds():.0f} s; see {logs}")


async def _poll_until_ready(api_url: str) -> None:
    async with httpx.AsyncClient(base_url=api_url) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/readyz")).status_code == httpx.codes.OK:
                    return
            await asyncio.sleep(0.1)


async def _stop(part: Process) -> None:
    if part.returncode is None:
        part.terminate()
        try:
            await asyncio.wait_for(part.wait(), STOP_PATIENCE.total_seconds())
        except TimeoutError:
            part.kill()
            await part.wait()


def _write(up_file: Path, stack: LocalStack) -> None:
    content = {
        "api": stack.api_url,
        "temporal": stack.temporal_address,
        "temporalUi": stack.temporal_ui_url,
        "processes": stack.processes,
    }
    unfinished = up_file.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content, indent=2))
    unfinished.rename(up_file)


def _clear_leftovers(up_file: Path) -> None:
    """End the parts of a stack that was killed before it could end them itself.

    Raises:
        StackError: the stack that wrote `up_file` is alive.
    """
    try:
        processes: dict[str, int] = json.loads(up_file.read_text())["processes"]
    except (FileNotFoundError, KeyError, ValueError):
        return
    ours = {name: pid for name, pid in processes.items() if _is_ours(pid)}
    if "stack" in ours:
        raise StackError(f"a stack is running already (process {ours['stack']}); stop it first, see {up_file}")
    for pid in ours.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while any(_is_running(pid) for pid in ours.values()):
        time.sleep(0.05)  # A killed process keeps its ports until the kernel has let go of it.
    up_file.unlink()


def _is_ours(pid: int) -> bool:
    """Tell whether a process is a part of a stack; a number may meanwhile belong to somebody else's."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return False
    return any(mark in command for mark in ("worker.py", "-m api", "server start-dev", "local_stack", "research_desk"))


def _is_running(pid: int) -> bool:
    """Tell whether a process has not ended; its command line is gone before its ports are."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("X", "Z")


async def main() -> int:
    """Run the stack until Ctrl-C or SIGTERM; returns the exit status."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with local_stack(Settings()) as stack:
            print(f"API          {stack.api_url}  (documentation at /docs)")
            print(f"Temporal UI  {stack.temporal_ui_url}")
            print(f"Logs         {Settings().data_dir / 'logs'}")
            print("Ctrl-C stops everything.", flush=True)
            return await run_until(stack, stop)
    except TurnkeeperError as error:
        print(f"local stack: {error}", file=sys.stderr)
        return 1


async def run_until(stack: LocalStack, stop: asyncio.Event) -> int:
    """Wait until `stop` is set or the API ends by itself; returns the exit status.

    A worker may be killed, and another be started by hand, without losing anything: that is what all this is for.
    """
    stopping = asyncio.create_task(stop.wait())
    while True:
        failing = asyncio.create_task(stack.wait_for_failure())
        await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
        if not failing.done():
            failing.cancel()
            return 0
        if failing.result() != "worker":
            stopping.cancel()
            print(f"local stack: the {failing.result()} ended by itself; stopping", file=sys.stderr)
            return 1
        del stack.parts["worker"]
        print("local stack: the worker ended by itself; start another: .venv/bin/python worker.py", flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
