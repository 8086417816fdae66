"""What of an agent class travels to workflows, which never see the class itself."""

import inspect

from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.detached import reattach_timeout
from turnkeeper.dispatches import USUAL_WINDOWS, AgentProfile, ReattachWindows

HOOKS = (
    "format_agent_tool_input",
    "format_detached_completion",
    "format_detached_milestone",
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
    windows = ReattachWindows(
        no_progress=reattach_timeout(agent.agent_tool_reattach_no_progress_timeout),
        max_window=agent.agent_tool_reattach_max_window,
    )
    return AgentProfile(
        agent_type=agent.agent_type,
        task_queue=agent.task_queue,
        model=model if isinstance(model, str) and model else None,
        max_steps=1 if issubclass(agent, ChatAgent) else agent.max_steps,
        max_concurrent_agent_tools=agent.max_concurrent_agent_tools,
        run_retention=agent.agent_tool_retention,
        reattach=None if windows == USUAL_WINDOWS else windows,
        hooks=overridden_hooks(agent),
    )
