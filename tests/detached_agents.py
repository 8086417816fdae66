"""Agents whose detached runs are counted: what hears of a run's end notes it outside its process, with its key."""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from desk_agents import MODEL, Clerk, Surveyor, Topic, gate

from turnkeeper.agents import Agent
from turnkeeper.detached import Detached
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.tools import agent_tool, tool

NOTES_VARIABLE = "TURNKEEPER_TEST_NOTES"
"""Names the file that notes are appended to."""


def note(**fields: Any) -> None:
    """Append a note; one write of one line, so that several processes do not mix them."""
    with Path(os.environ[NOTES_VARIABLE]).open("a") as notes:
        notes.write(json.dumps(fields) + "\n")


def notes_of(instance: str, word: str) -> list[dict[str, Any]]:
    """Return what an instance noted under a word."""
    path = Path(os.environ[NOTES_VARIABLE])
    lines = path.read_text().splitlines() if path.exists() else []
    notes = [json.loads(line) for line in lines]
    return [note for note in notes if (note["instance"], note["word"]) == (instance, word)]


class Laborer(Surveyor):
    """Does background work."""

    @tool
    async def tick(self, seconds: float, every: float) -> str:
        """Report again and again for some seconds."""
        ends_at = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < ends_at:
            await self.report_progress(0.5, "at work")
            await asyncio.sleep(every)
        return "ticked"

    @tool
    async def hold_on(self, name: str) -> str:
        """Wait, without a report, until the test opens the gate."""
        await gate(name).wait()
        return f"{name} is open"

    @tool
    async def report_when_told(self, name: str, count: int) -> str:
        """Report whenever the test opens the next gate, and then wait for the last one."""
        for number in range(count):
            await gate(f"{name} {number}").wait()
            await self.report_progress(number / count, f"report {number}")
        await gate(name).wait()
        return "reported"

    @tool(idempotent=True)
    async def work(self, seconds: float) -> str:
        """Take some seconds."""
        await asyncio.sleep(seconds)
        return "worked"


class Foreman(Agent):
    """Has work done in the background, and notes what it hears of it."""

    model = MODEL
    labor = agent_tool(Laborer, description="Labor.", input=Topic, detached=Detached(on_finish="on_done"))

    @tool(idempotent=True)
    async def start(
        self, run_id: str, query: str, seconds: float | None = None, silence: float | None = None
    ) -> dict[str, Any]:
        """Start a run that is told to the callback."""
        handle = await self.run_agent_tool(
            Laborer,
            input=Topic(query=query),
            run_id=run_id,
            detached=Detached(
                on_finish=self.on_done,
                max_budget=None if seconds is None else timedelta(seconds=seconds),
                no_progress_budget=silence,
            ),
        )
        return handle.model_dump(mode="json")

    @tool(idempotent=True)
    async def start_many(self, count: int, query: str) -> str:
        """Start many runs at once."""
        runs = [
            self.run_agent_tool(
                Laborer, input=Topic(query=query), run_id=f"r{number}", detached=Detached(on_finish=self.on_done)
            )
            for number in range(count)
        ]
        await asyncio.gather(*runs)
        return "started"

    @tool
    async def hold(self, name: str) -> str:
        """Wait until the test opens the gate."""
        await gate(name).wait()
        return f"{name} is open"

    async def on_done(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Note the end, with the key by which a repeat is known."""
        self._note("done", run, result)

    def _note(self, word: str, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        note(
            instance=self.instance,
            word=word,
            run=run.run_id,
            status=result.status,
            reason=result.reason,
            key=self.idempotency_key,
        )


class Attentive(Foreman):
    """Hears of every start and end, and holds them up where the test asks for it."""

    async def on_agent_tool_start(self, run: AgentToolRunInfo) -> None:
        """Wait for the test."""
        note(instance=self.instance, word="start", run=run.run_id)
        if "hold start" in str(run.input_preview):
            await gate(f"start {self.instance}").wait()

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Note the end, and wait for the test, or fail."""
        self._note("global", run, result)
        if "hold end" in str(run.input_preview):
            await gate(f"end {self.instance}").wait()
        if "stumble" in str(run.input_preview):
            raise RuntimeError("the finish hook stumbles")


class Dawdling(Foreman):
    """Takes a while after it has counted a run's end, in which its process may be killed."""

    async def on_done(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Note the end, and be slow to say so."""
        self._note("done", run, result)
        await asyncio.sleep(0.3)


class Writer(Attentive):
    """Writes its notices itself."""

    notified = agent_tool(Clerk, description="Have it done.", input=Topic, detached=Detached(notify=True))

    async def format_detached_completion(self, run: AgentToolRunInfo, result: AgentToolResult) -> str:
        """Write what the summary says, or nothing."""
        return "" if result.summary == "hush" else f"say heard of {run.run_id}: {result.status}"


AGENTS: tuple[type[Agent], ...] = (Attentive, Dawdling, Foreman, Writer)
