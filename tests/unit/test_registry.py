"""The agent types that a process knows, and how it refuses modules that it cannot use."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from turnkeeper.agents import Agent
from turnkeeper.errors import AgentDefinitionError, NotFound
from turnkeeper.registry import AgentRegistry
from turnkeeper.tools import agent_tool

WriteModule = Callable[[str, str], None]

AGENT_MODULE = """
from turnkeeper.agents import Agent, ChatAgent

class {name}(Agent):
    model = "openai/small"
"""


class Question(BaseModel):
    """An input."""

    query: str


class Leaf(Agent):
    """An agent without tools."""


class Branch(Agent):
    """An agent that has another one as a tool, by class."""

    ask_leaf = agent_tool(Leaf, description="Ask.", input=Question)


class Root(Agent):
    """An agent that has itself as a tool, by name, and another one by class."""

    ask_self = agent_tool("Root", description="Ask.", input=Question)
    ask_branch = agent_tool(Branch, description="Ask.", input=Question)


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Return a function that writes modules which can be imported during the test."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_agents_are_known_by_their_registered_names() -> None:
    """The class is found by name; names are listed in order."""
    registry = AgentRegistry([Root, Leaf])
    assert registry.get("Leaf") is Leaf
    assert registry.agent_types == ["Branch", "Leaf", "Root"]


def test_the_agents_of_agent_tools_are_registered_too() -> None:
    """A class that is somebody's tool need not be named, however deep it is."""
    assert AgentRegistry([Root]).agent_types == ["Branch", "Leaf", "Root"]


def test_an_agent_may_be_its_own_tool_by_name() -> None:
    """Field case 24: recursion is bounded when it runs, not forbidden."""
    assert "Root" in AgentRegistry([Root]).agent_types


def test_one_class_may_be_registered_twice() -> None:
    """Two modules may re-export one class."""
    assert AgentRegistry([Leaf, Leaf, Branch]).agent_types == ["Branch", "Leaf"]


def test_a_profile_is_that_of_the_class() -> None:
    """Workflows get the profile by the registered name."""
    assert AgentRegistry([Leaf]).profile("Leaf").agent_type == "Leaf"


def test_an_unknown_agent_is_not_found_and_the_known_ones_are_named() -> None:
    """The text says what there is."""
    with pytest.raises(NotFound, match=r"'Twig'; known here: Branch, Leaf"):
        AgentRegistry([Branch]).get("Twig")
    with pytest.raises(NotFound, match="known here: none"):
        AgentRegistry([]).profile("Twig")


def test_field_14_two_classes_of_one_name_are_refused() -> None:
    """Field case 14: the wrong one would run."""
    impostor = type("Leaf", (Agent,), {})
    with pytest.raises(AgentDefinitionError, match="two classes are registered as 'Leaf'"):
        AgentRegistry([Leaf, impostor])
    with pytest.raises(AgentDefinitionError, match="two classes are registered as 'Leaf'"):
        AgentRegistry([impostor, Branch])


def test_an_agent_tool_that_names_an_unknown_agent_is_refused() -> None:
    """The text names the tool, the missing agent, and the known ones."""

    class Lost(Agent):
        ask = agent_tool("Nobody", description="Ask.", input=Question)

    with pytest.raises(AgentDefinitionError, match=r"Lost\.ask names 'Nobody'.*known here: Leaf, Lost"):
        AgentRegistry([Lost, Leaf])


def test_the_agents_of_a_module_are_loaded(write_module: WriteModule) -> None:
    """Its own classes and those that it re-exports; the base classes that it imports do not count."""
    write_module("tk_one", AGENT_MODULE.format(name="One"))
    write_module("tk_two", f"from tk_one import One\n{AGENT_MODULE.format(name='Two')}")
    assert AgentRegistry.load(["tk_two"]).agent_types == ["One", "Two"]
    assert AgentRegistry.load(["tk_one", "tk_two"]).agent_types == ["One", "Two"]


def test_the_custom_models_of_modules_are_loaded(write_module: WriteModule) -> None:
    """`custom_models` of all modules are put together."""
    write_module("tk_one", f"{AGENT_MODULE.format(name='One')}\ncustom_models = {{'first': object()}}")
    write_module("tk_two", f"{AGENT_MODULE.format(name='Two')}\ncustom_models = {{'second': object()}}")
    assert set(AgentRegistry.load(["tk_one", "tk_two"]).custom_models) == {"first", "second"}


@pytest.mark.parametrize("name", ["tk_missing", "tk_missing.agents", "turnkeeper.tk_missing"])
def test_a_module_that_does_not_exist_is_refused_with_the_remedy(name: str) -> None:
    """The text names the module and says what to do."""
    with pytest.raises(AgentDefinitionError, match=f"there is no module '{name}'; install it"):
        AgentRegistry.load([name])


def test_a_module_that_lacks_something_itself_fails_as_python_says(write_module: WriteModule) -> None:
    """The missing dependency is named, not the module that is there."""
    write_module("tk_broken", "import tk_dependency")
    with pytest.raises(ModuleNotFoundError, match="tk_dependency"):
        AgentRegistry.load(["tk_broken"])


def test_a_module_whose_dependency_has_a_similar_name_fails_as_python_says(write_module: WriteModule) -> None:
    """A dependency whose name begins the module's name is not the module."""
    write_module("tk_broken", "import tk_bro")
    with pytest.raises(ModuleNotFoundError, match="No module named 'tk_bro'"):
        AgentRegistry.load(["tk_broken"])


def test_a_module_without_agents_is_refused(write_module: WriteModule) -> None:
    """Importing the base classes does not make agents."""
    write_module("tk_empty", "from turnkeeper.agents import Agent, ChatAgent")
    with pytest.raises(AgentDefinitionError, match="'tk_empty' holds no Agent subclass"):
        AgentRegistry.load(["tk_empty"])


@pytest.mark.parametrize("name", ["workflows", "activities", "api", "worker", "api.agents", "workflows.mine"])
def test_a_module_named_like_a_part_of_ours_is_refused_in_one_clear_error(name: str) -> None:
    """An author's package beside the application must not shadow it."""
    with pytest.raises(AgentDefinitionError, match=f"'{name}' has the top-level name of a part of Turnkeeper"):
        AgentRegistry.load([name])
