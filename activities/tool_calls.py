"""The activity that carries out one function tool call."""

from temporalio import activity

from activities.agent_objects import AgentObjects
from activities.failures import agents_known_here
from activities.heartbeats import beating
from turnkeeper import names
from turnkeeper.agents import Agent, ToolCall
from turnkeeper.runs import shorten_error
from turnkeeper.steps import CallToolInput, ToolResult
from turnkeeper.tools import ArgumentError, FunctionTool, ResultError


class ToolCallActivities:
    """Runs the `@tool` methods of agents."""

    def __init__(self, agents: AgentObjects) -> None:
        """Run the tools of the agents that `agents` makes."""
        self._agents = agents

    @activity.defn(name=names.CALL_TOOL)
    async def call_tool(self, call: CallToolInput) -> ToolResult:
        """Carry out one call; whatever the author's code raises is a result for the model, never a retry."""
        tool_call = ToolCall(
            tool_call_id=call.tool_call_id,
            idempotency_key=call.idempotency_key,
            attempt=activity.info().attempt,
        )
        with agents_known_here():
            agent = self._agents.make(call.agent_type, call.source, call.idempotency_key, tool_call=tool_call)
        tool = agent.tools.get(call.tool_name)
        if not isinstance(tool, FunctionTool):
            return ToolResult(error=f"The tool {call.tool_name} no longer exists.")
        async with beating():
            return await _run(agent, tool, call)


async def _run(agent: Agent, tool: FunctionTool, call: CallToolInput) -> ToolResult:
    try:
        arguments = tool.parse_arguments(call.arguments)
        return ToolResult(output=tool.dump_result(await getattr(agent, tool.method_name)(**arguments)))
    except (ArgumentError, ResultError) as error:
        return ToolResult(error=shorten_error(str(error)))
    except Exception as error:
        activity.logger.warning("the tool %s raised", tool.name, exc_info=True)
        return ToolResult(error=shorten_error(f"{type(error).__name__}: {error}"))
