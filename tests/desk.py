"""A desk from which tests ask agents and look at what Temporal recorded."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from turnkeeper import names
from turnkeeper.client import TurnkeeperClient
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.settings import Settings
from turnkeeper.turns import TurnInfo
from turnkeeper.workflow_requests import QUERY_PATIENCE

ResultT = TypeVar("ResultT")


class Desk:
    """Asks one agent instance."""

    def __init__(self, client: TurnkeeperClient, temporal: Client) -> None:
        """Ask through `client`, an instance whose name nobody else uses."""
        self.client = client
        self.temporal = temporal
        self.name = uuid4().hex[:12]

    async def submit(self, agent_type: str, text: str, submission_id: str | None = None) -> TurnInfo:
        """Submit a message and return its turn."""
        message = user_message(uuid4().hex, text)
        return await self.client.submit(agent_type, self.name, message, submission_id=submission_id)

    async def ask(self, agent_type: str, text: str) -> TurnInfo:
        """Submit a message and return its turn when it has ended."""
        turn = await self.submit(agent_type, text)
        return await self.client.wait_for_turn(agent_type, self.name, turn.turn_id)

    async def messages(self, agent_type: str) -> list[UIMessage]:
        """Return the transcript."""
        return await self.client.messages(agent_type, self.name)

    async def last(self, agent_type: str) -> UIMessage:
        """Return the last message of the transcript."""
        return (await self.messages(agent_type))[-1]

    def session_id(self, agent_type: str) -> str:
        """Return the instance's workflow id."""
        return self.client.session_id(agent_type, self.name)

    def turn_workflow_id(self, agent_type: str, turn: TurnInfo) -> str:
        """Return a turn's workflow id."""
        return names.turn_workflow_id(self.session_id(agent_type), turn.turn_id)

    async def history(self, workflow_id: str) -> list[HistoryEvent]:
        """Return a workflow's events."""
        history = await self.temporal.get_workflow_handle(workflow_id).fetch_history()
        return list(history.events)


def read_patience(settings: Settings) -> timedelta:
    """Return how long a read may take: without a cache, the SDK drops queries that meet at one workflow."""
    return QUERY_PATIENCE if settings.workflow_cache else timedelta(seconds=60)


def kinds(events: list[HistoryEvent]) -> Counter[str]:
    """Count events by their type, without the common prefix."""
    return Counter(EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events)


def size(events: list[HistoryEvent]) -> int:
    """Return the bytes of events."""
    return sum(event.ByteSize() for event in events)


async def eventually(
    probe: Callable[[], Awaitable[ResultT]], holds: Callable[[ResultT], bool], seconds: float = 30
) -> ResultT:
    """Return what `probe` gives as soon as `holds` is true of it; fails when that takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            found = await probe()
            if holds(found):
                return found
            await asyncio.sleep(0.02)
