"""The strengths of stopping over HTTP."""

import json
from typing import Any

import httpx
from desk import eventually
from desk_agents import calls, gate


async def test_a_turn_is_steered_and_wrapped_up_over_http(api: httpx.AsyncClient, name: str) -> None:
    """Issue D, part 1: both answer with the turn, and are a 409 once it has ended and a 404 for a turn that is not."""
    turn = f"/agents/Clerk/{name}/turns/1"
    await api.post(f"/agents/Clerk/{name}/turns", json={"message": f"call wait {json.dumps({'name': name})}"})
    await eventually(lambda: _noted(f"wait {name}"), bool)
    steered = await api.post(f"{turn}/steer", json={"message": "say short"}, headers={"Idempotency-Key": "k"})
    again = await api.post(f"{turn}/steer", json={"message": "say short"}, headers={"Idempotency-Key": "k"})
    assert [answer.json()["status"] for answer in (steered, again)] == ["running", "running"]
    gate(name).set()
    ended = await eventually(lambda: _get(api, turn), lambda view: view["status"] != "running")
    said = [part for part in ended["message"]["parts"] if part["type"] == "data-steering"]
    assert said == [{"type": "data-steering", "id": "k", "data": {"text": "say short"}}]
    assert (await api.post(f"{turn}/steer", json={"message": "say more"})).status_code == 409
    assert (await api.post(f"{turn}/wrap_up")).status_code == 409
    assert (await api.post(f"{turn}/steer", json={"message": ""})).status_code == 422
    assert (await api.post(f"/agents/Clerk/{name}/turns/9/wrap_up")).status_code == 404


async def test_a_run_is_steered_and_wrapped_up_over_http(api: httpx.AsyncClient, name: str) -> None:
    """Issue D, part 1: a run that was dispatched over HTTP."""
    query = f"call wait {json.dumps({'name': name})}"
    await api.post(f"/agents/Clerk/{name}/runs", json={"agent": "Clerk", "runId": "r", "input": query})
    await eventually(lambda: _noted(f"wait {name}"), bool)
    run = f"/agents/Clerk/{name}/runs/r"
    assert (await api.post(f"{run}/steer", json={"message": "say short"})).json()["status"] == "running"
    gate(name).set()
    ended = await eventually(lambda: _get(api, run), lambda view: view["status"] != "running")
    assert (ended["status"], ended["summary"]) == ("completed", "short")
    assert (await api.post(f"{run}/wrap_up", json={"reason": "r"})).status_code == 409
    assert (await api.post(f"/agents/Clerk/{name}/runs/none/wrap_up")).status_code == 404


async def test_an_instance_is_ended_over_http(api: httpx.AsyncClient, name: str) -> None:
    """Issue D, part 1: its turn is aborted; a later message begins a new conversation."""
    instance = f"/agents/Clerk/{name}"
    await api.post(f"{instance}/turns", json={"message": f"call wait {json.dumps({'name': name})}"})
    await eventually(lambda: _noted(f"wait {name}"), bool)
    ended = await api.request("DELETE", instance, json={"reason": "the account was closed"})
    assert ended.status_code == 204
    turn = await eventually(lambda: _get(api, f"{instance}/turns/1"), lambda view: view["status"] == "aborted")
    assert turn["error"] == "the account was closed"
    assert turn["message"]["parts"][-1]["errorText"] == "The call was stopped: the account was closed."
    anew = await api.post(f"{instance}/turns?wait=true", json={"message": "say anew"})
    assert (anew.json()["turnId"], anew.json()["status"]) == ("2", "completed")
    assert (await api.request("DELETE", f"{instance}-none")).status_code == 404


async def _get(api: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await api.get(path)).json()
    return answer


async def _noted(text: str) -> bool:
    return text in calls
