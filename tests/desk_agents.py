"""The agents that the tests talk to. Their models are scripted by `model_server`."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from keeping_agents import KEEPING_AGENTS
from pydantic import BaseModel, JsonValue

from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.chunks import StartStep, TextDelta, TextEnd, TextStart, UIMessageChunk
from turnkeeper.detached import Detached
from turnkeeper.errors import MilestoneMissed
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.runs import AgentToolProgress, AgentToolResult, AgentToolRunInfo
from turnkeeper.runtime import AgentToolInputRequest
from turnkeeper.tools import agent_tool, tool

MODEL = "openai/test"

calls: list[str] = []
"""What tools and hooks did in this process, in order; tests use names of their own in it."""

gates: dict[str, asyncio.Event] = {}
"""What `wait` waits for, by name."""


def gate(name: str) -> asyncio.Event:
    """Return the event that the tool `wait(name)` waits for."""
    return gates.setdefault(name, asyncio.Event())


class Topic(BaseModel):
    query: str


class Finding(BaseModel):
    rows: int


class Echo(Agent):
    """Has no tools."""

    model = MODEL


class Clerk(Agent):
    """Has function tools."""

    model = MODEL
    instructions = "You are a clerk."
    max_steps = 150

    @tool
    async def add(self, left: int, right: int) -> int:
        """Add two numbers.

        Args:
            left: the first number
            right: the second number
        """
        return left + right

    @tool
    async def fail(self, text: str) -> str:
        """Fail with a text."""
        raise ValueError(text)

    @tool
    async def fill(self, size: int) -> str:
        """Return that many characters."""
        return "x" * size

    @tool
    async def note(self, text: str) -> str:
        """Note a text."""
        calls.append(f"note {text}")
        return self.tool_call.idempotency_key

    @tool
    async def wait(self, name: str) -> str:
        """Wait until the test opens the gate."""
        calls.append(f"wait {name}")
        try:
            await gate(name).wait()
        except asyncio.CancelledError:
            calls.append(f"cancelled {name}")
            raise
        return f"{name} is open"


class Tidy(Clerk):
    """Stops slowly."""

    @tool
    async def linger(self, name: str) -> str:
        """Wait until cancelled, and then until the test opens the gate."""
        calls.append(f"lingers {name}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append(f"tidies {name}")
            await gate(f"tidy {name}").wait()
            calls.append(f"tidied {name}")
            raise
        return "never"


class Windowed(Clerk):
    """Has a small context: the model server's answers fill it."""

    context_window = 20
    delegate = agent_tool("Clerk", description="Have it done.", input=Topic)


class Backed(Clerk):
    """Has models to fall back on."""

    fallback_models = ("openai/second", "openai/third")


class Impatient(Clerk):
    """Waits for each piece of an answer a moment only."""

    stream_stall_timeout = timedelta(milliseconds=300)


class Researcher(Clerk):
    """Researches a topic."""

    max_steps = 4


class Extractor(Agent):
    """Gives structured output, and writes its own first message."""

    model = MODEL

    async def format_agent_tool_input(self, input: JsonValue, request: AgentToolInputRequest) -> UIMessage:
        """Say what to do in other words."""
        assert isinstance(input, dict)
        return user_message(f"given-{request.run_id}", str(input["query"]))

    async def get_agent_tool_output(self, run_id: str) -> JsonValue:
        """Give the rows; the test's topic decides whether they fit."""
        return {"rows": "none"} if run_id.startswith("bad") else {"rows": 3}

    async def get_agent_tool_summary(self, run_id: str, output: JsonValue) -> str:
        """Say how many."""
        return f"extracted {output} after {self.messages[-1].text!r}"


class Silent(Agent):
    """Gives no structured output where one is declared."""

    model = MODEL


class Misformed(Agent):
    """Writes a first message that is none."""

    model = MODEL

    async def format_agent_tool_input(self, input: JsonValue, request: AgentToolInputRequest) -> UIMessage:
        """Return what the type does not allow."""
        return {"says": "nothing"}  # type: ignore[return-value]  # the fault that is tested


class Broken(Agent):
    """Fails before its first step."""

    model = MODEL

    async def format_agent_tool_input(self, input: JsonValue, request: AgentToolInputRequest) -> UIMessage:
        """Fail."""
        raise RuntimeError("the formatter is broken")


class Assistant(Agent):
    """Delegates."""

    model = MODEL
    research = agent_tool(Researcher, description="Research a topic.", input=Topic, display_name="Researcher")
    extract = agent_tool(Extractor, description="Extract rows.", input=Topic, output=Finding)
    misread = agent_tool(Extractor, description="Extract text.", input=Topic, output=list[str])
    nothing = agent_tool(Silent, description="Give nothing.", input=Topic, output=Finding)
    misformed = agent_tool(Misformed, description="Begin wrongly.", input=Topic)
    broken = agent_tool(Broken, description="Break.", input=Topic)
    measure = agent_tool("Surveyor", description="Have a survey made.", input=Topic)
    delegate = agent_tool("Assistant", description="Ask another assistant.", input=Topic)

    @tool(idempotent=True)
    async def compare(self, left: str, right: str) -> list[dict[str, Any]]:
        """Research two topics at once."""
        results = await asyncio.gather(
            *(
                self.run_agent_tool(Researcher, input=Topic(query=query), display_order=order)
                for order, query in enumerate((left, right))
            )
        )
        return [result.model_dump(mode="json") for result in results]

    @tool(idempotent=True, timeout=timedelta(seconds=3))
    async def shuffled(self) -> list[str | None]:
        """Research two topics, too slowly and in one order at first, in the other order then."""
        order = ("left", "right") if self.tool_call.attempt == 1 else ("right", "left")
        runs = {side: asyncio.create_task(self._research(side)) for side in order}
        found = [await runs[side] for side in ("left", "right")]
        if self.tool_call.attempt == 1:
            await asyncio.Event().wait()
        return found

    async def _research(self, topic: str) -> str | None:
        return (await self.run_agent_tool(Researcher, input=Topic(query=f"say {topic}"))).summary

    @tool
    async def named_run(self, run_id: str, query: str) -> dict[str, Any]:
        """Research under a run id of the caller's."""
        result = await self.run_agent_tool(Researcher, input=Topic(query=query), run_id=run_id)
        return result.model_dump(mode="json")


class Busy(Clerk):
    """Has tools of both kinds."""

    research = agent_tool(Researcher, description="Research a topic.", input=Topic)


class Capped(Assistant):
    """May have two runs open."""

    max_concurrent_agent_tools = 2


class Hooked(Assistant):
    """Hears of its runs."""

    async def on_agent_tool_start(self, run: AgentToolRunInfo) -> None:
        """Note the start, or refuse it."""
        calls.append(f"start {self.instance} {run.run_id} {run.status}")
        if "refuse" in str(run.input_preview):
            raise RuntimeError("the start hook refuses")

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Note the end, and fail where the test asks for it."""
        calls.append(f"finish {self.instance} {run.run_id} {run.status} {result.status}")
        if "stumble" in str(run.input_preview):
            raise RuntimeError("the finish hook stumbles")


class Following(Agent):
    """Has a Researcher follow up on every Clerk that finishes."""

    model = MODEL
    clerk = agent_tool(Clerk, description="Ask a clerk.", input=Topic)

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Dispatch the follow-up."""
        if run.agent_type == "Clerk":
            await self.run_agent_tool(Researcher, input=Topic(query=f"say after {result.summary}"))


class Lingering(Researcher):
    """Takes its time to hear of a run's end."""

    research = agent_tool(Researcher, description="Research a topic.", input=Topic)

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Wait until the test opens the gate."""
        calls.append(f"lingering {self.instance}")
        await gate(f"linger {self.instance}").wait()
        calls.append(f"lingered {self.instance}")


class Surveyor(Agent):
    """Reports how far it is."""

    model = MODEL

    @tool
    async def survey(self, reports: int, milestones: int = 0) -> list[str]:
        """Report so many times in a tight loop, with so many milestones spread over it."""
        outcomes = set()
        for number in range(reports):
            fraction = (number + 1) / (reports + 1)
            outcomes.add(await self.report_progress(fraction, f"line {number}", "surveying", data={"line": number}))
            if milestones and (number + 1) % (reports // milestones) == 0:
                await self.report_progress(milestone=f"mark-{number + 1}", data={"line": number})
        return sorted(outcomes)

    @tool
    async def pause(self, name: str) -> str:
        """Report, reach a milestone, and wait until the test opens the gate."""
        await self.report_progress(0.5, f"waiting for {name}", "waiting", data={"kept": True}, persist=True)
        await self.report_progress(milestone="half-way")
        await gate(name).wait()
        return f"{name} is open"


class Watching(Agent):
    """Hears of its runs' progress."""

    model = MODEL
    survey = agent_tool(Surveyor, description="Have a survey made.", input=Topic)

    async def on_progress(self, run: AgentToolRunInfo, progress: AgentToolProgress) -> None:
        """Note it, and fail where the test asks for it."""
        calls.append(f"progress {self.instance} {run.run_id} {progress.milestone or progress.message}")
        if "stumble" in str(run.input_preview):
            raise RuntimeError("the progress hook stumbles")


class Dispatching(Agent):
    """Has work done in the background."""

    model = MODEL
    background = agent_tool(Clerk, description="Have it done.", input=Topic, detached=Detached(on_finish="on_done"))
    notified = agent_tool(Clerk, description="Have it done.", input=Topic, detached=Detached(notify="desk"))
    survey = agent_tool(
        Surveyor, description="Survey.", input=Topic, detached=Detached(notify=True, on_milestones=["half-way"])
    )

    @tool
    async def start(self, run_id: str, query: str, seconds: float = 3_600, silence: float = 0) -> dict[str, Any]:
        """Start a run with budgets of its own."""
        handle = await self.run_agent_tool(
            Surveyor,
            input=Topic(query=query),
            run_id=run_id,
            detached=Detached(
                on_finish=self.on_done, max_budget=timedelta(seconds=seconds), no_progress_budget=silence
            ),
        )
        return handle.model_dump(mode="json")

    @tool
    async def stop(self, run_id: str) -> bool:
        """Cancel a run, twice."""
        for _ in range(2):
            await self.cancel_agent_tool(run_id, "enough of it")
        return await self.has_agent_tool_run(Surveyor, run_id)

    @tool
    async def await_half(self, run_id: str, seconds: float) -> dict[str, Any]:
        """Wait for a milestone."""
        try:
            reached = await self.wait_for_milestone(run_id, "half-way", timedelta(seconds=seconds))
        except MilestoneMissed as missed:
            return {"missed": str(missed)}
        return reached.model_dump(mode="json", exclude={"at"})

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Note the end."""
        calls.append(f"global {self.instance} {run.run_id} {result.status}")

    async def on_done(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Note the end, and do what the run's summary says."""
        calls.append(f"done {self.instance} {run.run_id} {result.status} {result.reason or result.summary}")
        if "stumble" in str(run.input_preview) and gate(f"mended {self.instance}").is_set() is False:
            raise RuntimeError("the callback stumbles")
        if result.summary == "follow up":
            await self.run_agent_tool(Clerk, input=Topic(query="say followed"), run_id="follow-up", detached=True)
            await self.submit_message("say submitted")


class Slow(Agent):
    """Takes a while to hear of progress."""

    model = MODEL
    survey = agent_tool(Surveyor, description="Have a survey made.", input=Topic)

    async def on_progress(self, run: AgentToolRunInfo, progress: AgentToolProgress) -> None:
        """Note it, slowly; for an instance whose name says so, not before the test opens the gate."""
        calls.append(f"slow {self.instance} {progress.milestone}")
        await (gate(f"slow {self.instance}").wait() if "stuck" in str(run.input_preview) else asyncio.sleep(0.2))


class Specialist(Clerk):
    """Works on a task queue of its own."""

    task_queue = "specialists"


class Author(ChatAgent):
    """Writes its own turn."""

    async def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Repeat the last message."""
        yield TextStart(id="t")
        for word in self.messages[-1].text.split():
            yield TextDelta(id="t", delta=f"{word}! ")
        yield TextEnd(id="t")


class Stepping(ChatAgent):
    """Writes a turn in two steps."""

    async def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Say one thing, and then another."""
        for word in ("first", "second"):
            yield StartStep()
            yield TextStart(id=word)
            yield TextDelta(id=word, delta=word)
            yield TextEnd(id=word)


AGENTS: tuple[type[Agent], ...] = (
    Assistant,
    Author,
    Busy,
    Capped,
    Clerk,
    Dispatching,
    Echo,
    Following,
    Hooked,
    Lingering,
    Tidy,
    Windowed,
    Backed,
    Impatient,
    Slow,
    Specialist,
    Stepping,
    Watching,
    *KEEPING_AGENTS,
)
