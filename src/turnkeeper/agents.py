"""Agents: plain classes whose code runs in activities, never in a workflow."""

import copy
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal, overload
from uuid import uuid4

from pydantic import BaseModel, JsonValue, ValidationError

from turnkeeper.chunks import UIMessageChunk
from turnkeeper.detached import DEFAULT_MAX_BUDGET, DEFAULT_NO_PROGRESS_BUDGET, Detached, options_of
from turnkeeper.dispatches import DEFAULT_NO_PROGRESS_TIMEOUT
from turnkeeper.errors import AgentDefinitionError
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.names import is_name
from turnkeeper.progress import ReportOutcome
from turnkeeper.runs import (
    AgentToolMilestone,
    AgentToolProgress,
    AgentToolResult,
    AgentToolRunHandle,
    AgentToolRunInfo,
    AgentToolRunInspection,
    Display,
    RunStatus,
)
from turnkeeper.runtime import AgentRuntime, AgentToolInputRequest, ToolCall
from turnkeeper.tools import AgentTool, FunctionTool, check_tool_name, function_tool_of
from turnkeeper.turns import TurnInfo

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


def _check_durations(agent: "type[Agent]") -> None:
    """Refuse budgets and a retention that are none (BU-11 as decided).

    Raises:
        AgentDefinitionError: one is.
    """
    try:
        options_of(
            agent, Detached(max_budget=agent.detached_max_budget, no_progress_budget=agent.detached_no_progress_budget)
        )
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise AgentDefinitionError(f"{agent.__name__}.detached_{problem['loc'][0]}: {problem['msg']}") from error
    if agent.agent_tool_retention is not None and agent.agent_tool_retention < timedelta():
        raise AgentDefinitionError(f"{agent.__name__}.agent_tool_retention is negative; use None to keep runs for ever")


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
    fallback_models: ClassVar[Sequence[str]] = ()
    """Models to try in order, within the same attempt of a step, when `model` fails."""
    stream_stall_timeout: ClassVar[timedelta | None] = None
    """How long a model's stream may stand still before the attempt has failed; for ever by default."""
    context_window: ClassVar[int | None] = None
    """Tokens that the model takes; at 80 % of them the conversation is compacted before the next step. Without, it is
    compacted when the provider refuses it as too long."""
    max_steps: ClassVar[int] = 20
    """How many model steps a turn may take before it ends in an error."""
    max_concurrent_agent_tools: ClassVar[int | None] = None
    """How many runs an instance may have open at once; a further one is refused, not queued (CC-02)."""
    detached_max_budget: ClassVar[timedelta] = DEFAULT_MAX_BUDGET
    """How long a detached run that this agent dispatches may take, unless the dispatch says otherwise (BU-01)."""
    detached_no_progress_budget: ClassVar[timedelta | float] = DEFAULT_NO_PROGRESS_BUDGET
    """How long such a run that has reported once may be silent; 0 or infinity for no such budget (BU-02, BU-05)."""
    agent_tool_retention: ClassVar[timedelta | None] = None
    """How long an instance keeps the rows of runs that have ended and been told of; for ever by default (CL-01)."""
    agent_tool_reattach_no_progress_timeout: ClassVar[timedelta | float] = DEFAULT_NO_PROGRESS_TIMEOUT
    """How long a run that this agent joins, because it has the id already, may be silent before the call gives it up;
    infinity for as long as it likes, 0 to take only what has ended (RC-06, RC-10, RC-11)."""
    agent_tool_reattach_max_window: ClassVar[timedelta | None] = None
    """How long such a run may take in all before it is cancelled (RC-07)."""
    initial_state: ClassVar[JsonValue] = None
    """What `self.state` is until it is set. Only an agent that declares one has a state."""
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
        _check_durations(cls)
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
    def idempotency_key(self) -> str:
        """The same at every attempt of this tool call, hook or callback, and of no other: pass it on to what you call.

        A callback may be called again after a crash (DV-26); by this key whoever counts or pays knows the repeat.
        """
        return self._runtime.idempotency_key

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

    @property
    def state(self) -> JsonValue:
        """What the instance remembers beside its conversation, as JSON; a copy, so change it by `set_state`."""
        return copy.deepcopy(self._runtime.state)

    async def set_state(self, value: JsonValue) -> None:
        """Replace the instance's state, which lasts as long as the instance; from a tool, hook or callback.

        Tools of one step run at the same time: the last one that sets the state wins.

        Raises:
            InvalidRequest: the class declares no `initial_state`, the value is not JSON, or this is a run's agent: a
                run is one turn and keeps no state.
            TooLarge: it is over 256 KiB.
            Unavailable: nobody answered; it may have been set.
        """
        await self._runtime.set_state(value)

    @overload
    async def run_agent_tool(
        self,
        agent: "type[Agent] | str",
        *,
        input: BaseModel | JsonValue,
        run_id: str | None = None,
        input_preview: JsonValue = None,
        display_order: int = 0,
        display: Display | None = None,
        detached: Literal[False] = False,
    ) -> AgentToolResult: ...

    @overload
    async def run_agent_tool(
        self,
        agent: "type[Agent] | str",
        *,
        input: BaseModel | JsonValue,
        run_id: str | None = None,
        input_preview: JsonValue = None,
        display_order: int = 0,
        display: Display | None = None,
        detached: Detached | Literal[True],
    ) -> AgentToolRunHandle: ...

    async def run_agent_tool(
        self,
        agent: "type[Agent] | str",
        *,
        input: BaseModel | JsonValue,
        run_id: str | None = None,
        input_preview: JsonValue = None,
        display_order: int = 0,
        display: Display | None = None,
        detached: Detached | bool = False,
    ) -> AgentToolResult | AgentToolRunHandle:
        """Run another agent and wait for its end, or with `detached` go on without it; from a tool, hook or callback.

        The same `run_id` again is the same run: it never starts twice, and an ended run gives its result (DI-05).

        Args:
            agent: the agent's class or registered name.
            input: what to work on; the first message of the run unless the agent formats it otherwise.
            run_id: 1 to 128 of `A-Z a-z 0-9 . _ ~ -`; derived from the call and the work if not given.
            input_preview: what the registry shows instead of the beginning of the input (IN-07).
            display_order: place among the runs of one tool call (DI-22).
            display: how user interfaces present the run.
            detached: who is told of the end instead; the run outlives the turn, and its cancel (DD rows).

        Returns:
            How the run ended; a run that failed, was cancelled or was refused gives a result, not an exception (AW-05).
            Detached: a handle, as soon as the run is recorded and has started, or was refused (DD-01).

        Raises:
            Conflict: the run id belongs to a run of another agent type or with another input (DI-16).
            InvalidRequest: `on_finish` is not a method of this agent's own (DD-03).
            NotFound: the agent is not registered here.
            ValueError: the run id is malformed.
            Unavailable: the run was not known to have started in time; ask again with the same run id.
            TooLarge: the input is over its limit.
        """
        value = input.model_dump(mode="json", by_alias=True) if isinstance(input, BaseModel) else input
        if detached is False:
            return await self._runtime.run_agent_tool(
                agent, value, run_id=run_id, input_preview=input_preview, display_order=display_order, display=display
            )
        return await self._runtime.dispatch_agent_tool(
            agent,
            value,
            options_of(type(self), detached),
            run_id=run_id,
            input_preview=input_preview,
            display_order=display_order,
            display=display,
        )

    async def cancel_agent_tool(self, run_id: str, reason: str | None = None) -> None:
        """Cancel a run of this instance; without effect on one that is unknown or has ended (CX-12)."""
        await self._runtime.cancel_agent_tool(run_id, reason)

    async def inspect_agent_tool_run(self, run_id: str) -> AgentToolRunInspection | None:
        """Return what a run of this instance says of itself; None means that nothing is known of it yet (IC-01)."""
        return await self._runtime.inspect_agent_tool_run(run_id)

    async def has_agent_tool_run(self, agent: "type[Agent] | str", run_id: str) -> bool:
        """Tell whether this instance's registry holds a run of an agent under an id, however it stands (DG-04)."""
        agent_type = agent if isinstance(agent, str) else agent.agent_type
        rows = await self._runtime.agent_tool_runs()
        return any((row.agent_type, row.run_id) == (agent_type, run_id) for row in rows)

    async def clear_agent_tool_runs(self, status: Sequence[RunStatus] = (), older_than: timedelta | None = None) -> int:
        """Remove runs from this instance's registry; those that go on are cancelled first (CL rows).

        Args:
            status: only runs that stand so; any if not given.
            older_than: only runs that started longer ago.

        Returns:
            How many were removed; what is to be delivered of them is not delivered any more (CL-09).
        """
        return await self._runtime.clear_agent_tool_runs(tuple(status), older_than)

    async def wait_for_milestone(self, run_id: str, name: str, timeout: timedelta) -> AgentToolMilestone:
        """Wait until a run of this instance reaches a milestone (MS-11); from a tool or callback.

        Raises:
            MilestoneMissed: it did not in time, or ended or was given up without it.
        """
        return await self._runtime.wait_for_milestone(run_id, name, timeout)

    async def submit_message(self, message: UIMessage | str) -> TurnInfo:
        """Queue a message for a turn of this instance; the same message id again is the same message.

        It is not answered before this returns: turns and callbacks come one after the other (DV-15).
        """
        sent = message if isinstance(message, UIMessage) else user_message(uuid4().hex, message)
        return await self._runtime.submit_message(sent)

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

    async def format_detached_completion(self, run: AgentToolRunInfo, result: AgentToolResult) -> str:
        """Override to write the message about a detached run's end yourself; an empty one is none (NT-08)."""
        raise NotImplementedError

    async def format_detached_milestone(self, run: AgentToolRunInfo, milestone: str, data: JsonValue) -> str:
        """Override to write what is said of a detached run's milestone; empty for nothing, for good (OM-09)."""
        raise NotImplementedError

    async def on_progress(self, run: AgentToolRunInfo, progress: AgentToolProgress) -> None:
        """Override to hear of the milestones and of the progress, now and then, of the runs dispatched (PR-11)."""
        raise NotImplementedError


class ChatAgent(Agent):
    """An agent whose author writes the turn: for other agent frameworks, or none."""

    def on_chat_message(self) -> AsyncIterator[UIMessageChunk]:
        """Answer `self.messages`: an `async def` that yields chunks."""
        raise NotImplementedError
