"""Agents: what a class body declares, and what workflows must know of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, Field, JsonValue
from unbacked_runtime import UnbackedRuntime

from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.chunks import TextStart, UIMessageChunk
from turnkeeper.dispatches import AgentProfile
from turnkeeper.errors import AgentDefinitionError
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.profiles import HOOKS, overridden_hooks, profile_of
from turnkeeper.progress import ReportOutcome
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, Display
from turnkeeper.runtime import AgentToolInputRequest, ToolCall
from turnkeeper.tools import agent_tool, tool


class Question(BaseModel):
    """An input."""

    query: str


class Worker(Agent):
    """An agent with one tool and one agent tool."""

    model = "openai/small"

    @tool
    async def search(self) -> str:
        """Search."""
        return ""

    ask = agent_tool("Worker", description="Ask.", input=Question)


@dataclass
class Lent(UnbackedRuntime):
    """What a worker lends an agent, for objects that run nothing."""

    tool_call: ToolCall | None = None
    messages: tuple[UIMessage, ...] = ()
    instance: str = "default/Worker/main"
    turn_id: str = "1"
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)

    async def report_progress(self, **report: Any) -> ReportOutcome:
        """Take a report."""
        self.reports.append(report)
        return "emitted"

    async def run_agent_tool(
        self,
        agent: type[Agent] | str,
        value: JsonValue,
        *,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> AgentToolResult:
        """Note what was asked for, and say that it is done."""
        self.asked.append((agent, value, run_id, input_preview, display_order, display))
        return AgentToolResult(run_id=run_id or "generated", agent_type="Worker", status="completed")


def test_an_agent_is_registered_under_its_class_name() -> None:
    """The class's own name, not that of a base."""

    class Sub(Worker): ...

    assert (Worker.agent_type, Sub.agent_type) == ("Worker", "Sub")


def test_an_agent_type_can_be_given_and_is_not_inherited() -> None:
    """A subclass of a named agent is another agent."""

    class Named(Agent):
        agent_type = "my-agent"

    class Sub(Named): ...

    assert (Named.agent_type, Sub.agent_type) == ("my-agent", "Sub")


@pytest.mark.parametrize("agent_type", ["", "two words", "a/b", "..", ".hidden", "агент", "a" * 129, "a\n"])
def test_field_14_an_agent_type_that_cannot_be_part_of_a_url_is_refused(agent_type: str) -> None:
    """Field case 14: refused when it is defined, with the rule."""
    with pytest.raises(AgentDefinitionError, match="is part of URLs"):
        type("Bad", (Agent,), {"agent_type": agent_type})


def test_field_14_a_class_whose_own_name_cannot_be_part_of_a_url_is_refused() -> None:
    """Field case 14: Python allows letters that URLs do not."""
    with pytest.raises(AgentDefinitionError, match="'Агент'"):
        type("Агент", (Agent,), {})


def test_tools_are_collected_from_the_class_and_its_bases() -> None:
    """A subclass has its base's tools, may replace them, and may drop them."""

    class Sub(Worker):
        ask = None  # type: ignore[assignment]  # drops the tool

        @tool
        async def search(self) -> str:
            """Search better."""
            return ""

        @tool
        async def add(self) -> int:
            """Add."""
            return 1

    assert set(Worker.tools) == {"search", "ask"}
    assert set(Sub.tools) == {"search", "add"}
    assert (Worker.tools["search"].description, Sub.tools["search"].description) == ("Search.", "Search better.")


def test_one_agent_tool_assigned_twice_is_two_tools() -> None:
    """The attribute names the tool, not the object."""
    shared = agent_tool("Worker", description="Ask.", input=Question)

    class Both(Agent):
        first = shared
        second = shared

    assert {name: found.name for name, found in Both.tools.items()} == {"first": "first", "second": "second"}


def test_hooks_are_those_that_a_class_overrides() -> None:
    """What is not overridden costs nothing; an inherited override counts."""

    class Listening(Agent):
        async def on_agent_tool_start(self, run: AgentToolRunInfo) -> None: ...

        async def get_agent_tool_output(self, run_id: str) -> JsonValue:
            return None

    class Sub(Listening):
        async def get_agent_tool_summary(self, run_id: str, output: JsonValue) -> str:
            return ""

    assert overridden_hooks(Agent) == overridden_hooks(Worker) == overridden_hooks(ChatAgent) == ()
    assert overridden_hooks(Listening) == ("get_agent_tool_output", "on_agent_tool_start")
    assert overridden_hooks(Sub) == ("get_agent_tool_output", "get_agent_tool_summary", "on_agent_tool_start")


def test_the_names_of_hooks_are_the_names_of_methods() -> None:
    """Workflows name hooks by these strings."""
    assert set(HOOKS) == {
        "format_agent_tool_input",
        "format_detached_completion",
        "format_detached_milestone",
        "get_agent_tool_output",
        "get_agent_tool_summary",
        "on_agent_tool_finish",
        "on_agent_tool_start",
        "on_progress",
    }
    assert all(callable(getattr(Agent, hook)) for hook in HOOKS)


def test_a_profile_says_what_workflows_must_know() -> None:
    """The class itself never reaches a workflow."""

    class Busy(Worker):
        max_steps = 3
        max_concurrent_agent_tools = 2
        task_queue = "gpu"

        async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None: ...

    assert profile_of(Busy) == AgentProfile(
        agent_type="Busy",
        task_queue="gpu",
        model="openai/small",
        max_steps=3,
        max_concurrent_agent_tools=2,
        hooks=("on_agent_tool_finish",),
    )


@pytest.mark.parametrize("max_steps", [0, -1])
def test_an_agent_that_may_take_no_step_is_refused(max_steps: int) -> None:
    """It is refused when it is defined, not when its first turn starts."""
    with pytest.raises(AgentDefinitionError, match=rf"Idle\.max_steps is {max_steps}; a turn needs at least one step"):
        type("Idle", (Agent,), {"max_steps": max_steps})


def test_cc_01_by_default_runs_are_not_limited() -> None:
    """CC-01: unlimited."""
    assert profile_of(Worker).max_concurrent_agent_tools is None


def test_a_model_that_is_a_property_is_not_part_of_the_profile() -> None:
    """Such a model is known only to an agent object, in an activity."""

    class Choosy(Agent):
        @property
        def model(self) -> str:  # type: ignore[override]  # as the docstring of `Agent.model` allows
            return f"openai/{self.instance}"

    assert profile_of(Choosy).model is None
    assert Choosy(Lent()).model == "openai/default/Worker/main"


def test_a_chat_agent_takes_one_step() -> None:
    """Its author writes the whole turn."""

    class Chatty(ChatAgent):
        async def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
            yield TextStart(id="1")

    assert profile_of(Chatty).max_steps == 1
    with pytest.raises(NotImplementedError):
        ChatAgent(Lent()).on_chat_message()


def test_an_agent_object_reads_what_its_worker_lends_it() -> None:
    """Instance, turn, conversation and call come from the activity."""
    call = ToolCall(tool_call_id="c", idempotency_key="k", attempt=2)
    lent = Lent(tool_call=call, messages=(user_message("m", "hi"),))
    agent = Worker(lent)
    assert (agent.instance, agent.turn_id, agent.messages, agent.tool_call) == (
        lent.instance,
        lent.turn_id,
        lent.messages,
        call,
    )


def test_outside_a_tool_there_is_no_tool_call() -> None:
    """DI-21: asking for it then is an error that says so."""
    with pytest.raises(RuntimeError, match="only while a tool runs"):
        _ = Worker(Lent()).tool_call


async def test_di_22_a_run_is_asked_for_with_its_input_as_json() -> None:
    """DI-22, IN-07: a model is dumped; display order is 0 and everything else absent unless given."""
    lent = Lent()
    agent = Worker(lent)
    await agent.run_agent_tool(Worker, input=Question(query="q"))
    await agent.run_agent_tool(
        "Other", input=[1], run_id="r", input_preview="[...]", display_order=2, display=Display(name="D")
    )
    assert lent.asked == [
        (Worker, {"query": "q"}, None, None, 0, None),
        ("Other", [1], "r", "[...]", 2, Display(name="D")),
    ]


async def test_in_10_a_run_is_asked_for_in_the_names_that_its_schema_has() -> None:
    """IN-10: an aliased field has the same name whether a model or an author dispatches the run."""

    class Aliased(BaseModel):
        class_name: str = Field(alias="class")

    lent = Lent()
    value = Aliased.model_validate({"class": "c"})
    await Worker(lent).run_agent_tool(Worker, input=value)
    asked = agent_tool(Worker, description="Ask.", input=Aliased).parse_input({"class": "c"})
    assert lent.asked[0][1] == asked == {"class": "c"}


async def test_pr_01_a_report_is_passed_on_with_everything_that_it_has() -> None:
    """PR-01, PR-07: what is not given is None, and data is not kept unless the author says so."""
    lent = Lent()
    agent = Worker(lent)
    assert await agent.report_progress(0.5, "half", "reading") == "emitted"
    await agent.report_progress(milestone="found", data={"sources": 2}, persist=True)
    nothing = {"fraction": None, "message": None, "phase": None, "milestone": None, "data": None, "persist": False}
    assert lent.reports == [
        {**nothing, "fraction": 0.5, "message": "half", "phase": "reading"},
        {**nothing, "milestone": "found", "data": {"sources": 2}, "persist": True},
    ]


async def test_a_hook_that_is_not_overridden_is_never_to_be_called() -> None:
    """Workflows call only the hooks in the profile."""
    with pytest.raises(NotImplementedError):
        await Worker(Lent()).format_agent_tool_input(None, AgentToolInputRequest(run_id="r", agent_type="A"))
