"""Streams one attempt of a model step into the live log: the first piece at once, then in small batches."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from turnkeeper.chunks import (
    ReasoningDelta,
    StartStep,
    TextDelta,
    ToolInputDelta,
    UIMessageChunk,
)
from turnkeeper.event_log.entries import NewEntry
from turnkeeper.event_log.writer import EventWriter

BATCH_INTERVAL = timedelta(milliseconds=50)
"""How long pieces are collected before they are written together."""


class StepStream:
    """Writes the chunks of one attempt; a later attempt's supersede them."""

    def __init__(self, writer: EventWriter, source: str, step: int, attempt: int) -> None:
        """Begin the step in the log.

        Args:
            writer: where to write.
            source: the workflow id of the turn or run.
            step: its model step.
            attempt: which attempt of the step this is, from 1.
        """
        self._writer = writer
        self._source = source
        self._step = step
        self._attempt = attempt
        self._count = 0
        self._pending: list[UIMessageChunk] = []
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.add(StartStep())

    def add(self, chunk: UIMessageChunk) -> None:
        """Take a chunk; never waits."""
        last = self._pending[-1] if self._pending else None
        joined = _joined(last, chunk) if last is not None else None
        if joined is not None:
            self._pending[-1] = joined
        else:
            self._pending.append(chunk)
        if self._timer is None:
            delay = self._written_at + BATCH_INTERVAL.total_seconds() - time.monotonic()
            if delay <= 0:
                self._write()
            else:
                self._timer = asyncio.get_running_loop().call_later(delay, self._write)

    def restart(self) -> None:
        """Begin the step anew: what was shown so far is superseded."""
        self._write()
        self._attempt += 1
        self._count = 0
        self.add(StartStep())

    async def close(self) -> None:
        """Write what is left, and wait until it is in the log or the log is given up."""
        self._write()
        await self._writer.flush()

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writer.add(*(self._entry(chunk) for chunk in self._pending))
        self._pending.clear()
        self._written_at = time.monotonic()

    def _entry(self, chunk: UIMessageChunk) -> NewEntry:
        self._count += 1
        return NewEntry(
            source=self._source,
            key=f"{self._source}#{self._step}/{self._attempt}/{self._count}",
            kind="chunk",
            body=chunk.model_dump(mode="json"),
            at=datetime.now(UTC),
            step=self._step,
            attempt=self._attempt,
        )


def _joined(last: UIMessageChunk, chunk: UIMessageChunk) -> UIMessageChunk | None:
    """Return two neighbouring pieces of the same part as one, or None if they are not that."""
    match last, chunk:
        case (TextDelta() | ReasoningDelta(), TextDelta() | ReasoningDelta()) if (last.type, last.id) == (
            chunk.type,
            chunk.id,
        ):
            return last.model_copy(update={"delta": last.delta + chunk.delta})
        case ToolInputDelta(), ToolInputDelta() if last.tool_call_id == chunk.tool_call_id:
            return last.model_copy(update={"input_text_delta": last.input_text_delta + chunk.input_text_delta})
    return None
