"""Watches a model's stream: one that stands still for too long is a failed attempt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta

from activities.model_replies import ModelDelta


class StreamStalled(Exception):
    """No piece came for as long as the agent allows."""


async def watched(deltas: AsyncIterator[ModelDelta], patience: timedelta | None) -> AsyncIterator[ModelDelta]:
    """Pass a stream's pieces on.

    Args:
        deltas: the stream; it is closed at the end, which closes its connection.
        patience: how long to wait for each piece; None for as long as it takes.

    Raises:
        StreamStalled: a piece did not come in that time.
    """
    seconds = None if patience is None else patience.total_seconds()
    async with aclosing(deltas) as pieces:  # type: ignore[type-var]
        while True:
            try:
                async with asyncio.timeout(seconds):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise StreamStalled from error
            yield piece
