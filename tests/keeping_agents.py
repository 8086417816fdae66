"""Agents of the tests that keep a state, keep runs for a time, or join runs that somebody else dispatched."""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import BaseModel, JsonValue

from turnkeeper.agents import Agent
from turnkeeper.detached import Detached
from turnkeeper.errors import InvalidRequest, TooLarge
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.tools import agent_tool, tool

MODEL = "openai/test"


class Errand(BaseModel):
    query: str


class Keeper(Agent):
    """Remembers what it is told."""

    model = MODEL
    initial_state: ClassVar[JsonValue] = {"told": []}
    errand = agent_tool("Clerk", description="Have it done.", input=Errand, detached=Detached(on_finish="on_errand"))
    nested = agent_tool("Keeper", description="Ask another keeper.", input=Errand)

    @property
    def instructions(self) -> str:  # type: ignore[override]  # may be a property
        """Say what is remembered."""
        return f"You remember {self.state}."

    @tool
    async def remember(self, text: str, copies: int = 1) -> JsonValue:
        """Remember a text."""
        try:
            await self.set_state({"told": [*self._told, *[text] * copies]})
        except (InvalidRequest, TooLarge) as error:
            return {"refused": str(error)}
        return self.state

    async def on_errand(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Remember the result."""
        await self.set_state({"told": [*self._told, result.summary]})

    @property
    def _told(self) -> list[JsonValue]:
        state = self.state
        assert isinstance(state, dict)
        told = state["told"]
        assert isinstance(told, list)
        return told


class Forgetful(Agent):
    """Keeps the rows of its runs for a moment only."""

    model = MODEL
    agent_tool_retention = timedelta(seconds=1)
    errand = agent_tool("Clerk", description="Have it done.", input=Errand)
    background = agent_tool(
        "Clerk", description="Have it done.", input=Errand, detached=Detached(on_finish="on_errand")
    )

    async def on_errand(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Be told, and do nothing."""


class Joining(Agent):
    """Joins runs, without much patience."""

    model = MODEL
    agent_tool_reattach_no_progress_timeout = 1.5

    @tool
    async def join(self, run_id: str, query: str) -> dict[str, Any]:
        """Ask for a run that may go on already."""
        agent = "Lively" if "toil" in query else "Surveyor"
        result = await self.run_agent_tool(agent, input=Errand(query=query), run_id=run_id)
        return result.model_dump(mode="json")


class Hasty(Joining):
    """Joins runs for a limited time, however lively they are."""

    agent_tool_reattach_no_progress_timeout = float("inf")
    agent_tool_reattach_max_window = timedelta(seconds=1.5)


class Collecting(Joining):
    """Takes only what has ended."""

    agent_tool_reattach_no_progress_timeout = 0


class Lively(Agent):
    """Reports again and again, for longer than an impatient caller's patience."""

    model = MODEL

    @tool
    async def toil(self, seconds: float) -> str:
        """Reach a milestone every half second."""
        for number in range(round(seconds * 2)):
            await self.report_progress(milestone=f"mark-{number}")
            await asyncio.sleep(0.5)
        return "done"


class Mumbling(Agent):
    """Cannot say what a milestone is about."""

    model = MODEL
    survey = agent_tool("Surveyor", description="Survey.", input=Errand, detached=Detached(on_milestones=["half-way"]))

    async def format_detached_milestone(self, run: AgentToolRunInfo, milestone: str, data: JsonValue) -> str:
        """Fail."""
        raise RuntimeError("no words")


KEEPING_AGENTS: tuple[type[Agent], ...] = (Collecting, Forgetful, Hasty, Joining, Keeper, Lively, Mumbling)
