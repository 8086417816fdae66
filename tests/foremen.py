"""What tests ask of the agents of `detached_agents`, and how they wait for what is noted."""

import json
from typing import Any

from desk import Desk, eventually
from desk_agents import gate
from detached_agents import notes_of

from turnkeeper.runs import AgentToolRunInfo


def start(run_id: str, query: str, **more: Any) -> str:
    """Return a message that makes a Foreman start a run, with budgets of its own where `more` gives some."""
    return f"call start {json.dumps({'run_id': run_id, 'query': query, **more})}"


def pause(desk: Desk) -> str:
    """Return what makes a Laborer report, reach a milestone, and wait until the test opens the desk's gate."""
    return f"call pause {json.dumps({'name': desk.name})}"


def noted(desk: Desk, agent_type: str, word: str) -> list[dict[str, Any]]:
    """Return what the desk's instance noted under "start", "global" or "done"."""
    return notes_of(desk.session_id(agent_type), word)


async def until_noted(
    desk: Desk, agent_type: str, word: str, count: int = 1, seconds: float = 30
) -> list[dict[str, Any]]:
    """Wait until a hook or callback has noted so often."""

    async def found() -> list[dict[str, Any]]:
        return noted(desk, agent_type, word)

    return await eventually(found, lambda notes: len(notes) >= count, seconds)


async def row(desk: Desk, agent_type: str, run_id: str) -> AgentToolRunInfo:
    """Return a run's registry row."""
    return await desk.client.runs.info(desk.session_id(agent_type), (run_id,))


async def until_settled(desk: Desk, agent_type: str, run_id: str, slots: tuple[str, ...] = ("finish",)) -> None:
    """Wait until everything of a run's end has been delivered."""
    await eventually(lambda: row(desk, agent_type, run_id), lambda info: _delivered(info) == set(slots))


def open_gate(desk: Desk, word: str, agent_type: str) -> None:
    """Let go of the hooks ("start" or "end") of the desk's instance that were held up."""
    gate(f"{word} {desk.session_id(agent_type)}").set()


def _delivered(info: AgentToolRunInfo) -> set[str]:
    return {delivery.slot for delivery in info.deliveries or () if delivery.status == "delivered"}
