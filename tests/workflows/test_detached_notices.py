"""What a conversation hears of detached runs, and callbacks that a deploy took away."""

import json
from datetime import timedelta
from typing import Any

import pytest
from desk import Desk, eventually
from desk_agents import Dispatching, calls, gate

from turnkeeper.detached import Detached, Milestones, options_of
from turnkeeper.dispatches import DetachedOptions, DispatchRunInput
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from workflows import deliveries


async def dispatch(desk: Desk, query: str, options: DetachedOptions, agent_type: str = "Dispatching") -> None:
    """Start the detached run `r` from outside."""
    registry = desk.client.registry
    profile = registry.profile("Surveyor")
    request = DispatchRunInput(run_id="r", profile=profile, input={"query": query}, detached=options)
    await desk.client.runs.dispatch(desk.session_id(agent_type), registry.profile(agent_type), request)


def asked(**more: Any) -> DetachedOptions:
    """Return the options of a dispatch by a Dispatching agent."""
    return options_of(Dispatching, Detached(**more))


async def told(desk: Desk, agent_type: str = "Dispatching") -> list[str]:
    """Return how far the telling of the run's end has come."""
    info = await desk.client.runs.info(desk.session_id(agent_type), ("r",))
    return [delivery.status for delivery in info.deliveries or ()]


async def test_om_05_the_model_takes_one_turn_on_a_milestone(desk: Desk) -> None:
    """OM-05, OM-06: one user message, and one answer."""
    query = f"call pause {json.dumps({'name': desk.name})}"
    await dispatch(desk, query, asked(on_milestones=Milestones(names=("half-way",), mode="react")))
    messages = await eventually(lambda: desk.messages("Dispatching"), lambda found: len(found) == 2)
    gate(desk.name).set()
    await eventually(lambda: told(desk), lambda found: found == ["delivered"])
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[0].id == "detached-ms:r:half-way"
    assert len(await desk.messages("Dispatching")) == 2


async def test_om_09_an_empty_text_is_no_message(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """OM-09, NT-08: neither of a milestone nor of the end, which count as told all the same."""

    async def say_nothing(*told: Any) -> str:
        return ""

    monkeypatch.setattr(Dispatching, "format_detached_completion", say_nothing)
    monkeypatch.setattr(Dispatching, "format_detached_milestone", say_nothing)
    gate(desk.name).set()
    query = f"call pause {json.dumps({'name': desk.name})}"
    await dispatch(desk, query, asked(notify=True, on_milestones=["half-way"]))
    await eventually(lambda: told(desk), lambda found: found == ["delivered"])
    assert await desk.messages("Dispatching") == []


async def test_dv_10_a_callback_that_a_deploy_took_away_is_called_once_it_is_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DV-10 as decided: the delivery stays open, and says why."""
    monkeypatch.setattr(deliveries, "FIRST_RETRY_PAUSE", timedelta(seconds=1))
    await dispatch(desk, "say one", DetachedOptions(on_finish="renamed"))
    await eventually(lambda: told(desk), lambda found: found == ["open"])
    info = await desk.client.runs.info(desk.session_id("Dispatching"), ("r",))

    async def renamed(self: Dispatching, run: AgentToolRunInfo, result: AgentToolResult) -> None:
        calls.append(f"renamed {self.instance} {result.summary}")

    monkeypatch.setattr(Dispatching, "renamed", renamed, raising=False)
    await eventually(lambda: told(desk), lambda found: found == ["delivered"])
    assert info.deliveries is not None
    assert "Dispatching has no such method" in str(info.deliveries[0].error)
    assert calls.count(f"renamed {desk.session_id('Dispatching')} one") == 1
