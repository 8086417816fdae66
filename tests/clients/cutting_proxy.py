"""A TCP proxy that cuts connections in the middle of what the server streams."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

_EVENT_END = b"\n\n"


class CuttingProxy:
    """Passes connections on to a port of this machine, and ends each after so many server-sent events."""

    def __init__(self, port: int, cuts: Sequence[int]) -> None:
        """Cut the first connection after `cuts[0]` events, and so on; those that come later are left whole."""
        self.port = 0
        self.connections = 0
        """How many there have been."""
        self._target = port
        self._cuts = list(cuts)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening, and drop what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        events = self._cuts.pop(0) if self._cuts else None
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
        up = asyncio.create_task(_pass_on(reader, upstream_writer, None))
        down = asyncio.create_task(_pass_on(upstream_reader, writer, events))
        self._tasks |= {up, down}
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down):
            task.cancel()
        for end in (writer, upstream_writer):
            end.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, events: int | None) -> None:
    """Pass bytes on until their end, or until so many events have passed; what is sent before arrives."""
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            if events is not None:
                pieces = data.split(_EVENT_END)
                if len(pieces) > events:
                    writer.write(_EVENT_END.join(pieces[:events]) + _EVENT_END)
                    await writer.drain()
                    return
                events -= len(pieces) - 1
            writer.write(data)
            await writer.drain()
