"""The messages that a workflow holds, and the pages in which queries hand them out."""

from collections.abc import Iterable

from turnkeeper.messages import UIMessage
from turnkeeper.turns import MessagesPage

PAGE_BYTES = 200 * 1024
"""What a page holds, unless one message alone is larger; below the size from which payloads go to external storage."""


class MessageLog:
    """Messages in order, with their sizes."""

    def __init__(self, messages: Iterable[UIMessage] = ()) -> None:
        """Begin with `messages`."""
        self._messages: list[UIMessage] = []
        self._sizes: list[int] = []
        for message in messages:
            self.append(message)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._messages)

    @property
    def messages(self) -> tuple[UIMessage, ...]:
        """All messages."""
        return tuple(self._messages)

    def append(self, message: UIMessage) -> None:
        """Add a message at the end."""
        self._messages.append(message)
        self._sizes.append(len(message.model_dump_json().encode()))

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()
        self._sizes.clear()

    def page(self, after: int, open_message: UIMessage | None = None, revision: int = 0) -> MessagesPage:
        """Return the page that begins after the first `after` messages.

        Args:
            after: how many messages the reader already has.
            open_message: a message that is still being worked on; it comes last.
            revision: see `TranscriptRef.revision`.
        """
        end, size = after, 0
        while end < len(self._messages) and (end == after or size + self._sizes[end] <= PAGE_BYTES):
            size += self._sizes[end]
            end += 1
        messages = self._messages[after:end]
        total = len(self._messages)
        if open_message is not None:
            total += 1
            if end == len(self._messages) and after <= end:
                messages = [*messages, open_message]
        return MessagesPage(messages=tuple(messages), total=total, revision=revision)
