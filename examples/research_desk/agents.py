"""The agents of the research desk: an Assistant, and the Researcher, Planner and Importer that are its tools.

What they know is what the Python distributions installed on this machine say of themselves.
"""

import asyncio
import os
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field

from examples.research_desk.distributions import installed_distributions, record_rows
from examples.research_desk.record_database import DEFAULT_DATABASE, ImportCounts, database_path, replace_records
from examples.research_desk.searches import Candidate, Passage, find_distributions, find_passages
from turnkeeper.agents import Agent
from turnkeeper.errors import TurnkeeperError
from turnkeeper.runs import Display, failure_of
from turnkeeper.tools import agent_tool, tool

MODEL = os.environ.get("TURNKEEPER_MODEL", "offline/rules")
"""The model of every agent here, as litellm names it."""

Query = Annotated[str, Field(min_length=3)]


class Topic(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What a Researcher is asked."""

    query: Query
    """What to find out, in a few words; the name of a distribution finds that one."""


class Goal(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What a Planner is asked."""

    goal: str = Field(min_length=5)
    """What is to be achieved."""


class ImportRequest(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What an Importer is asked."""

    database: str = DEFAULT_DATABASE
    """A plain file name for the database."""


class Finding(BaseModel, frozen=True):
    """How one side of a comparison went: a summary, or an error."""

    topic: str
    summary: str | None = None
    error: str | None = None


class Researcher(Agent):
    """Answers a question from the descriptions of the installed distributions."""

    model = MODEL
    instructions = (
        "You answer questions about Python software from the descriptions of the distributions installed on this "
        "machine. Search, then answer in a few sentences, each with the name and version of its distribution. Say so "
        "when the passages do not answer the question."
    )

    @tool
    async def search(self, query: str) -> list[Passage]:
        """Find the passages in the descriptions of the installed distributions that answer a query best.

        Args:
            query: a few words; the name of a distribution finds that one first.
        """
        await self.report_progress(0.2, f"Searching {query}", "searching")
        distributions = await asyncio.to_thread(installed_distributions)
        await self.report_progress(0.6, f"Reading {len(distributions)} descriptions", "reading")
        passages = await asyncio.to_thread(find_passages, query, distributions)
        await self.report_progress(0.9, f"Sorting {len(passages)} passages", "synthesizing")
        sources = len({passage.distribution for passage in passages})
        await self.report_progress(milestone="sources-gathered", data={"query": query, "sources": sources})
        return passages


class Planner(Agent):
    """Writes a plan that builds on what is installed."""

    model = MODEL
    instructions = (
        "You write short numbered plans for Python projects. Inspect the installed distributions first, and name those "
        "to build on, with their versions."
    )

    @tool
    async def inspect_distributions(self, goal: str) -> list[Candidate]:
        """Find the installed distributions that may serve a goal, with their summaries.

        Args:
            goal: what is to be achieved.
        """
        return await asyncio.to_thread(lambda: find_distributions(goal, installed_distributions()))


class Importer(Agent):
    """Loads the file lists of the installed distributions into a database."""

    model = MODEL
    instructions = "You load RECORD rows into the database that you are asked for, and report the counts."

    @tool(idempotent=True)
    async def load_records(self, database: str = DEFAULT_DATABASE) -> ImportCounts:
        """Load the RECORD rows of all installed distributions into a SQLite file, replacing what it held.

        Args:
            database: a plain file name.
        """
        path = database_path(database)
        await self.report_progress(0.1, "Reading the file lists", "reading")
        rows = await asyncio.to_thread(lambda: list(record_rows()))
        await self.report_progress(0.5, f"Writing {len(rows):,} rows", "writing")
        counts = await asyncio.to_thread(replace_records, path, rows)
        await self.report_progress(milestone="rows-written", data=counts.model_dump())
        return counts


class Assistant(Agent):
    """Talks with the user, and has the others do the work."""

    model = MODEL
    instructions = (
        "You help with questions about the Python distributions installed on this machine. Have the Researcher, the "
        "Planner and the Importer do the work, and pass on what they report; say plainly when one of them failed."
    )
    max_concurrent_agent_tools = 4

    research = agent_tool(
        Researcher,
        description="Have a Researcher answer one question from the descriptions of the installed distributions.",
        input=Topic,
        display_name="Researcher",
    )
    plan = agent_tool(
        Planner,
        description="Have a Planner write a plan for a goal that builds on the installed distributions.",
        input=Goal,
        display_name="Planner",
    )
    import_records = agent_tool(
        Importer,
        description="Have an Importer load the RECORD rows of all installed distributions into a SQLite file.",
        input=ImportRequest,
        display_name="Importer",
    )

    # It only waits for two runs, however long they take, and an attempt after a crash meets the same two runs again.
    @tool(idempotent=True, timeout=timedelta(hours=1))
    async def compare(self, left: Query, right: Query) -> list[Finding]:
        """Have two Researchers look into two topics at once; each side has its own summary or error.

        Args:
            left: the one topic.
            right: the other topic.
        """
        return list(await asyncio.gather(self._look_into(left, 0), self._look_into(right, 1)))

    async def _look_into(self, topic: str, display_order: int) -> Finding:
        try:
            result = await self.run_agent_tool(
                Researcher,
                input=Topic(query=topic),
                display_order=display_order,
                display=Display(name="Researcher"),
            )
        except TurnkeeperError as error:
            return Finding(topic=topic, error=str(error))
        if result.status != "completed":
            return Finding(topic=topic, error=failure_of(result).error)
        return Finding(topic=topic, summary=result.summary or "")
