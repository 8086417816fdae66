"""A Valkey or Redis server of the tests' own."""

import asyncio
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import pytest

from turnkeeper.dev_server import free_port


class RedisServer:
    """A server on loopback that keeps nothing on disk, and can be stopped in every way a server stops."""

    def __init__(self, directory: Path) -> None:
        """Use a directory; nothing is started yet."""
        binary = shutil.which("valkey-server") or shutil.which("redis-server")
        if binary is None:
            pytest.skip("neither valkey-server nor redis-server is on the PATH: apt-get install redis-server")
        self._port = free_port()
        self._command = [binary, "--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(directory)]
        self._command += ["--save", "", "--appendonly", "no"]
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """Where it listens; the same after each start."""
        return f"redis://127.0.0.1:{self._port}/0"

    async def start(self) -> None:
        """Start it, empty, and wait until it takes connections."""
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=DEVNULL, stdout=PIPE)
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if b"Ready to accept connections" in line:
                return
        raise RuntimeError(f"{self._command[0]} ended with {await self._process.wait()}")

    async def kill(self) -> None:
        """End it and all that it holds, if it runs."""
        if self._process is not None:
            self._process.kill()
            await self._process.communicate()
            self._process = None

    def pause(self) -> None:
        """Let it take connections and bytes, and answer nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
