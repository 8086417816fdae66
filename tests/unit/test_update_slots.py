"""Updates to one workflow wait for each other in this process."""

import asyncio
from datetime import timedelta

import pytest

from turnkeeper import names
from turnkeeper.update_slots import PROMPT_SLOTS, WAITING_SLOTS, UpdateSlots

PATIENCE = timedelta(seconds=5)
SERVER_LIMIT = 10


class Senders:
    """Send updates that end when they are let go, and note who has come to send."""

    def __init__(self) -> None:
        self.slots = UpdateSlots()
        self.sending: list[int] = []
        self.most = 0
        self.order: list[int] = []
        self.gate = asyncio.Event()

    async def send(self, number: int, workflow_id: str, name: str, patience: timedelta = PATIENCE) -> timedelta:
        async with self.slots.taken(workflow_id, name, patience) as remaining:
            self.order.append(number)
            self.sending.append(number)
            self.most = max(self.most, len(self.sending))
            await self.gate.wait()
            self.sending.remove(number)
            return remaining


async def _until_all_wait() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_two_processes_stay_below_what_a_server_takes() -> None:
    """Temporal: 10 updates of a workflow in flight; the eleventh aborts them all."""
    assert 2 * (PROMPT_SLOTS + WAITING_SLOTS) <= SERVER_LIMIT


async def test_updates_to_one_workflow_take_their_turns_in_order() -> None:
    """Issue C: each is sent, first come, first served."""
    senders = Senders()
    tasks = [asyncio.create_task(senders.send(number, "w", names.SUBMIT)) for number in range(20)]
    await _until_all_wait()
    assert senders.sending == [0, 1]
    senders.gate.set()
    await asyncio.gather(*tasks)
    assert senders.most == PROMPT_SLOTS
    assert senders.order == list(range(20))


async def test_what_waits_long_holds_up_neither_what_is_answered_at_once_nor_another_workflow() -> None:
    """A dispatch may wait for its start hook; a message to the same agent does not wait for it."""
    senders = Senders()
    sent = [("w", names.DISPATCH_RUN)] * 5 + [("w", names.SUBMIT), ("v", names.DISPATCH_RUN)]
    tasks = [asyncio.create_task(senders.send(n, *each)) for n, each in enumerate(sent)]
    await _until_all_wait()
    assert senders.sending == [0, 1, 2, 5, 6]
    senders.gate.set()
    await asyncio.gather(*tasks)


async def test_who_finds_no_slot_in_time_is_told_so_and_takes_none() -> None:
    """The time waited is part of the sender's patience."""
    senders = Senders()
    holding = [asyncio.create_task(senders.send(n, "w", names.SUBMIT)) for n in range(PROMPT_SLOTS)]
    await _until_all_wait()
    with pytest.raises(TimeoutError):
        await senders.send(9, "w", names.SUBMIT, timedelta(milliseconds=10))
    senders.gate.set()
    await asyncio.gather(*holding)
    remaining = await senders.send(10, "w", names.SUBMIT)
    assert timedelta() < remaining <= PATIENCE
    assert senders.order == [0, 1, 10]


async def test_a_sender_who_is_cancelled_gives_its_slot_back() -> None:
    """A slot is not lost with its sender."""
    senders = Senders()
    holding = [asyncio.create_task(senders.send(n, "w", names.SUBMIT)) for n in range(PROMPT_SLOTS)]
    await _until_all_wait()
    holding[0].cancel()
    await asyncio.gather(holding[0], return_exceptions=True)
    senders.gate.set()
    await senders.send(9, "w", names.SUBMIT)
    await holding[1]
    assert senders.order == [0, 1, 9]
