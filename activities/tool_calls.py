"""The activity that carries out one function tool call."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import activity

from activities.agent_objects import AgentObjects
from activities.heartbeats import beating
from activities.publishing import output_entry
from turnkeeper import names
from turnkeeper.agents import Agent
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import ToolPart
from turnkeeper.runs import shorten_error
from turnkeeper.runtime import ToolCall
from turnkeeper.steps import CallToolInput, ToolResult
from turnkeeper.tools import ArgumentError, FunctionTool, ResultError

TOOL_GRACE = timedelta(seconds=10)
"""How long a tool may take to stop: it sees its cancel as `asyncio.CancelledError`, and may tidy up for so long."""


class ToolCallActivities:
    """Runs the `@tool` methods of agents."""

    def __init__(self, agents: AgentObjects, writer: EventWriter) -> None:
        """Run the tools of the agents that `agents` makes, and show their results through `writer`."""
        self._agents = agents
        self._writer = writer

    @activity.defn(name=names.CALL_TOOL)
    async def call_tool(self, call: CallToolInput) -> ToolResult:
        """Carry out one call; whatever the author's code raises is a result for the model, never a retry."""
        tool_call = ToolCall(
            tool_call_id=call.tool_call_id,
            idempotency_key=call.idempotency_key,
            attempt=activity.info().attempt,
        )
        lent = self._agents.lend(call.agent_type, call.source, call.idempotency_key, tool_call=tool_call)
        async with beating(), lent as agent:
            result = await _stopped_in_time(call, _run(agent, call))
        part = ToolPart(type=f"tool-{call.tool_name}", tool_call_id=call.tool_call_id, state="input-available")
        self._writer.add(output_entry(call.source.workflow_id, call.source.step, result.settle(part)))
        return result


async def _stopped_in_time(call: CallToolInput, run: Coroutine[Any, Any, ToolResult]) -> ToolResult:
    """Return a call's result; once the call is cancelled, wait for `TOOL_GRACE` at most until it has stopped."""
    running = asyncio.create_task(run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait([running], timeout=TOOL_GRACE.total_seconds())
        if not running.done():
            activity.logger.error("the tool %s goes on although it was cancelled; nobody waits for it", call.tool_name)
        raise


async def _run(agent: Agent, call: CallToolInput) -> ToolResult:
    tool = agent.tools.get(call.tool_name)
    if not isinstance(tool, FunctionTool):
        return ToolResult(error=f"The tool {call.tool_name} no longer exists.")
    try:
        arguments = tool.parse_arguments(call.arguments)
        return ToolResult(output=tool.dump_result(await getattr(agent, tool.method_name)(**arguments)))
    except (ArgumentError, ResultError) as error:
        return ToolResult(error=shorten_error(str(error)))
    except Exception as error:
        activity.logger.warning("the tool %s raised", tool.name, exc_info=True)
        return ToolResult(error=shorten_error(f"{type(error).__name__}: {error}"))
