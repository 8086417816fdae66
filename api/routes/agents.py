"""The agent types that can be addressed."""

from fastapi import APIRouter

from api.dependencies import ClientDependency
from turnkeeper.agents import Agent
from turnkeeper.wire import WireModel

router = APIRouter(prefix="/agents", tags=["agents"])


class ToolView(WireModel):
    """A tool of an agent."""

    name: str
    description: str


class AgentView(WireModel):
    """An agent type."""

    agent_type: str
    description: str | None = None
    tools: list[ToolView]


@router.get("")
async def list_agents(client: ClientDependency) -> list[AgentView]:
    """Return the registered agent types."""
    return [_view(client.registry.get(agent_type)) for agent_type in client.registry.agent_types]


def _view(agent: type[Agent]) -> AgentView:
    tools = [ToolView(name=tool.name, description=tool.description) for tool in agent.tools.values()]
    return AgentView(agent_type=agent.agent_type, description=agent.__doc__, tools=tools)
