"""The HTTP API over real HTTP semantics: what it accepts, what it answers, and how it refuses."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from desk import eventually
from desk_agents import calls, gate

Json = dict[str, Any]


NESTED: Any = json.loads("[" * 150 + "]" * 150)


def problem_of(answer: httpx.Response, status: int) -> Json:
    """Return the problem document of a refused request."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: Json = answer.json()
    assert document["status"] == status
    assert document["detail"]
    return document


async def ask(api: httpx.AsyncClient, agent: str, name: str, text: str) -> Json:
    """Submit a message and return its turn when it has ended."""
    answer = await api.post(f"/agents/{agent}/{name}/turns?wait=true", json={"message": text})
    assert answer.status_code == 200, answer.text
    turn: Json = answer.json()
    return turn


async def test_a_turn_is_accepted_at_once_and_can_be_followed_by_its_location(
    api: httpx.AsyncClient, name: str
) -> None:
    """Design 7: 202 with the turn."""
    answer = await api.post(f"/agents/Echo/{name}/turns", json={"message": "say hello"})
    assert answer.status_code == 202
    assert answer.headers["location"] == answer.json()["url"] == f"/agents/Echo/{name}/turns/1"

    async def turn() -> Json:
        found: Json = (await api.get(answer.headers["location"])).json()
        return found

    ended = await eventually(turn, lambda turn: turn["status"] == "completed")
    assert ended["message"]["parts"][-1]["text"] == "hello"
    assert ended["workflowId"] == f"default/Echo/{name}/turns/1"


async def test_two_hundred_times_the_messages_hold_the_answer_when_a_waited_turn_returns(
    api: httpx.AsyncClient, name: str
) -> None:
    """Issue A: read your own writes."""
    for number in range(200):
        await ask(api, "Echo", name, f"say {number}")
        messages = (await api.get(f"/agents/Echo/{name}/messages")).json()
        assert messages[-1]["parts"][-1]["text"] == str(number)


async def test_two_turns_posted_at_once_run_one_after_the_other(api: httpx.AsyncClient, name: str) -> None:
    """Issue A: in order, never interleaved."""
    turns = await asyncio.gather(*(ask(api, "Clerk", name, f'call note {{"text": "{name}-{n}"}}') for n in range(2)))
    first, second = sorted(turns, key=lambda turn: int(turn["turnId"]))
    assert first["completedAt"] <= second["startedAt"]
    roles = [message["role"] for message in (await api.get(f"/agents/Clerk/{name}/messages")).json()]
    assert roles == ["user", "assistant", "user", "assistant"]


async def test_an_idempotency_key_makes_a_repeat_the_same_turn(api: httpx.AsyncClient, name: str) -> None:
    """Design 7: Idempotency-Key honoured; another message under the same key is a conflict."""
    headers = {"Idempotency-Key": "k1"}
    turns = [
        (await api.post(f"/agents/Echo/{name}/turns", json={"message": "say one"}, headers=headers)).json()
        for _ in range(2)
    ]
    assert turns[0]["turnId"] == turns[1]["turnId"]
    other = await api.post(f"/agents/Echo/{name}/turns", json={"message": "say two"}, headers=headers)
    problem_of(other, 409)


async def test_a_message_in_parts_is_taken_as_it_is(api: httpx.AsyncClient, name: str) -> None:
    """Design 4: messages are UIMessages."""
    message = {"id": "mine", "parts": [{"type": "text", "text": "say hello"}], "metadata": {"source": "test"}}
    await api.post(f"/agents/Echo/{name}/turns?wait=true", json={"message": message})
    stored = (await api.get(f"/agents/Echo/{name}/messages")).json()[0]
    assert stored == {"role": "user", **message}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"message": ""}, 422),
        ({"message": "   "}, 422),
        ({"message": {"parts": []}}, 422),
        ({"message": {"parts": [{"type": "text", "text": "  "}]}}, 422),
        ({"message": {"parts": [{"type": "file", "url": "", "mediaType": "image/png"}]}}, 422),
        ({"message": {"id": "turn-1", "parts": [{"type": "text", "text": "hi"}]}}, 422),
        ({"message": {"parts": [{"type": "text", "text": "hi"}], "metadata": {"deep": NESTED}}}, 422),
        ({"message": 5}, 422),
        ({"message": "hi", "mode": "fast"}, 422),
        ({}, 422),
        ({"message": "x" * 300_000}, 413),
        ({"message": "x" * 3_000_000}, 413),
    ],
)
async def test_a_bad_message_is_refused_and_starts_nothing(
    api: httpx.AsyncClient, name: str, body: Json, status: int
) -> None:
    """Issue A: empty or oversized messages."""
    problem_of(await api.post(f"/agents/Echo/{name}/turns", json=body), status)
    problem_of(await api.get(f"/agents/Echo/{name}/messages"), 404)


async def test_a_body_that_is_not_json_is_refused(api: httpx.AsyncClient, name: str) -> None:
    """House rule 8: the text names the place."""
    answer = await api.post(
        f"/agents/Echo/{name}/turns", content=b'{"mess', headers={"content-type": "application/json"}
    )
    problem_of(answer, 422)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/agents/Nobody/x/turns", 404),
        ("/agents/Echo/bad%20name/turns", 422),
        ("/agents/Echo/.hidden/turns", 422),
        (f"/agents/Echo/{'n' * 129}/turns", 422),
    ],
)
async def test_an_unknown_agent_is_404_and_a_bad_name_422(api: httpx.AsyncClient, path: str, status: int) -> None:
    """Issue A: bad ids."""
    problem_of(await api.post(path, json={"message": "hi"}), status)


@pytest.mark.parametrize(
    "path", ["/agents/Echo/{}", "/agents/Echo/{}/turns", "/agents/Echo/{}/runs", "/agents/Echo/{}/turns/1", "/nowhere"]
)
async def test_what_is_not_there_has_the_same_problem_everywhere(api: httpx.AsyncClient, name: str, path: str) -> None:
    """Field case 32: unknown and not yours are told apart by nothing."""
    document = problem_of(await api.get(path.format(name)), 404)
    assert document["detail"] == "There is no such thing here, or it is not yours."


async def test_a_cancelled_turn_is_aborted_with_its_reason(api: httpx.AsyncClient, name: str) -> None:
    """CX-02: the reason text arrives."""
    turn = (await api.post(f"/agents/Clerk/{name}/turns", json={"message": f'call wait {{"name": "{name}"}}'})).json()
    await eventually(lambda: _noted(f"wait {name}"), bool)
    await api.post(f"{turn['url']}/cancel", json={"reason": "no longer needed"})

    async def current() -> Json:
        found: Json = (await api.get(turn["url"])).json()
        return found

    ended = await eventually(current, lambda turn: turn["status"] == "aborted")
    assert ended["error"] == "no longer needed"
    assert (await api.post(f"{turn['url']}/cancel")).json()["status"] == "aborted"


async def test_a_run_can_be_dispatched_waited_for_and_inspected(api: httpx.AsyncClient, name: str) -> None:
    """Issue A: imperatively over HTTP; RF-01."""
    body = {"agent": "Extractor", "input": {"query": "say fine"}, "runId": "r1"}
    result = (await api.post(f"/agents/Assistant/{name}/runs?wait=true", json=body)).json()
    assert (result["status"], result["output"]) == ("completed", {"rows": 3})

    async def run() -> Json:
        found: Json = (await api.get(f"/agents/Assistant/{name}/runs/r1")).json()
        return found

    view = await eventually(run, lambda run: run.get("completedAt") is not None)
    assert (view["status"], view["output"], view["steps"]) == ("completed", {"rows": 3}, 1)
    assert [row["runId"] for row in (await api.get(f"/agents/Assistant/{name}/runs")).json()] == ["r1"]


async def test_field_33_half_a_surrogate_pair_anywhere_is_repaired(api: httpx.AsyncClient, name: str) -> None:
    """Field case 33: in a text, in metadata and in a preview; nothing hangs, nothing is refused later."""
    body = rb'{"message": {"parts": [{"type": "text", "text": "say \ud800"}], "metadata": {"x": "\ud800"}}}'
    headers = {"content-type": "application/json"}
    turn = await api.post(f"/agents/Assistant/{name}/turns?wait=true", content=body, headers=headers)
    run = rb'{"agent": "Researcher", "input": {"query": "say \ud800"}, "inputPreview": "\ud800"}'
    result = await api.post(f"/agents/Assistant/{name}/runs?wait=true", content=run, headers=headers)
    messages = (await api.get(f"/agents/Assistant/{name}/messages")).json()
    assert turn.json()["message"]["parts"][-1]["text"] == "?"
    assert messages[0]["metadata"] == {"x": "?"}
    assert result.json()["summary"] == "?"


async def test_di_18_a_run_that_its_start_hook_refuses_is_an_error_result(api: httpx.AsyncClient, name: str) -> None:
    """DI-18 as decided: structured, also for who waits over HTTP."""
    body = {"agent": "Researcher", "input": {"query": "refuse it"}}
    answer = await api.post(f"/agents/Hooked/{name}/runs?wait=true", json=body)
    assert answer.status_code == 200
    assert answer.json()["status"] == "error"
    assert "the start hook refuses" in answer.json()["error"]


async def test_di_16_a_run_id_reused_with_another_input_is_409(api: httpx.AsyncClient, name: str) -> None:
    """DI-16, issue A."""
    body = {"agent": "Researcher", "input": {"query": "say one"}, "runId": "r1"}
    assert (await api.post(f"/agents/Assistant/{name}/runs", json=body)).status_code == 202
    assert (await api.post(f"/agents/Assistant/{name}/runs", json=body)).status_code == 202
    problem_of(await api.post(f"/agents/Assistant/{name}/runs", json={**body, "input": {"query": "say two"}}), 409)


async def test_cc_07_a_run_over_the_cap_is_429(api: httpx.AsyncClient, name: str) -> None:
    """CC-07, design 7: over a limit."""
    waiting = {"agent": "Researcher", "input": {"query": f'call wait {{"name": "{name}"}}'}}
    for _ in range(2):
        assert (await api.post(f"/agents/Capped/{name}/runs", json=waiting)).status_code == 202
    document = problem_of(await api.post(f"/agents/Capped/{name}/runs", json=waiting), 429)
    gate(name).set()
    assert "maxConcurrentAgentTools (2)" in document["detail"]


@pytest.mark.parametrize(
    "body", [{"agent": "Nobody", "input": "x"}, {"agent": "Echo", "input": "x", "runId": "a/b"}, {"input": "x"}]
)
async def test_a_bad_run_is_422(api: httpx.AsyncClient, name: str, body: Json) -> None:
    """Issue A: bad ids; an agent that is not registered is a wrong field, not a wrong path."""
    problem_of(await api.post(f"/agents/Assistant/{name}/runs", json=body), 422)


async def test_dg_03_a_guessed_run_is_404_at_every_depth(api: httpx.AsyncClient, name: str) -> None:
    """DG-03 as decided: gated by the registry of each parent."""
    inner = json.dumps({"query": 'call research {"query": "say deep"}'})
    await ask(api, "Assistant", name, f"call delegate {inner}")
    base = f"/agents/Assistant/{name}/runs"
    messages = (await api.get(f"{base}/1-0-0/runs/0-0-0/messages")).json()
    assert messages[-1]["parts"][-1]["text"] == "deep"
    assert [row["runId"] for row in (await api.get(f"{base}/1-0-0/runs")).json()] == ["0-0-0"]
    for guess in ("0-0-0", "1-0-0/runs/9", "9/runs/0-0-0", "1-0-0/turns/0-0-0", "1-0-0/runs/0-0-0/messages/x"):
        problem_of(await api.get(f"{base}/{guess}"), 404)


async def test_an_id_pasted_from_the_temporal_ui_leads_to_its_resource(api: httpx.AsyncClient, name: str) -> None:
    """Design 1: a workflow id is the resource's path."""
    turn = await ask(api, "Echo", name, "say hello")
    answer = await api.get(f"/{turn['workflowId']}", follow_redirects=True)
    assert answer.json()["turnId"] == "1"
    problem_of(await api.get(f"/other/Echo/{name}/turns/1"), 404)


async def test_agents_and_the_openapi_document_are_listed(api: httpx.AsyncClient) -> None:
    """Design 7."""
    agents = (await api.get("/agents")).json()
    assert "Assistant" in [agent["agentType"] for agent in agents]
    paths = (await api.get("/openapi.json")).json()["paths"]
    assert "/agents/{agent}/{name}/turns" in paths
    assert (await api.get("/docs")).status_code == 200


async def test_the_api_is_healthy_and_ready_while_a_worker_polls(api: httpx.AsyncClient) -> None:
    """Design 7: health."""
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    assert (await api.get("/readyz")).json() == {"status": "ok"}


async def _noted(text: str) -> bool:
    return text in calls
