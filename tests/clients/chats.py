"""One chat with the API."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from clients.npm_clients import Json, NpmClients
from desk import eventually
from desk_agents import calls, gate

AGENT = "Foreman"
ENDS = ("completed", "error", "aborted")


class Chat:
    """One instance of the agent, which clients chat with under `chat_id`."""

    def __init__(self, server: str, clients: NpmClients) -> None:
        """Chat with an instance that nobody else uses, of a server at an address."""
        self.clients = clients
        self.name = uuid4().hex[:12]
        self.chat_id = f"chat-{self.name}"
        self.port = urlsplit(server).port or 0
        self.gate = f"{self.name}!"
        """The gate that this chat's tools wait at."""
        self._http = httpx.AsyncClient(timeout=60)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open."""
        await self._stack.enter_async_context(self._http)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of what still waits, and close."""
        self.open_gate()
        await self._stack.aclose()

    async def drive(self, folder: str, *steps: Json, **more: Any) -> Json:
        """Have a client take steps; `port` is another than the server's own, `messages` are what it knows already."""
        command = {"api": self.url("chat", more.pop("port", None)), "chatId": self.chat_id, "steps": steps, **more}
        return await self.clients.drive(folder, command)

    async def messages(self) -> list[Json]:
        """Return the transcript as it is now."""
        found: list[Json] = (await self._http.get(self.url("messages"))).json()
        return found

    async def history(self) -> list[Json]:
        """Return the transcript when every turn has ended."""
        await eventually(self.turns, lambda turns: all(turn["status"] in ENDS for turn in turns))
        return await self.messages()

    async def turn(self) -> Json:
        """Return the first turn."""
        found: Json = (await self._http.get(self.url("turns/1"))).json()
        return found

    async def turns(self) -> list[Json]:
        """Return all turns."""
        found: list[Json] = (await self._http.get(self.url("turns"))).json()
        return found

    def url(self, rest: str, port: int | None = None) -> str:
        """Return the address of something of the instance's, such as `messages` or `turns/1`, by way of a port."""
        return f"http://127.0.0.1:{port or self.port}/agents/{AGENT}/{self.name}/{rest}"

    async def chunk_count(self) -> int:
        """Return how many chunks the first turn has streamed."""
        answer = await self._http.get(self.url("chat/1/stream"), params={"startIndex": 0})
        return answer.text.count("data: {")

    async def stop(self) -> Json:
        """Ask the server to stop, as an application does beside `chat.stop()`."""
        answer = await self._http.post(self.url(f"chat/{self.chat_id}/stop"))
        assert answer.status_code == 200, answer.text
        stopped: Json = answer.json()
        return stopped

    async def until_waiting(self) -> None:
        """Wait until a tool of this chat waits at its gate."""

        async def is_waiting() -> bool:
            return f"wait {self.gate}" in calls

        await eventually(is_waiting, bool)

    async def until_ended(self) -> Json:
        """Return the first turn when it has ended."""
        return await eventually(self.turn, lambda turn: turn.get("status") in ENDS)

    def open_gate(self) -> None:
        """Let the tools that wait go on."""
        gate(self.gate).set()


def send(text: str, message_id: str = "u1", **more: Any) -> Json:
    """Return the step that sends a message."""
    return {"send": {"id": message_id, "text": text}, **more}


RESUME: Json = {"resume": True}


def gist(message: Json) -> list[tuple[Any, ...]]:
    """Return what a message says, whoever stores it: its texts and tool calls in their steps, without data parts."""
    return [_gist(part) for part in message["parts"] if not part["type"].startswith("data-")]


def _gist(part: Json) -> tuple[Any, ...]:
    if "toolCallId" in part:
        outcome = part.get("errorText") or part.get("output")
        return part["type"], part["toolCallId"], part["state"], part.get("input"), outcome
    return part["type"], part.get("text")
