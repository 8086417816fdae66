"""A client of the HTTP API, for programs outside: it needs an address, and neither Temporal nor the agents' code.

    async with HttpClient("http://127.0.0.1:8000") as client:
        turn = await client.submit("Assistant", "demo", "Compare pydantic and attrs")
        async for cursor, frame in client.events("Assistant", "demo"):
            ...

Refusals are the errors of `turnkeeper.errors`, as if the caller were in the same process.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import TypeAdapter, ValidationError

from turnkeeper.errors import InvalidRequest, NotFound, TurnkeeperError, Unavailable
from turnkeeper.frames import Frame
from turnkeeper.http_answers import AgentType, Run, Turn, check_answer, reason_of
from turnkeeper.http_events import RemoteFeed
from turnkeeper.messages import UIMessage
from turnkeeper.names import is_name, parse_run_path
from turnkeeper.turns import TURN_END_STATUSES

ANSWER_PATIENCE = timedelta(seconds=30)
"""How long one answer may take."""

RECONNECT_PATIENCE = timedelta(seconds=60)
"""How long a feed that cannot be reached is tried again before `Unavailable` is raised."""

LONGEST_POLL = timedelta(seconds=1)
"""Between two looks at a turn that is waited for."""

AnswerT = TypeVar("AnswerT")


class HttpClient:
    """Speaks to one API; an asynchronous context manager."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        reconnect_patience: timedelta = RECONNECT_PATIENCE,
    ) -> None:
        """Speak to the API at `url`.

        Args:
            url: its address.
            headers: sent with every request, such as a proxy's authorization.
            reconnect_patience: how long a feed of events may be out of reach.

        Raises:
            InvalidRequest: the address is none.
        """
        self.url = url
        self._reconnect_patience = reconnect_patience
        try:
            self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=ANSWER_PATIENCE.total_seconds())
        except httpx.InvalidURL as error:
            raise InvalidRequest(f"{url!r} is no address: {error}") from error

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def agent_types(self) -> list[str]:
        """Return the names of the agent types that the API serves."""
        return [found.agent_type for found in await self._get("/agents", list[AgentType])]

    async def submit(
        self, agent: str, name: str, message: str | UIMessage, *, idempotency_key: str | None = None
    ) -> Turn:
        """Submit a message, which becomes a turn of an instance.

        Args:
            agent: the agent type.
            name: the instance's name; it begins to exist with its first message.
            message: text, or a user message.
            idempotency_key: the same key again is the same submission; a random one if not given.

        Raises:
            NotFound: no such agent type.
            Conflict: the key was used for another message.
            InvalidRequest: the message says nothing.
            TooLarge: the message is over its limit.
            Unavailable: nobody answered; submit again with the same key.
        """
        body = message if isinstance(message, str) else message.model_dump(mode="json", exclude={"role"})
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex}
        return await self._post(f"{_instance(agent, name)}/turns", Turn, {"message": body}, headers)

    async def wait(self, agent: str, name: str, turn_id: str) -> Turn:
        """Wait until a turn has ended, and return it with what the assistant wrote.

        Raises:
            NotFound: no such turn.
            Unavailable: the API does not answer. While it does, and only no worker is there, waiting goes on.
        """
        pause = 0.02
        while True:
            turn = await self.turn(agent, name, turn_id)
            # An answer with a hint is Temporal's own, without the message.
            if turn.status in TURN_END_STATUSES and turn.hint is None:
                return turn
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL.total_seconds())

    async def turn(self, agent: str, name: str, turn_id: str) -> Turn:
        """Return one turn with what the assistant has written in it so far.

        Raises:
            NotFound: no such turn.
            Unavailable: nobody answered.
        """
        return await self._get(f"{_instance(agent, name)}/turns/{quote(turn_id, safe='')}", Turn)

    async def turns(self, agent: str, name: str) -> list[Turn]:
        """Return the latest turns of an instance, oldest first.

        Raises:
            NotFound: no such instance.
            Unavailable: nobody answered.
        """
        return await self._get(f"{_instance(agent, name)}/turns", list[Turn])

    async def messages(self, agent: str, name: str, run: str | None = None) -> list[UIMessage]:
        """Return the transcript of an instance, or of the run at a path such as `a/runs/b`.

        Raises:
            NotFound: no such instance or run.
            Unavailable: nobody answered.
        """
        return await self._get(f"{_instance(agent, name, run)}/messages", list[UIMessage])

    async def runs(self, agent: str, name: str, run: str | None = None) -> list[Run]:
        """Return the runs that an instance dispatched, or that the run at a path did, oldest first.

        Raises:
            NotFound: no such instance or run.
            Unavailable: nobody answered.
        """
        return await self._get(f"{_instance(agent, name, run)}/runs", list[Run])

    async def run(self, agent: str, name: str, run: str) -> Run:
        """Return the run at a path.

        Raises:
            NotFound: no such run.
            Unavailable: nobody answered.
        """
        return await self._get(_instance(agent, name, run), Run)

    async def cancel_turn(self, agent: str, name: str, turn_id: str, reason: str | None = None) -> Turn:
        """Stop a turn and the runs that it awaits; without effect on one that has ended.

        Raises:
            NotFound: no such turn.
            Unavailable: nobody answered.
        """
        path = f"{_instance(agent, name)}/turns/{quote(turn_id, safe='')}/cancel"
        return await self._post(path, Turn, {"reason": reason})

    async def steer_turn(self, agent: str, name: str, turn_id: str, message: str, key: str | None = None) -> Turn:
        """Put a message before the model, before the next step of a turn that goes on.

        Args:
            agent: the agent's type.
            name: the instance's name.
            turn_id: the turn.
            message: what to say.
            key: the same key again is the same message.

        Raises:
            Conflict: the turn has not begun, or has ended.
            NotFound: no such turn.
            Unavailable: nobody answered.
        """
        path = f"{_instance(agent, name)}/turns/{quote(turn_id, safe='')}/steer"
        return await self._post(path, Turn, {"message": message}, _keyed(key))

    async def wrap_up_turn(self, agent: str, name: str, turn_id: str, reason: str | None = None) -> Turn:
        """Ask a turn that goes on to finish with what it has: no more tools, one last answer.

        Raises:
            Conflict: the turn has not begun, or has ended.
            NotFound: no such turn.
            Unavailable: nobody answered.
        """
        path = f"{_instance(agent, name)}/turns/{quote(turn_id, safe='')}/wrap_up"
        return await self._post(path, Turn, {"reason": reason})

    async def steer_run(self, agent: str, name: str, run: str, message: str, key: str | None = None) -> Run:
        """Put a message before the model, before the next step of a run that goes on; see `steer_turn`."""
        return await self._post(f"{_instance(agent, name, run)}/steer", Run, {"message": message}, _keyed(key))

    async def wrap_up_run(self, agent: str, name: str, run: str, reason: str | None = None) -> Run:
        """Ask a run that goes on to finish with what it has; see `wrap_up_turn`."""
        return await self._post(f"{_instance(agent, name, run)}/wrap_up", Run, {"reason": reason})

    async def cancel_run(self, agent: str, name: str, run: str, reason: str | None = None) -> Run:
        """Cancel the run at a path; without effect on one that has ended (CX-12).

        Raises:
            NotFound: no such run.
            Unavailable: nobody answered.
        """
        return await self._post(f"{_instance(agent, name, run)}/cancel", Run, {"reason": reason})

    async def events(
        self, agent: str, name: str, *, run: str | None = None, after: str | None = None
    ) -> AsyncGenerator[tuple[str | None, Frame], None]:
        """Yield what happens in an instance and its tree of runs, each frame with the cursor to resume after it.

        Goes on after a cut connection or a restart of the API where it was, so that nothing is missing and nothing
        comes twice. Close it (`contextlib.aclosing`) when you leave the loop early.

        Args:
            agent: the agent type.
            name: the instance's name; it need not exist yet.
            run: the path of a run: only its events and those of its runs, until it has ended.
            after: a cursor; by default from the beginning of what the log holds.

        Raises:
            NotFound: no such agent type or run.
            Unavailable: the feed could not be reached for as long as the client's patience.
        """
        path = f"{_instance(agent, name)}/events"
        feed = RemoteFeed(self._http, path, run, after, self._reconnect_patience)
        while not feed.has_ended:
            async with aclosing(feed.read()) as frames:
                async for frame in frames:
                    yield feed.cursor, frame
            if not feed.has_ended:
                await feed.pause()

    async def _get(self, path: str, answer_type: type[AnswerT]) -> AnswerT:
        return await self._request("GET", path, answer_type)

    async def _post(
        self, path: str, answer_type: type[AnswerT], body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> AnswerT:
        return await self._request("POST", path, answer_type, json=body, headers=headers)

    async def _request(self, method: str, path: str, answer_type: type[AnswerT], **more: Any) -> AnswerT:
        try:
            answer = await self._http.request(method, path, **more)
        except httpx.TransportError as error:
            raise Unavailable(f"{self.url} does not answer: {reason_of(error)}") from error
        check_answer(answer)
        try:
            return TypeAdapter(answer_type).validate_json(answer.content)
        except ValidationError as error:
            raise TurnkeeperError(f"{answer.url} does not answer as Turnkeeper's API does") from error


def _keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _instance(agent: str, name: str, run: str | None = None) -> str:
    """Return the path of an instance, or of one of its runs.

    Raises:
        NotFound: there can be no such thing.
    """
    run_ids = [] if run is None else parse_run_path(run)
    if run_ids is None or not is_name(agent) or not is_name(name):
        raise NotFound(f"there can be no {agent}/{name}{'' if run is None else f'/runs/{run}'}")
    return "/".join([f"/agents/{agent}/{name}", *(f"runs/{run_id}" for run_id in run_ids)])
