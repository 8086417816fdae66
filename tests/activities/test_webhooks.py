"""Webhooks are posted once an attempt, signed, and only to the public internet."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue
from standardwebhooks import Webhook
from starlette.responses import RedirectResponse, Response, StreamingResponse
from temporalio.testing import ActivityEnvironment
from webhook_receiver import WEBHOOK_SECRET, Receiver

from activities import webhooks
from activities.public_addresses import is_public
from activities.webhooks import NO_SECRET, WebhookActivities
from turnkeeper.errors import InvalidRequest
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.webhooks import MAX_URL_LENGTH, WebhookAnswer, WebhookPost, check_webhook_url

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OTHER_SECRET = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoyMzQ1Njc="


async def post(
    url: str, *secrets: str, allows_private: bool = True, addresses: tuple[str, ...] = ("203.0.113.7",)
) -> WebhookAnswer:
    """Make one attempt."""

    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    told = WebhookPost(
        url=url,
        event_id="evt_1",
        type="agent_tool_run.completed",
        instance="default/Assistant/demo",
        run=AgentToolRunInfo(run_id="r", agent_type="A", status="completed", started_at=AT),
        result=AgentToolResult(run_id="r", agent_type="A", status="completed", summary="grün \ud800 done"),
        at=AT,
    )
    activities = WebhookActivities(secrets, allows_private=allows_private, resolve=resolve)
    answer: WebhookAnswer = await ActivityEnvironment().run(activities.post_webhook, told)
    return answer


async def test_a_post_is_signed_and_says_what_happened(receiver: Receiver) -> None:
    """Standard Webhooks: checked by its own library, with the old secret and the new one."""
    answer = await post(receiver.url, WEBHOOK_SECRET, OTHER_SECRET)
    (received,) = receiver.posts
    expected: JsonValue = {
        "type": "agent_tool_run.completed",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "data": {
            "instance": "default/Assistant/demo",
            "run": {
                "runId": "r",
                "agentType": "A",
                "status": "completed",
                "displayOrder": 0,
                "startedAt": "2026-01-02T03:04:05Z",
            },
            "result": {"runId": "r", "agentType": "A", "status": "completed", "summary": "grün ? done"},
        },
    }
    assert answer == WebhookAnswer(delivered=True)
    assert received.headers["webhook-id"] == "evt_1"
    for secret in (WEBHOOK_SECRET, OTHER_SECRET):
        assert Webhook(secret).verify(received.body, received.headers) == expected


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, {}, WebhookAnswer(delivered=True)),
        (410, {}, WebhookAnswer(delivered=False, error="The receiver answered with HTTP 410.", is_final=True)),
        (500, {}, WebhookAnswer(delivered=False, error="The receiver answered with HTTP 500.")),
        (
            429,
            {"retry-after": "120"},
            WebhookAnswer(
                delivered=False, error="The receiver answered with HTTP 429.", retry_after=timedelta(minutes=2)
            ),
        ),
        (
            503,
            {"retry-after": "86400"},
            WebhookAnswer(
                delivered=False, error="The receiver answered with HTTP 503.", retry_after=timedelta(hours=1)
            ),
        ),
    ],
)
async def test_what_the_receiver_answers_decides(
    receiver: Receiver, status: int, headers: dict[str, str], expected: WebhookAnswer
) -> None:
    """Only 2xx is delivered; 410 asks to be left alone."""
    receiver.answer = lambda number: Response(status_code=status, headers=headers)
    assert await post(receiver.url, WEBHOOK_SECRET) == expected


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    """Nobody has checked where it leads."""
    receiver.answer = lambda number: RedirectResponse(receiver.url)
    answer = await post(receiver.url, WEBHOOK_SECRET)
    assert (answer.delivered, answer.error) == (False, "The receiver answered with HTTP 307.")
    assert len(receiver.posts) == 1


async def test_a_body_without_an_end_is_not_read(receiver: Receiver) -> None:
    """The answer's head says all that counts."""

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    receiver.answer = lambda number: StreamingResponse(endless())
    assert await asyncio.wait_for(post(receiver.url, WEBHOOK_SECRET), 5) == WebhookAnswer(delivered=True)


async def test_a_receiver_that_hangs_or_is_gone_is_an_answer(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no text of it tells the URL, which may hold a secret."""
    monkeypatch.setattr(webhooks, "POST_PATIENCE", timedelta(milliseconds=200))
    receiver.holds = asyncio.Event()
    hanging = await post(f"{receiver.url}?token=secret", WEBHOOK_SECRET)
    receiver.holds.set()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = await post(f"http://127.0.0.1:{unused.getsockname()[1]}/?token=secret", WEBHOOK_SECRET)
    assert hanging.error == "The receiver did not answer within 0.2 s."
    assert gone.error == "The receiver cannot be reached: ConnectError."


async def test_nothing_is_posted_unsigned(receiver: Receiver) -> None:
    """It may still be delivered once an operator has set a secret."""
    assert await post(receiver.url) == WebhookAnswer(delivered=False, error=NO_SECRET)
    assert receiver.posts == []


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.215.14", "10.0.0.1"), ("::1",), ("fe80::1%eth0",)])
async def test_a_name_that_leads_inside_is_refused_for_good(receiver: Receiver, addresses: tuple[str, ...]) -> None:
    """Issue C, item 8: also when only one of its addresses is inside."""
    answer = await post(receiver.url, WEBHOOK_SECRET, allows_private=False, addresses=addresses)
    assert (answer.delivered, answer.is_final) == (False, True)
    assert answer.error == "The webhook was not posted: 127.0.0.1 is not a public address."
    assert receiver.posts == []


async def test_a_name_is_looked_up_once_and_connected_to_as_found(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: between the check and the use there is no second look-up that could lead elsewhere."""
    looked_up: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"] if len(looked_up) == 1 else ["203.0.113.7"]

    monkeypatch.setattr("activities.public_addresses.is_public", lambda address: True)
    activities = WebhookActivities([WEBHOOK_SECRET], resolve=rebinding)
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    told = WebhookPost(
        url=url,
        event_id="evt_1",
        type="agent_tool_run.error",
        instance="default/Assistant/demo",
        run=AgentToolRunInfo(run_id="r", agent_type="A", status="error", started_at=AT),
        result=AgentToolResult(run_id="r", agent_type="A", status="error"),
        at=AT,
    )
    answer = await ActivityEnvironment().run(activities.post_webhook, told)
    assert answer == WebhookAnswer(delivered=True)
    assert looked_up == ["receiver.example"]
    assert receiver.posts[0].headers["host"] == url.split("/")[2]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("100.64.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fc00::1", False),
        ("fe80::1", False),
        ("ff0e::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d70e", True),
        ("2002:7f00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, expected: bool) -> None:
    """Also those that hide another one."""
    assert is_public(ipaddress.ip_address(address)) is expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hook",
        "/hook",
        "ftp://a.example/hook",
        "http://",
        "https://user:secret@a.example/hook",
        "https://a.example:port/hook",
        "https://[::1/hook",
        "https://a.example/with space",
        "https://a.example/" + "x" * MAX_URL_LENGTH,
    ],
)
def test_a_url_that_cannot_be_posted_to_is_refused_at_the_dispatch(url: str) -> None:
    """With an error that says what is wrong."""
    with pytest.raises(InvalidRequest, match="webhook"):
        check_webhook_url(url)


def test_a_url_that_can_be_posted_to_is_kept() -> None:
    """Letter by letter."""
    assert check_webhook_url("https://a.example:8443/hook?token=x") == "https://a.example:8443/hook?token=x"
