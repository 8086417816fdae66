"""The agents of the research desk: an Assistant, and the Researcher, Planner and Importer that are its tools.

What they know is what the Python distributions installed on this machine say of themselves.
"""

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue

from examples.research_desk.distributions import RecordRow, installed_distributions, record_rows
from examples.research_desk.record_database import (
    COLUMNS,
    DEFAULT_DATABASE,
    ImportCounts,
    database_path,
    prepare_database,
    replace_records,
)
from examples.research_desk.searches import Candidate, Passage, find_distributions, find_passages
from turnkeeper.agents import Agent
from turnkeeper.detached import Detached
from turnkeeper.errors import TurnkeeperError
from turnkeeper.runs import AgentToolRunInfo, Display, failure_of
from turnkeeper.tools import agent_tool, tool

MODEL = os.environ.get("TURNKEEPER_MODEL", "offline/rules")
"""The model of every agent here, as litellm names it."""

BACKGROUND = "research-desk-background"
"""`metadata.source` of the messages about background work, by which a user interface tells them from a person's."""

YIELD_SECONDS = 0.05
"""Between two distributions of an import, which leaves the disk and the processor to whoever waits for an answer."""

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


def _checked(files: Sequence[RecordRow]) -> list[tuple[RecordRow, bool | None]]:
    return [(row, row.is_intact()) for row in files]


class Importer(Agent):
    """Loads the file lists of the installed distributions into a database, and checks each file."""

    model = MODEL
    instructions = "You load RECORD rows into the database that you are asked for, and report the counts."

    @tool(idempotent=True)
    async def load_records(self, database: str = DEFAULT_DATABASE) -> ImportCounts:
        """Load the RECORD rows of all installed distributions into a SQLite file, replacing what it held.

        Every file is read and compared with its hash in RECORD, so this takes a while.

        Args:
            database: a plain file name.
        """
        path = database_path(database)
        await asyncio.to_thread(prepare_database, path)
        await self.report_progress(milestone="schema-ready", data={"table": "records", "columns": [*COLUMNS]})
        rows = await asyncio.to_thread(record_rows)
        checked: list[tuple[RecordRow, bool | None]] = []
        for done, (distribution, files) in enumerate(rows.items()):
            if done % 10 == 0:
                await self.report_progress(0.95 * done / len(rows), f"Checking {distribution} and others", "checking")
            checked += await asyncio.to_thread(_checked, files)
            await asyncio.sleep(YIELD_SECONDS)
        await self.report_progress(0.95, f"Writing {len(checked):,} rows", "writing")
        counts = await asyncio.to_thread(replace_records, path, checked)
        await self.report_progress(milestone="rows-written", data=counts.model_dump())
        return counts


def _in_the_background(milestone: str) -> Detached:
    """Return how background work is watched: a milestone is told, and the end is a message that the model reads."""
    return Detached(notify=BACKGROUND, on_milestones=[milestone], max_budget=timedelta(minutes=5))


class Assistant(Agent):
    """Talks with the user, and has the others do the work."""

    model = MODEL
    instructions = (
        "You help with questions about the Python distributions installed on this machine. Have the Researcher, the "
        "Planner and the Importer do the work, and pass on what they report; say plainly when one of them failed. What "
        "is done in the background you only start: a message tells you of its end."
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
        description="In the background, have an Importer load the RECORD rows of all distributions into a SQLite file.",
        input=ImportRequest,
        display_name="Importer",
        detached=_in_the_background("schema-ready"),
    )
    research_background = agent_tool(
        Researcher,
        description="Have a Researcher answer one question in the background.",
        input=Topic,
        display_name="Researcher",
        detached=_in_the_background("sources-gathered"),
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

    async def format_detached_milestone(self, run: AgentToolRunInfo, milestone: str, data: JsonValue) -> str:
        """Say what background work has come to."""
        if milestone == "schema-ready" and isinstance(data, dict):
            return (
                f"The {run.agent_type} has the table `{data.get('table')}` ready, and checks and loads the files now."
            )
        return f"The {run.agent_type} has reached {milestone}."

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
