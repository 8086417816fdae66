"""The activity that posts the end of a run to a webhook, signed as Standard Webhooks says (standardwebhooks.com)."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import httpx
from pydantic import JsonValue
from standardwebhooks import Webhook
from temporalio import activity

from activities.public_addresses import PrivateAddress, Resolve, public_address, resolve
from activities.retry_after import retry_after
from turnkeeper import names
from turnkeeper.json_values import clean_text
from turnkeeper.runs import compact_json
from turnkeeper.webhooks import WebhookAnswer, WebhookPost

POST_PATIENCE = timedelta(seconds=10)
"""How long one attempt may take, from the look-up of the name to the answer's head."""

LONGEST_WAIT = timedelta(hours=1)
"""A receiver's wish to wait longer is not granted."""

NO_SECRET = "No webhook can be posted: the workers have no TURNKEEPER_WEBHOOK_SECRET to sign it with."


class WebhookActivities:
    """Makes one attempt at a time; the session decides on further ones."""

    def __init__(self, secrets: Sequence[str], *, allows_private: bool = False, resolve: Resolve = resolve) -> None:
        """Sign with every one of `secrets`.

        Args:
            secrets: `whsec_...`; several while one replaces another.
            allows_private: whether addresses inside may be posted to, for development.
            resolve: looks up the addresses of a host.
        """
        self._signers = [Webhook(secret) for secret in secrets]
        self._allows_private = allows_private
        self._resolve = resolve

    @activity.defn(name=names.POST_WEBHOOK)
    async def post_webhook(self, post: WebhookPost) -> WebhookAnswer:
        """Post once; what goes wrong is an answer, not a failure."""
        if not self._signers:
            return WebhookAnswer(delivered=False, error=NO_SECRET)
        try:
            async with asyncio.timeout(POST_PATIENCE.total_seconds()):
                return await self._post(post)
        except PrivateAddress as refused:
            return WebhookAnswer(delivered=False, error=f"The webhook was not posted: {refused}.", is_final=True)
        except TimeoutError:
            return WebhookAnswer(
                delivered=False, error=f"The receiver did not answer within {POST_PATIENCE.total_seconds():g} s."
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            # The type, not the text, which may hold the URL and with it a secret.
            return WebhookAnswer(delivered=False, error=f"The receiver cannot be reached: {type(error).__name__}.")

    async def _post(self, post: WebhookPost) -> WebhookAnswer:
        # No proxy of the environment's, which would look the name up itself; no redirect, which nobody has checked.
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=None) as client:
            request = await self._request(client, post)
            answer = await client.send(request, stream=True)
            await answer.aclose()  # What it says is nobody's business, and may have no end.
        if answer.is_success:
            return WebhookAnswer(delivered=True)
        return WebhookAnswer(
            delivered=False,
            error=f"The receiver answered with HTTP {answer.status_code}.",
            is_final=answer.status_code == HTTPStatus.GONE,
            retry_after=retry_after(answer.headers.get("retry-after", ""), LONGEST_WAIT),
        )

    async def _request(self, client: httpx.AsyncClient, post: WebhookPost) -> httpx.Request:
        url = httpx.URL(post.url)
        extensions = {}
        headers = {**self._signed_headers(post.event_id, body := _body_of(post)), "content-type": "application/json"}
        if not self._allows_private:
            port = url.port or {"http": 80, "https": 443}[url.scheme]
            address = await public_address(url.host, port, self._resolve)
            headers["host"] = url.netloc.decode()
            extensions["sni_hostname"] = url.host  # The certificate is checked against the name all the same.
            url = url.copy_with(host=address)
        return client.build_request("POST", url, content=body, headers=headers, extensions=extensions)

    def _signed_headers(self, event_id: str, body: str) -> dict[str, str]:
        now = datetime.now(UTC)
        return {
            "webhook-id": event_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signer.sign(event_id, now, body) for signer in self._signers),
        }


def _body_of(post: WebhookPost) -> str:
    data: JsonValue = {
        "instance": post.instance,
        "run": post.run.model_dump(mode="json"),
        "result": post.result.model_dump(mode="json"),
    }
    return clean_text(compact_json({"type": post.type, "timestamp": post.at.isoformat(), "data": data}))
