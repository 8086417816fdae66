"""Reads an API's feed of events over as many connections as it takes."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent, aconnect_sse

from turnkeeper.errors import TurnkeeperError, Unavailable
from turnkeeper.frames import END_KINDS, AgentToolEventFrame, Frame, ResyncFrame
from turnkeeper.http_answers import check_answer, reason_of
from turnkeeper.run_views import read_frame

CONNECT_PATIENCE = timedelta(seconds=10)

HEARTBEAT_PATIENCE = timedelta(seconds=45)
"""How long a feed may be silent, four of its heartbeats, before its connection is taken for dead."""

FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=5)
"""Between two attempts to reach a feed; doubled each time, from the first or from what the feed's `retry:` says."""


class RemoteFeed:
    """One reader's place in a feed, over as many connections as it takes."""

    def __init__(
        self, http: httpx.AsyncClient, path: str, run: str | None, after: str | None, patience: timedelta
    ) -> None:
        """Begin after a cursor, or at the beginning.

        Args:
            http: a client of the API.
            path: the feed's.
            run: the path of the run that it is to be about, if not all.
            after: the cursor.
            patience: how long it may be out of reach.
        """
        self.cursor = after
        """What to resume after."""
        self.has_ended = False
        """Whether there is nothing more to come."""
        self._http = http
        self._path = path
        self._run = run
        self._patience = patience.total_seconds()
        self._first_pause = self._pause = FIRST_PAUSE.total_seconds()
        self._lost_at: float | None = None
        """Since when it is out of reach."""

    async def read(self) -> AsyncGenerator[Frame, None]:
        """Yield what one connection gives.

        Raises:
            NotFound: there is no such feed.
            Unavailable: it has been out of reach for too long.
        """
        try:
            async with aconnect_sse(self._http, "GET", self._path, **self._request()) as source:
                if await self._begins(source):
                    async with aclosing(self._frames(source)) as frames:
                        async for frame in frames:
                            yield frame
        except (httpx.TransportError, Unavailable) as error:
            now = asyncio.get_running_loop().time()
            self._lost_at = now if self._lost_at is None else self._lost_at
            if now - self._lost_at > self._patience:
                raise Unavailable(f"the events are out of reach: {reason_of(error)}") from error

    async def pause(self) -> None:
        """Wait before the next connection: longer and longer, until something comes again."""
        # Spread, because all readers of an API that restarts lose their connections at once.
        await asyncio.sleep(self._pause * random.uniform(1, 1.5))
        self._pause = max(FIRST_PAUSE.total_seconds(), min(self._pause * 2, LONGEST_PAUSE.total_seconds()))

    async def _frames(self, source: EventSource) -> AsyncGenerator[Frame, None]:
        known_id = ""
        async for event in source.aiter_sse():
            self._take(event, known_id)
            known_id = event.id
            # One without data is a heartbeat, or says only when to come back.
            frame = read_frame(event.data) if event.data else None
            if frame is not None:
                self._note(frame)
                yield frame
            if self.has_ended:
                return

    def _request(self) -> dict[str, Any]:
        patience = httpx.Timeout(CONNECT_PATIENCE.total_seconds(), read=HEARTBEAT_PATIENCE.total_seconds())
        return {
            "params": {} if self._run is None else {"run": self._run},
            "headers": {} if self.cursor is None else {"Last-Event-ID": self.cursor},
            "timeout": patience,
        }

    async def _begins(self, source: EventSource) -> bool:
        """Tell whether events follow.

        Raises:
            TurnkeeperError: it is not a feed.
        """
        response = source.response
        if response.status_code == httpx.codes.NO_CONTENT:
            self.has_ended = True
            return False
        if not response.is_success:
            await response.aread()
            check_answer(response)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise TurnkeeperError(f"{response.url} does not answer as Turnkeeper's API does")
        self._lost_at = None
        return True

    def _take(self, event: ServerSentEvent, known_id: str) -> None:
        """Remember where the feed is; `known_id` is the id that this connection had before."""
        if event.id != known_id:
            self.cursor = event.id or None
        if event.retry is not None and event.retry >= 0:
            self._first_pause = event.retry / 1_000
        self._pause = self._first_pause

    def _note(self, frame: Frame) -> None:
        """Take to heart what a frame says about the feed itself."""
        if isinstance(frame, ResyncFrame) and frame.reason == "too-slow":
            self._pause = 0
        elif isinstance(frame, ResyncFrame):
            self.cursor = None  # What follows begins anew, and so does who is cut off now.
        elif isinstance(frame, AgentToolEventFrame) and frame.event.run_id == self._run:
            self.has_ended = frame.event.kind in END_KINDS
