"""Detached runs, the state, and what clears, over HTTP."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from desk import eventually
from desk_agents import gate
from webhook_receiver import Receiver

Json = dict[str, Any]


async def dispatch(api: httpx.AsyncClient, name: str, query: str, detached: Any = True) -> httpx.Response:
    """Dispatch the run `r` of a Dispatching agent."""
    body = {"agent": "Surveyor", "runId": "r", "input": {"query": query}, "detached": detached}
    return await api.post(f"/agents/Dispatching/{name}/runs", json=body)


async def run(api: httpx.AsyncClient, name: str) -> Json:
    """Return that run."""
    found: Json = (await api.get(f"/agents/Dispatching/{name}/runs/r")).json()
    return found


def pause(name: str) -> str:
    """Return what makes a Surveyor reach `half-way` and wait for the test."""
    return f"call pause {json.dumps({'name': name})}"


async def test_dd_01_a_detached_run_is_answered_at_once_and_its_end_is_told(
    api: httpx.AsyncClient, name: str, receiver: Receiver
) -> None:
    """DD-01, DV-01: a message and a turn, and a post to the webhook, all of which its row shows."""
    answer = await dispatch(api, name, pause(name), {"notify": "http", "webhook": receiver.url})
    gate(name).set()
    ended = await eventually(
        lambda: run(api, name),
        lambda found: [told["status"] for told in found.get("deliveries", ())] == ["delivered", "delivered"],
    )
    messages = await eventually(
        lambda: api.get(f"/agents/Dispatching/{name}/messages"), lambda found: len(found.json()) == 2
    )
    assert (answer.status_code, answer.json()["status"], answer.json()["detached"]) == (202, "running", True)
    assert [(told["to"], told["slot"]) for told in ended["deliveries"]] == [("agent", "finish"), ("webhook", "finish")]
    assert messages.json()[0]["metadata"]["source"] == "http"
    assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    "detached",
    [
        {"onFinish": "nowhere"},
        {"onFinish": "__init__"},
        {"onFinish": "on_agent_tool_finish"},
        {"webhook": "ftp://a.example"},
        {"webhook": "https://user:secret@a.example"},
        {"maxBudgetSeconds": 0},
        {"noProgressBudgetSeconds": -1},
        {"onMilestone": ["half-way"]},
    ],
)
async def test_dd_03_what_cannot_be_is_refused_and_starts_nothing(
    api: httpx.AsyncClient, name: str, detached: Json
) -> None:
    """DD-03, BU-11: 422, and there is no run."""
    answer = await dispatch(api, name, "say one", detached)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await api.get(f"/agents/Dispatching/{name}/runs")).status_code == 404


async def test_ms_11_a_milestone_is_waited_for(api: httpx.AsyncClient, name: str) -> None:
    """MS-11: answered when it is reached; a 409 says that it will not be."""
    await dispatch(api, name, pause(name))
    path = f"/agents/Dispatching/{name}/runs/r/milestones"
    reached = await api.get(f"{path}/half-way?wait=30")
    too_early = await api.get(f"{path}/all-done?wait=0.1")
    waiting = asyncio.create_task(api.get(f"{path}/all-done?wait=30"))
    gate(name).set()
    missed = await waiting
    unknown = await api.get(f"/agents/Dispatching/{name}/runs/other/milestones/half-way?wait=30")
    assert (reached.status_code, reached.json()["name"], reached.json()["runId"]) == (200, "half-way", "r")
    assert (too_early.status_code, missed.status_code, unknown.status_code) == (409, 409, 404)
    assert "did not reach 'all-done' within 0.1 s" in too_early.json()["detail"]
    assert "run r is completed and did not reach 'all-done'" in missed.json()["detail"]


async def test_cx_14_a_detached_run_is_cancelled_once(api: httpx.AsyncClient, name: str) -> None:
    """CX-12, CX-14, field case 23."""
    await dispatch(api, name, pause(name), {"onFinish": "on_done"})
    for _ in range(2):
        answer = await api.post(f"/agents/Dispatching/{name}/runs/r/cancel", json={"reason": "enough"})
        assert answer.status_code == 200
    ended = await eventually(
        lambda: run(api, name),
        lambda found: [told["status"] for told in found.get("deliveries", ())] == ["delivered"],
    )
    assert (ended["status"], ended["error"]) == ("aborted", "enough")


async def test_cl_02_runs_are_cleared_by_status_and_age(api: httpx.AsyncClient, name: str) -> None:
    """CL-02 to CL-06, CL-10."""
    await dispatch(api, name, pause(name))
    path = f"/agents/Dispatching/{name}/runs"
    kept = [await api.delete(f"{path}?{query}") for query in ("status=error", "older_than=3600")]
    cleared = await api.delete(f"{path}?status=running&older_than=0")
    assert [answer.json() for answer in (*kept, cleared)] == [{"cleared": 0}, {"cleared": 0}, {"cleared": 1}]
    assert (await api.get(path)).json() == []
    assert (await api.get(f"{path}/r")).status_code == 404
    assert (await api.delete(f"{path}?status=nonsense")).status_code == 422


async def test_a_conversation_is_cleared_and_the_state_stays(api: httpx.AsyncClient, name: str) -> None:
    """Design, section 7."""
    before = await api.get(f"/agents/Keeper/{name}/state")
    await api.post(f"/agents/Keeper/{name}/turns?wait=true", json={"message": 'call remember {"text": "one"}'})
    answer = await api.delete(f"/agents/Keeper/{name}/messages")
    assert before.json() == {"told": []}
    assert answer.status_code == 204
    assert (await api.get(f"/agents/Keeper/{name}/messages")).json() == []
    assert (await api.get(f"/agents/Keeper/{name}/state")).json() == {"told": ["one"]}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_instance_that_does_not_exist_is_not_made_by_asking(api: httpx.AsyncClient, method: str) -> None:
    """DG-03: nothing is created."""
    path = f"/agents/Echo/{uuid4().hex}"
    answers = [await api.request(method, f"{path}/{what}") for what in ("messages", "runs")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert (await api.get(path)).status_code == 404
