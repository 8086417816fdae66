"""The agents that the clients chat with."""

import asyncio
from typing import Any

from desk_agents import MODEL, Clerk, Researcher, Topic, calls, gate

from turnkeeper.agents import Agent
from turnkeeper.tools import agent_tool, tool


class Surveyor(Agent):
    """Reports as it goes."""

    model = MODEL

    @tool
    async def look(self, name: str) -> str:
        """Look at a site, in two halves, and wait at the gate of that name in between if the name ends with `!`."""
        await self.report_progress(0.25, f"looking at {name}", "looking")
        await self.report_progress(milestone="half-way", data={"seen": name})
        if name.endswith("!"):
            calls.append(f"wait {name}")
            await gate(name).wait()
        await self.report_progress(0.5, f"measuring {name}", "measuring")
        await self.report_progress(0.75, f"drawing {name}", "drawing")
        await self.report_progress(milestone="drawn", data={"pages": 2})
        await self.report_progress(1.0, f"{name} is done", "done")
        return f"looked at {name}"

    @tool
    async def reach(self) -> str:
        """Report once, and then reach a milestone that says nothing of the fraction."""
        await self.report_progress(0.5, "half done", "reaching")
        await self.report_progress(milestone="reached")
        return "reached"


class Foreman(Clerk):
    """Has tools of every kind."""

    research = agent_tool(Researcher, description="Research a topic.", input=Topic)
    survey = agent_tool(Surveyor, description="Survey a site.", input=Topic, display_name="Surveyor")
    delegate = agent_tool("Foreman", description="Ask another foreman.", input=Topic)

    @tool(idempotent=True)
    async def survey_both(self, left: str, right: str) -> list[dict[str, Any]]:
        """Survey two sites at once, the right one first in line."""
        queries = ((left, 1), (right, 0))
        results = await asyncio.gather(
            *(
                self.run_agent_tool(Surveyor, input=Topic(query=f'call look {{"name": "{site}"}}'), display_order=order)
                for site, order in queries
            )
        )
        return [result.model_dump(mode="json") for result in results]


AGENTS: tuple[type[Agent], ...] = (Foreman,)
