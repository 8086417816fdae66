"""The real clients, from npm: one folder each, with a lock file of its own, since their versions clash in one tree."""

import asyncio
import fcntl
import json
import shutil
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

Json = dict[str, Any]

FOLDER = Path(__file__).parent

CHATS = ("ai-7", "ai-6", "ai-6.0.0")
"""The folders that hold the AI SDK; the last refuses every field that it does not know."""

PATIENCE = 60.0
"""Seconds that one command may take."""

_INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
_LONGEST_LINE = 64 * 1024 * 1024


class NpmClients:
    """A process for each client that was asked for something, which carries out one command after the other."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._processes: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        """Be ready."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        for folder in list(self._processes):
            await self._end(folder)

    async def drive(self, folder: str, command: Json) -> Json:
        """Have a client carry out a command (see `chat.mjs` and the folders' `drive.mjs`), and return what it found.

        Skips the test where there is no Node.
        """
        if folder not in self._processes:
            await install(folder)
            self._processes[folder] = await asyncio.create_subprocess_exec(
                "node", "drive.mjs", cwd=FOLDER / folder, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE
            )
        process = self._processes[folder]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(command)}\n".encode())
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await process.stdout.readline()
        except BaseException:
            await self._end(folder)
            raise
        if not answer:
            await self._end(folder)
        assert answer, f"{folder} ended; what it had to say is on stderr"
        found: Json = json.loads(answer)
        assert "failure" not in found, f"{folder}: {found['failure']}"
        return found

    async def _end(self, folder: str) -> None:
        process = self._processes.pop(folder)
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def install(folder: str) -> None:
    """Install a client where that is not done yet; skips the test where there is no Node."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing, so the real client {folder} is not tried; install Node 20 or newer")
    lock, done = FOLDER / folder / "package-lock.json", FOLDER / folder / "node_modules" / ".package-lock.json"
    with lock.open() as held:
        # Another process that runs tests may be at it.
        await asyncio.to_thread(fcntl.flock, held, fcntl.LOCK_EX)
        if done.exists() and done.stat().st_mtime >= lock.stat().st_mtime:
            return
        process = await asyncio.create_subprocess_exec(
            *_INSTALL, cwd=FOLDER / folder, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, f"`{' '.join(_INSTALL)}` in tests/clients/{folder}: {output.decode()}"
