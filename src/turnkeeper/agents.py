"""Agents: plain classes whose code runs in activities, never in a workflow."""

import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, JsonValue

from turnkeeper.chunks import UIMessageChunk
from turnkeeper.errors import AgentDefinitionError
from turnkeeper.messages import UIMessage
from turnkeeper.names import is_name
from turnkeeper.progress import ReportOutcome
from turnkeeper.runs import AgentToolProgress, AgentToolResult, AgentToolRunInfo, Display
from turnkeeper.tools import AgentTool, FunctionTool, check_tool_name, function_tool_of
from turnkeeper.turns import AgentProfile
from turnkeeper.wire import WireModel

Tool = FunctionTool | AgentTool


def _collect_tools(agent: type) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for attribute, value in inspect.getmembers_static(agent):
        found = _tool_of(agent.__name__, attribute, value)
        if found is None:
            continue
        check_tool_name(agent.__name__, found.name)
        if found.name in tools:
            raise AgentDefinitionError(f"{agent.__name__} has two tools named {found.name!r}; rename one with `name=`")
        tools[found.name] = found
    return tools


def _tool_of(owner: str, attribute: str, value: Any) -> Tool | None:
    if isinstance(value, AgentTool):
        return AgentTool(**{**value.__dict__, "name": value.name or attribute})
    return function_tool_of(owner, attribute, value) if inspect.isfunction(value) else None


class ToolCall(WireModel):
    """The tool call that is being carried out."""

    tool_call_id: str
    idempotency_key: str
    """The same at every attempt of this call, and of no other call: pass it on to what you call."""
    attempt: int
    """1 at first, more when a worker was lost and the tool is idempotent."""


class AgentToolInputRequest(WireModel):
    """What a run was asked for, for `format_agent_tool_input`."""

    run_id: str
    agent_type: str


class AgentRuntime(Protocol):
    """What a worker lends an agent object while it runs."""

    @property
    def instance(self) -> str:
        """The instance's workflow id."""

    @property
    def turn_id(self) -> str:
        """The turn that is going on."""

    @property
    def tool_call(self) -> ToolCall | None:
        """The tool call that is being carried out, if any."""

    @property
    def messages(self) -> tuple[UIMessage, ...]:
        """The conversation, where it is read."""

    async def run_agent_tool(
        self,
        agent: "type[Agent] | str",
        value: JsonValue,
        *,
        run_id: str | None,
        input_preview: JsonValue,
        display_order: int,
        display: Display | None,
    ) -> AgentToolResult:
        """Dispatch a run and wait for its end."""

    async def report_progress(
        self,
        *,
        fraction: float | None,
        message: str | None,
        phase: str | None,
        milestone: str | None,
        data: JsonValue,
        persist: bool,
    ) -> ReportOutcome:
        """Report how far the run is that this object works for."""


class Agent:
    """A model, its instructions and its tools.

    Subclass it. An object is built afresh for every activity, so nothing that is set on `self` lasts.
    """

    agent_type: ClassVar[str]
    """The registered name: the class's own, unless a subclass says otherwise."""
    model: str = ""
    """A model as litellm names it, such as `openai/gpt-5-mini`; may be a property."""
    instructions: str = ""
    """The system prompt; may be a property."""
    model_options: Mapping[str, Any] = {}
    """More arguments for the model call, such as `temperature`."""
    max_steps: ClassVar[int] = 20
    """How many model steps a turn may take before it ends in an error."""
    max_concurrent_agent_tools: ClassVar[int | None] = None
    """How many runs an instance may have open at once; a further one is refused, not queued (CC-02)."""
    task_queue: ClassVar[str | None] = None
    """The task queue of the agent's activities, when they need workers of their own."""

    tools: ClassVar[Mapping[str, Tool]] = {}
    """The tools by name; filled in from the class body."""

    def __init__(self, runtime: AgentRuntime) -> None:
        """Belong to one activity; workers do this."""
        self._runtime = runtime

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check and collect what the class declares.

        Raises:
            AgentDefinitionError: a name or a tool cannot be used.
        """
        super().__init_subclass__(**kwargs)
        if "agent_type" not in cls.__dict__:
            cls.agent_type = cls.__name__
        if not is_name(cls.agent_type):
            raise AgentDefinitionError(
                f"the agent type {cls.agent_type!r} is part of URLs: use 1 to 128 of A-Z a-z 0-9 . _ ~ -"
            )
        if cls.max_steps < 1:
            raise AgentDefinitionError(f"{cls.__name__}.max_steps is {cls.max_steps}; a turn needs at least one step")
        cap = cls.max_concurrent_agent_tools
        if cap is not None and cap < 0:
            raise AgentDefinitionError(f"{cls.__name__}.max_concurrent_agent_tools is {cap}; use None for no cap")
        cls.tools = _collect_tools(cls)

    @property
    def instance(self) -> str:
        """The instance's path, which is also its workflow id."""
        return self._runtime.instance

    @property
    def turn_id(self) -> str:
        """The id of the turn that is going on."""
        return self._runtime.turn_id

    @property
    def tool_call(self) -> ToolCall:
        """The tool call that is being carried out.

        Raises:
            RuntimeError: called outside a tool.
        """
        if self._runtime.tool_call is None:
            raise RuntimeError("tool_call is known only while a tool runs")
        return self._runtime.tool_call

    @property
    def messages(self) -> tuple[UIMessage, ...]:
        """The conversation: in a model step, and in the hooks that give a run's output and summary; else empty."""
        return self._runtime.messages

    async def run_agent_tool(
        self,
        agent: "type[Agent] | str",
        *,
        input: BaseModel | JsonValue,
        run_id: str | None = None,
        input_preview: JsonValue = None,
        display_order: int = 0,
        display: Display | None = None,
    ) -> AgentToolResult:
        """Run another agent and wait for its end; from a tool or a hook.

        The same `run_id` again is the same run: it never starts twice, and an ended run gives its result (DI-05).

        Args:
            agent: the agent's class or registered name.
            input: what to work on; the first message of the run unless the agent formats it otherwise.
            run_id: 1 to 128 of `A-Z a-z 0-9 . _ ~ -`; derived from the tool call if not given.
            input_preview: what the registry shows instead of the beginning of the input (IN-07).
            display_order: place among the runs of one tool call (DI-22).
            display: how user interfaces present the run.

        Returns:
            How the run ended; a run that failed, was cancelled or was refused gives a result, not an exception (AW-05).

        Raises:
            Conflict: the run id belongs to a run of another agent type or with another input (DI-16).
            NotFound: the agent is not registered here.
            ValueError: the run id is malformed.
            Unavailable: the run was not known to have started in time; ask again with the same run id.
            TooLarge: the input is over its limit.
        """
        value = input.model_dump(mode="json", by_alias=True) if isinstance(input, BaseModel) else input
        return await self._runtime.run_agent_tool(
            agent, value, run_id=run_id, input_preview=input_preview, display_order=display_order, display=display
        )

    async def report_progress(
        self,
        fraction: float | None = None,
        message: str | None = None,
        phase: str | None = None,
        *,
        milestone: str | None = None,
        data: JsonValue = None,
        persist: bool = False,
    ) -> ReportOutcome:
        """Report how far this run is; from a tool or a hook, or from `on_chat_message`.

        Reports show live at most every 200 ms, the latest of them always; they cost next to nothing, so report freely.
        A milestone is kept for good and told at once: when this returns, it is recorded (MS-01, MS-02).

        Args:
            fraction: how much is done, from 0 to 1; what lies beyond is cut to that (PR-05).
            message: a line for people.
            phase: what the run is doing, in a word.
            milestone: the name of a point that the run has passed.
            data: more, as JSON; kept with a milestone, or with `persist`, and otherwise only shown live (PR-07).
            persist: whether the latest report's data is part of what an inspection of the run shows.

        Returns:
            "emitted", "coalesced" when a newer report may replace this one before it shows, or "inactive" outside a run
            or after its end, which does nothing (PR-09, PR-16).

        Raises:
            ValueError: the report is over 16 KiB, its data is not JSON, or its fraction is not a number (PR-14).
            Unavailable: a milestone could not be recorded.
        """
        return await self._runtime.report_progress(
            fraction=fraction, message=message, phase=phase, milestone=milestone, data=data, persist=persist
        )

    async def format_agent_tool_input(self, input: JsonValue, request: AgentToolInputRequest) -> UIMessage:
        """Override to write the first message of a run yourself (IN-03)."""
        raise NotImplementedError

    async def get_agent_tool_output(self, run_id: str) -> JsonValue:
        """Override to give a run a structured output; read right after its last step (RF-19)."""
        raise NotImplementedError

    async def get_agent_tool_summary(self, run_id: str, output: JsonValue) -> str:
        """Override to write a run's summary; by default the last text, else the output (RF-14)."""
        raise NotImplementedError

    async def on_agent_tool_start(self, run: AgentToolRunInfo) -> None:
        """Override to hear of every run this instance dispatches, before it starts (DI-17)."""
        raise NotImplementedError

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        """Override to hear of every run's end, before whoever awaits it does (AW-06)."""
        raise NotImplementedError

    async def on_progress(self, run: AgentToolRunInfo, progress: AgentToolProgress) -> None:
        """Override to hear of the milestones and of the progress, now and then, of the runs dispatched (PR-11)."""
        raise NotImplementedError


class ChatAgent(Agent):
    """An agent whose author writes the turn: for other agent frameworks, or none."""

    def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Answer `self.messages`: an `async def` that yields chunks."""
        raise NotImplementedError


HOOKS = (
    "format_agent_tool_input",
    "get_agent_tool_output",
    "get_agent_tool_summary",
    "on_agent_tool_finish",
    "on_agent_tool_start",
    "on_progress",
)
"""The methods that a workflow has called only where a class overrides them."""


def overridden_hooks(agent: type[Agent]) -> tuple[str, ...]:
    """Return the hooks that a class overrides."""
    return tuple(hook for hook in HOOKS if getattr(agent, hook) is not getattr(Agent, hook))


def profile_of(agent: type[Agent]) -> AgentProfile:
    """Return what workflows must know of an agent class."""
    model = inspect.getattr_static(agent, "model")
    return AgentProfile(
        agent_type=agent.agent_type,
        task_queue=agent.task_queue,
        model=model if isinstance(model, str) and model else None,
        max_steps=1 if issubclass(agent, ChatAgent) else agent.max_steps,
        max_concurrent_agent_tools=agent.max_concurrent_agent_tools,
        hooks=overridden_hooks(agent),
    )
