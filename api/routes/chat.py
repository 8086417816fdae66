"""The AI SDK's endpoints: a message in, its turn's UI message stream out, resumable (clients.md 1)."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request

from api.adapters.ai_sdk import Chunk, TurnStream, thinned
from api.chat_messages import new_message
from api.dependencies import EventsDependency, Instance, InstanceDependency
from api.event_reader import EventReader
from api.sse import DONE, HEARTBEAT, EventStream, json_event
from api.turn_entries import backlog, first_position, live_entries, until_stored
from turnkeeper import names
from turnkeeper.errors import InvalidRequest, NotFound, Unavailable
from turnkeeper.turns import TURN_END_STATUSES, TurnInfo
from turnkeeper.wire import WireModel

router = APIRouter(prefix="/agents/{agent}/{name}/chat", tags=["chat"])

REPLAY_TIME = timedelta(minutes=10)
"""How long after its end a turn is replayed to a client that asks for whatever goes on."""


class Stopped(WireModel):
    """The turns that were told to stop."""

    turn_ids: list[str]


@dataclass(frozen=True)
class _Reading:
    instance: Instance
    events: EventReader
    turn: TurnInfo
    after: int
    """The id in the log before the turn's first entry."""
    first_chunk: int | None
    """Which of the turn's chunks comes first, all of them counted; None for a replay that leaves out what is old."""
    tail_index: int | None = None
    """The last chunk's number, for a client that asked for so many from the end."""

    @property
    def headers(self) -> dict[str, str]:
        """What clients look for in the answer's headers."""
        headers = {"x-vercel-ai-ui-message-stream": "v1", "x-workflow-run-id": self.turn.turn_id}
        if self.tail_index is not None:
            headers["x-workflow-stream-tail-index"] = str(self.tail_index)
        return headers


async def _submitted(instance: InstanceDependency, events: EventsDependency, request: Request) -> _Reading:
    """Submit the last message of the posted ones, before the answer's headers go out."""
    try:
        body = json.loads(await request.body())  # Not as a declared body: one transport posts it as text/plain.
    except (RecursionError, ValueError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    message, submission_id = new_message(body)
    newest = await _newest(events, instance)
    turn = await instance.client.submit(instance.agent, instance.name, message, submission_id=submission_id)
    begun = await first_position(events, instance, turn.turn_id)
    return _Reading(instance, events, turn, newest if begun is None else begun, first_chunk=0)


@router.post("", response_class=EventStream)
async def chat(reading: Annotated[_Reading, Depends(_submitted)]) -> EventStream:
    """Take the newest user message, and stream the turn that answers it; the same message id starts nothing twice.

    Only that message counts of what is posted: the transcript is ours (clients.md 1.3).
    """
    return EventStream(_stream(reading), reading.headers)


async def _resumed(
    instance: InstanceDependency,
    events: EventsDependency,
    chat_id: str,
    start_index: Annotated[
        int | None, Query(alias="startIndex", description="The first chunk to get; negative: from the end.")
    ] = None,
) -> _Reading | None:
    """Find the turn that goes on, or ended a moment ago, before the answer's headers go out.

    None is for `WorkflowChatTransport` on an idle chat: it takes a 204 for an error, and a mere end for an end.
    """
    named = await _find_turn(instance, chat_id) if start_index is not None else None
    turn = named or await _current_turn(instance)
    if turn is None and start_index is None:
        raise HTTPException(204)
    if turn is None:
        return None
    begun = await first_position(events, instance, turn.turn_id)
    after = await _newest(events, instance) if begun is None else begun
    reading = _Reading(instance, events, turn, after, first_chunk=start_index)
    if start_index is not None and start_index < 0:
        count = await _count(reading)
        return _Reading(instance, events, turn, after, max(0, count + start_index), tail_index=count - 1)
    return reading


@router.get("/{chat_id}/stream", response_class=EventStream, responses={204: {"description": "Idle."}})
async def resume(reading: Annotated[_Reading | None, Depends(_resumed)]) -> EventStream:
    """Stream a turn again from its beginning, or from a chunk on; 204 when nothing goes on.

    `chat_id` is whatever the client calls the chat; with `startIndex` it may be a turn id, as `x-workflow-run-id` says.
    """
    if reading is None:
        return EventStream(_nothing())
    return EventStream(_stream(reading), reading.headers)


@router.post("/{chat_id}/stop")
async def stop(instance: InstanceDependency, chat_id: str) -> Stopped:
    """Cancel the turn that goes on and those that wait, or one turn if its id is given; what was written stays."""
    named = await _find_turn(instance, chat_id)
    if named is not None and named.status not in TURN_END_STATUSES:
        turns = [named]
    else:
        snapshot = await instance.client.snapshot(instance.agent, instance.name)
        # The queued ones first, or they would begin meanwhile.
        turns = [turn for turn in reversed(snapshot.turns) if turn.status not in TURN_END_STATUSES]
    for turn in turns:
        await instance.client.cancel_turn(instance.agent, instance.name, turn.turn_id, "stopped by the user")
    return Stopped(turn_ids=[turn.turn_id for turn in turns])


async def _stream(reading: _Reading) -> AsyncGenerator[bytes, None]:
    """Yield a turn's chunks, numbered, and the end mark."""
    skipped = reading.first_chunk or 0
    number = 0
    last = b""
    async with aclosing(_chunks(reading)) as batches:
        async for chunks in batches:
            events = [json_event(_compact(chunk), each) for each, chunk in enumerate(chunks, start=number)]
            number += len(events)
            last = events[-1] if events else last
            wanted = events[max(0, len(events) - max(0, number - skipped)) :]
            if wanted or not events:
                yield b"".join(wanted) or HEARTBEAT
    # To whoever asked for more than there is the end again, or its client would ask for ever (clients.md 1.6).
    yield DONE if number > skipped else last + DONE


async def _nothing() -> AsyncGenerator[bytes, None]:
    yield json_event(_compact({"type": "finish"}), 0)
    yield DONE


async def _chunks(reading: _Reading) -> AsyncGenerator[list[Chunk], None]:
    turn = reading.turn
    stream = _turn_stream(reading, shows_preliminary=reading.first_chunk is not None)
    after = reading.after
    if reading.first_chunk is None:
        known = await backlog(reading.events, reading.instance, after)
        yield [chunk for entry in thinned(known) for chunk in stream.translate(entry)]
        yield stream.catch_up()
        after = known[-1].id if known else after
    if not stream.has_ended:
        async with aclosing(live_entries(reading.events, reading.instance, turn.turn_id, after)) as batches:
            async for entries in batches:
                chunks = [chunk for entry in entries for chunk in stream.translate(entry)]
                if entries and not chunks:
                    continue  # Somebody else's.
                if stream.has_ended:
                    # Whoever sees the end finds the message in the transcript.
                    await until_stored(reading.instance, turn.turn_id)
                    yield chunks
                    return
                yield chunks
    if not stream.has_ended:
        yield await _unlogged_end(reading, stream)


async def _unlogged_end(reading: _Reading, stream: TurnStream) -> list[Chunk]:
    """Return the end of a turn that the log says nothing of, with its message if none of it was streamed."""
    instance, turn_id = reading.instance, reading.turn.turn_id
    turn = await instance.client.standing(instance.agent, instance.name, turn_id)
    chunks: list[Chunk] = []
    if not stream.has_begun:
        message = await instance.client.answer(instance.agent, instance.name, turn_id)
        chunks = [] if message is None else stream.whole(message)
    return [*chunks, *stream.end(turn.status, turn.error)]


async def _count(reading: _Reading) -> int:
    stream = _turn_stream(reading, shows_preliminary=True)
    known = await backlog(reading.events, reading.instance, reading.after)
    return sum(len(stream.translate(entry)) for entry in known)


def _turn_stream(reading: _Reading, *, shows_preliminary: bool) -> TurnStream:
    turn_id = reading.turn.turn_id
    source = names.turn_workflow_id(reading.instance.session_id, turn_id)
    return TurnStream(source, turn_id, shows_preliminary=shows_preliminary)


async def _newest(events: EventReader, instance: Instance) -> int:
    """Return a log's last id; of one that does not answer 0, from where everything comes when it is back."""
    try:
        return (await events.bounds(instance.session_id)).newest
    except Unavailable:
        return 0


async def _find_turn(instance: Instance, turn_id: str) -> TurnInfo | None:
    try:
        return await instance.client.turn(instance.agent, instance.name, turn_id)
    except NotFound:
        return None


async def _current_turn(instance: Instance) -> TurnInfo | None:
    """Return the turn that goes on, else the next one, else the last if it ended a moment ago."""
    try:
        turns = (await instance.client.snapshot(instance.agent, instance.name)).turns
    except NotFound:
        return None
    going_on = [turn for turn in turns if turn.status not in TURN_END_STATUSES]
    if going_on:
        return going_on[0]
    since = datetime.now(UTC) - REPLAY_TIME
    if turns and turns[-1].completed_at is not None and turns[-1].completed_at > since:
        return turns[-1]
    return None


def _compact(chunk: Any) -> str:
    return json.dumps(chunk, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
