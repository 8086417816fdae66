"""Detached runs: what their dispatcher may ask for, and what of it travels."""

import math
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from turnkeeper.agents import Agent
from turnkeeper.detached import NOTIFY_SOURCE, Detached, DetachedRequest, Milestones, callback_problem, options_of
from turnkeeper.dispatches import DetachedOptions
from turnkeeper.errors import AgentDefinitionError, InvalidRequest
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo


class Base(Agent):
    """An agent with a callback that others inherit."""

    async def inherited(self, run: AgentToolRunInfo, result: AgentToolResult) -> None: ...


class Desk(Base):
    """An agent with callbacks, and with what is none."""

    async def filed(self, run: AgentToolRunInfo, result: AgentToolResult) -> None: ...

    async def _hidden(self, run: AgentToolRunInfo, result: AgentToolResult) -> None: ...

    async def on_agent_tool_finish(self, run: AgentToolRunInfo, result: AgentToolResult) -> None: ...

    async def on_progress(self, run: AgentToolRunInfo, progress: Any) -> None: ...

    def plain(self, run: AgentToolRunInfo, result: AgentToolResult) -> None: ...

    @property
    def shelf(self) -> str:
        """Something that is read."""
        raise AssertionError("properties are not to be run")

    value: JsonValue = 1


class Hasty(Desk):
    """An agent with budgets of its own."""

    detached_max_budget = timedelta(minutes=5)
    detached_no_progress_budget = 30.0


def test_bu_01_by_default_a_run_has_a_day_and_may_be_silent_for_an_hour() -> None:
    """DD-04, BU-01, BU-02: and nobody is told but the global hook."""
    assert (
        options_of(Desk, True)
        == options_of(Desk, Detached())
        == DetachedOptions(max_budget=timedelta(hours=24), no_progress_budget=timedelta(hours=1))
    )


def test_dd_04_everything_that_is_asked_for_travels() -> None:
    """DD-04, DD-09: a callback and a notice may both be asked for; the callback has precedence at the delivery."""
    asked = Detached(
        on_finish="filed",
        max_budget=timedelta(hours=2),
        no_progress_budget=timedelta(minutes=10),
        notify="desk",
        on_milestones=Milestones(names=("found",), mode="react"),
    )
    assert options_of(Desk, asked) == DetachedOptions(
        on_finish="filed",
        max_budget=timedelta(hours=2),
        no_progress_budget=timedelta(minutes=10),
        notify_source="desk",
        milestones=("found",),
        milestone_mode="react",
    )


def test_dd_04_an_unknown_option_is_refused() -> None:
    """DD-04: it is a typing mistake."""
    with pytest.raises(ValidationError, match="on_finished"):
        Detached.model_validate({"on_finished": "filed"})


@pytest.mark.parametrize(
    "callback",
    ["filed", Desk.filed, "inherited", Desk.inherited],
    ids=["name", "method", "base name", "base method"],
)
def test_dd_03_a_callback_travels_as_its_name(callback: Any) -> None:
    """DD-03: it is called in another process, perhaps by another release."""
    name = callback if isinstance(callback, str) else callback.__name__
    assert options_of(Desk, Detached(on_finish=callback)).on_finish == name
    assert callback_problem(Desk, name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("__init__", "underscore"),
        ("__reduce__", "underscore"),
        ("_hidden", "underscore"),
        ("run_agent_tool", "framework's"),
        ("on_agent_tool_finish", "framework's"),
        ("on_progress", "framework's"),
        ("on_chat_message", "framework's"),
        ("instance", "framework's"),
        ("shelf", "Desk.shelf is not an `async def` method"),
        ("plain", "Desk.plain is not an `async def` method"),
        ("value", "Desk.value is not an `async def` method"),
        ("missing", "Desk has no such method"),
        ("", "Desk has no such method"),
    ],
)
def test_dd_03_what_is_no_callback_is_refused_at_the_dispatch(name: str, problem: str) -> None:
    """DD-03: before anything starts, and the text says why."""
    assert problem in (callback_problem(Desk, name) or "")
    with pytest.raises(InvalidRequest, match=f"^on_finish='{name}': "):
        options_of(Desk, Detached(on_finish=name))


def test_dd_03_a_function_without_a_name_is_refused() -> None:
    """DD-03: a lambda cannot be found again."""
    with pytest.raises(InvalidRequest, match=r"begin with|no such method"):
        options_of(Desk, Detached(on_finish=lambda run, result: None))


@pytest.mark.parametrize(
    ("notify", "source"), [(False, None), (True, NOTIFY_SOURCE), ("desk", "desk")], ids=["none", "default", "named"]
)
def test_dd_09_a_notice_has_a_source(notify: bool | str, source: str | None) -> None:
    """DD-09, NT-04: the default one, unless another is named."""
    assert options_of(Desk, Detached(notify=notify)).notify_source == source


def test_bu_01_a_class_may_have_budgets_of_its_own() -> None:
    """BU-01, BU-02: a dispatch counts more than its class."""
    assert options_of(Hasty, True).max_budget == timedelta(minutes=5)
    assert options_of(Hasty, True).no_progress_budget == timedelta(seconds=30)
    asked = Detached(max_budget=timedelta(hours=1), no_progress_budget=5)
    assert options_of(Hasty, asked).max_budget == timedelta(hours=1)
    assert options_of(Hasty, asked).no_progress_budget == timedelta(seconds=5)


@pytest.mark.parametrize("budget", [0, 0.0, math.inf, timedelta()])
def test_bu_05_zero_and_infinity_are_no_silence_budget(budget: timedelta | float) -> None:
    """BU-05: the absolute budget stays."""
    options = options_of(Desk, Detached(no_progress_budget=budget))
    assert (options.no_progress_budget, options.max_budget) == (None, timedelta(hours=24))


def test_bu_05_a_class_may_have_no_silence_budget() -> None:
    """BU-05: the same values mean the same there."""

    class Patient(Desk):
        detached_no_progress_budget = math.inf

    assert options_of(Patient, True).no_progress_budget is None


@pytest.mark.parametrize(
    "budgets",
    [
        {"max_budget": timedelta(seconds=-1)},
        {"max_budget": timedelta()},
        {"no_progress_budget": timedelta(seconds=-1)},
        {"no_progress_budget": -1.0},
        {"no_progress_budget": -math.inf},
    ],
)
def test_bu_11_what_is_no_budget_is_refused(budgets: dict[str, Any]) -> None:
    """BU-11 as decided: it is refused where it is written, and not taken for something else."""
    with pytest.raises(ValidationError, match="budget"):
        Detached(**budgets)


def test_om_01_by_default_the_conversation_hears_of_no_milestone() -> None:
    """OM-01: it is asked for by name."""
    options = options_of(Desk, True)
    assert (options.milestones, options.milestone_mode) == ((), "narrate")


def test_om_02_names_alone_are_narrated() -> None:
    """OM-02: a list is short for the mode that costs no turn."""
    options = options_of(Desk, Detached(on_milestones=["found", "read"]))
    assert (options.milestones, options.milestone_mode) == (("found", "read"), "narrate")


def test_om_03_the_model_may_take_a_turn_on_milestones() -> None:
    """OM-03: in the mode that says so; another mode does not exist."""
    options = options_of(Desk, Detached(on_milestones=Milestones(names=("found",), mode="react")))
    assert (options.milestones, options.milestone_mode) == (("found",), "react")
    with pytest.raises(ValidationError, match="mode"):
        Milestones.model_validate({"names": ["found"], "mode": "shout"})


@pytest.mark.parametrize(
    "asked",
    [
        Detached(),
        Detached(on_finish=Desk.filed),
        Detached(max_budget=timedelta(hours=2), no_progress_budget=timedelta(minutes=10)),
        Detached(no_progress_budget=0),
        Detached(no_progress_budget=math.inf),
        Detached(no_progress_budget=2.5),
        Detached(notify=True, on_milestones=["found"]),
        Detached(notify="desk", on_milestones=Milestones(names=("a", "b"), mode="react")),
        Detached(webhook="https://a.example/hook"),
    ],
)
def test_what_is_asked_for_elsewhere_means_the_same(asked: Detached) -> None:
    """`turnkeeper.workflow`: the options are made where the class is, from what has travelled as JSON."""
    travelled = DetachedRequest.model_validate_json(DetachedRequest.of(asked).model_dump_json())
    assert options_of(Desk, travelled.detached) == options_of(Desk, asked)
    assert options_of(Hasty, travelled.detached) == options_of(Hasty, asked)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("detached_max_budget", timedelta(seconds=-1)),
        ("detached_max_budget", timedelta()),
        ("detached_no_progress_budget", -1.0),
        ("agent_tool_retention", timedelta(seconds=-1)),
    ],
)
def test_bu_11_a_class_cannot_declare_what_is_no_budget(attribute: str, value: object) -> None:
    """BU-11 as decided: an error when the class is defined."""
    with pytest.raises(AgentDefinitionError, match=attribute):
        type("Wrong", (Agent,), {attribute: value})
