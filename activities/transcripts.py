"""Reads conversations by reference, and keeps what cannot change in memory."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnkeeper import names
from turnkeeper.errors import TranscriptUnreadable
from turnkeeper.messages import UIMessage
from turnkeeper.turns import MessagesInput, MessagesPage, TranscriptRef
from turnkeeper.workflow_requests import ACTIVITY_QUERY_PATIENCE, WorkflowRequests

CACHE_BYTES = 64 * 1024 * 1024
"""Transcript text that one worker process keeps."""

_Key = tuple[str, str, int]


@dataclass
class _Prefix:
    messages: list[UIMessage] = field(default_factory=list)
    size: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class TranscriptReader:
    """Answers transcript references from the workflows that hold the messages.

    Messages before a reference's length never change, so a prefix that was read once is read again only after it fell
    out of the cache.
    """

    def __init__(self, requests: WorkflowRequests, cache_bytes: int = CACHE_BYTES) -> None:
        """Read through `requests` and keep up to `cache_bytes` of messages."""
        self._requests = requests
        self._cache_bytes = cache_bytes
        self._prefixes: OrderedDict[_Key, _Prefix] = OrderedDict()

    async def read(self, refs: Sequence[TranscriptRef]) -> tuple[UIMessage, ...]:
        """Return the messages that `refs` point at, one after the other.

        Raises:
            TranscriptUnreadable: a workflow holds fewer messages than the reference says.
            NotFound: there is no such workflow.
            Unavailable: no worker answered.
        """
        messages: list[UIMessage] = []
        for ref in refs:
            messages.extend(await self._read_one(ref))
        return tuple(messages)

    async def _read_one(self, ref: TranscriptRef) -> list[UIMessage]:
        key = (ref.workflow_id, ref.first_temporal_run_id, ref.revision)
        prefix = self._prefixes.setdefault(key, _Prefix())
        self._prefixes.move_to_end(key)
        async with prefix.lock:
            while len(prefix.messages) < ref.length:
                page = await self._query(ref.workflow_id, len(prefix.messages))
                if not page.messages:
                    raise TranscriptUnreadable(
                        f"{ref.workflow_id} holds {page.total} messages, and {ref.length} were expected"
                    )
                # What lies past the reference may still change: the open step of a turn, for one.
                fixed = page.messages[: ref.length - len(prefix.messages)]
                prefix.messages.extend(fixed)
                prefix.size += sum(len(message.model_dump_json().encode()) for message in fixed)
        self._evict()
        return prefix.messages[: ref.length]

    async def _query(self, workflow_id: str, after: int) -> MessagesPage:
        page: MessagesPage = await self._requests.query(
            workflow_id, names.MESSAGES, MessagesPage, MessagesInput(after=after), patience=ACTIVITY_QUERY_PATIENCE
        )
        return page

    def _evict(self) -> None:
        while len(self._prefixes) > 1 and sum(prefix.size for prefix in self._prefixes.values()) > self._cache_bytes:
            self._prefixes.popitem(last=False)
