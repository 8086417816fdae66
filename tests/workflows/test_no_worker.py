"""What a caller is told while no worker polls."""

import asyncio
import time
from datetime import timedelta

import pytest
from desk import Desk
from temporalio.client import Client

from turnkeeper import workflow_requests
from turnkeeper.client import TurnkeeperClient
from turnkeeper.errors import Unavailable
from turnkeeper.registry import AgentRegistry


@pytest.fixture
def lonely_desk(temporal: Client, registry: AgentRegistry, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk whose task queue nobody polls, and which has little patience."""
    monkeypatch.setattr(workflow_requests, "UPDATE_PATIENCE", timedelta(seconds=1))
    return Desk(TurnkeeperClient(temporal, registry, task_queue="nobody"), temporal)


async def test_a_submission_is_given_up_in_time(lonely_desk: Desk) -> None:
    """House rule 8: the sender is told to come back with the same id."""
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no worker"):
        await lonely_desk.submit("Echo", "say hello")
    assert time.monotonic() - began < 3
    await lonely_desk.temporal.get_workflow_handle(lonely_desk.session_id("Echo")).terminate()


async def test_a_sender_that_gives_up_itself_is_not_kept(lonely_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelling the task that submits ends it, although the SDK has an exception of its own for that."""
    monkeypatch.setattr(workflow_requests, "UPDATE_PATIENCE", timedelta(seconds=60))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await lonely_desk.submit("Echo", "say hello")
    await lonely_desk.temporal.get_workflow_handle(lonely_desk.session_id("Echo")).terminate()


async def test_nobody_is_said_to_poll_a_queue_that_nobody_polls(lonely_desk: Desk) -> None:
    """Field case 2: a not-ready health check."""
    assert not await lonely_desk.client.has_worker()
