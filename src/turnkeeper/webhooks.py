"""Completion webhooks: what is posted to people outside, and to where it may be (docs/webhooks.md)."""

from datetime import timedelta
from urllib.parse import urlsplit

from pydantic import AwareDatetime

from turnkeeper.errors import InvalidRequest
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo
from turnkeeper.wire import WireModel

MAX_URL_LENGTH = 2_048
"""Characters of a webhook's URL."""


class WebhookPost(WireModel):
    """One end of a run, on its way to somebody outside."""

    url: str
    event_id: str
    """The same at every attempt; by it a receiver knows the repeat."""
    type: str
    """`agent_tool_run.` and the status: completed, error, aborted or interrupted."""
    instance: str
    """The workflow id of the instance that dispatched the run."""
    run: AgentToolRunInfo
    result: AgentToolResult
    at: AwareDatetime
    """When the end was heard of."""


class WebhookAnswer(WireModel):
    """What became of one attempt."""

    delivered: bool
    error: str | None = None
    is_final: bool = False
    """Whether another attempt would be in vain."""
    retry_after: timedelta | None = None
    """How long the receiver asks to wait."""


def check_webhook_url(url: str) -> str:
    """Return a URL that may be posted to, as far as that can be told before its name is looked up.

    Raises:
        InvalidRequest: it is not an absolute http or https URL, or holds credentials.
    """
    if len(url) > MAX_URL_LENGTH:
        raise InvalidRequest(f"the webhook's URL has {len(url):,} characters, over the limit of {MAX_URL_LENGTH:,}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"the webhook's URL is malformed: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidRequest("a webhook is an absolute http:// or https:// URL")
    if "@" in parts.netloc:
        raise InvalidRequest("a webhook's URL holds no user name or password; posts are signed instead")
    if any(character.isspace() or ord(character) < 32 for character in url):
        raise InvalidRequest("the webhook's URL holds spaces or control characters")
    return url
