"""The agent types that a process knows, loaded from the modules that its settings name."""

import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType

from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.detached import options_of
from turnkeeper.dispatches import AgentProfile
from turnkeeper.errors import AgentDefinitionError, NotFound
from turnkeeper.models import CustomModel
from turnkeeper.profiles import profile_of
from turnkeeper.tools import AgentTool

_OUR_TOP_LEVEL_NAMES = frozenset({"activities", "api", "worker", "workflows"})


class AgentRegistry:
    """Agent classes by registered name, and the custom models that they use."""

    def __init__(self, agents: Iterable[type[Agent]], custom_models: Mapping[str, CustomModel] | None = None) -> None:
        """Register `agents` and the agents that are their tools.

        Raises:
            AgentDefinitionError: two classes have one name, or an agent tool names an agent that is not there.
        """
        self._agents: dict[str, type[Agent]] = {}
        self.custom_models = dict(custom_models or {})
        for agent in agents:
            self._add(agent)
        for agent in self._agents.values():
            self._check_agent_tools(agent)

    @classmethod
    def load(cls, modules: Iterable[str]) -> "AgentRegistry":
        """Register every agent class that the named modules define or re-export.

        Raises:
            AgentDefinitionError: a module cannot be imported, or holds no agent.
        """
        agents: list[type[Agent]] = []
        custom_models: dict[str, CustomModel] = {}
        for name in modules:
            module = _import(name)
            found = [value for value in vars(module).values() if _is_author_class(value)]
            if not found:
                raise AgentDefinitionError(f"the module {name!r} holds no Agent subclass")
            agents.extend(found)
            custom_models.update(getattr(module, "custom_models", {}))
        return cls(agents, custom_models)

    @property
    def agent_types(self) -> list[str]:
        """The registered names, sorted."""
        return sorted(self._agents)

    def get(self, agent_type: str) -> type[Agent]:
        """Return the class that is registered under a name.

        Raises:
            NotFound: none is.
        """
        agent = self._agents.get(agent_type)
        if agent is None:
            raise NotFound(
                f"there is no agent type {agent_type!r}; known here: {', '.join(self.agent_types) or 'none'}"
            )
        return agent

    def profile(self, agent_type: str) -> AgentProfile:
        """Return what workflows must know of an agent type.

        Raises:
            NotFound: it is not registered.
        """
        return profile_of(self.get(agent_type))

    def _add(self, agent: type[Agent]) -> None:
        known = self._agents.setdefault(agent.agent_type, agent)
        if known is not agent:
            raise AgentDefinitionError(
                f"two classes are registered as {agent.agent_type!r}: {known.__module__}.{known.__qualname__} and "
                f"{agent.__module__}.{agent.__qualname__}. Set `agent_type` on one."
            )
        for tool in agent.tools.values():
            if isinstance(tool, AgentTool) and not isinstance(tool.agent, str) and tool.agent not in self:
                self._add(tool.agent)

    def __contains__(self, agent: type[Agent]) -> bool:
        """Tell whether a class is registered."""
        return self._agents.get(agent.agent_type) is agent

    def _check_agent_tools(self, agent: type[Agent]) -> None:
        for tool in agent.tools.values():
            if isinstance(tool, AgentTool) and tool.detached is not False:
                options_of(agent, tool.detached)
            if isinstance(tool, AgentTool) and tool.agent_type not in self._agents:
                raise AgentDefinitionError(
                    f"the agent tool {agent.__name__}.{tool.name} names {tool.agent_type!r}, which is not registered; "
                    f"known here: {', '.join(self.agent_types)}"
                )


def _is_author_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Agent) and value not in (Agent, ChatAgent)


def _import(name: str) -> ModuleType:
    if name.partition(".")[0] in _OUR_TOP_LEVEL_NAMES:
        raise AgentDefinitionError(
            f"the agents module {name!r} has the top-level name of a part of Turnkeeper; put it into another package"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise AgentDefinitionError(
                f"there is no module {name!r}; install it beside Turnkeeper, or run from the folder that holds it"
            ) from error
        raise
