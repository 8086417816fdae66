"""Turns entries of an event log into the frames that readers get."""

import json
from typing import Any, Literal

from pydantic import TypeAdapter

from turnkeeper.event_log.entries import Entry, EventLog
from turnkeeper.events import Event
from turnkeeper.frames import (
    AgentToolEventFrame,
    EntryFrame,
    EventFrame,
    GapFrame,
    MessageFrame,
    RunChunk,
    RunEvent,
    RunStarted,
    TurnChunk,
    TurnEvent,
    TurnEventFrame,
)
from turnkeeper.messages import UIMessage
from turnkeeper.names import run_path_of

_RUN_EVENT: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)
_TURN_EVENT: TypeAdapter[TurnEvent] = TypeAdapter(TurnEvent)

REMEMBERED_RUNS = 10_000
"""Runs whose tool calls are known without looking them up."""


class Framing:
    """Makes frames of one log's entries, and remembers which tool call each run belongs to."""

    def __init__(self, log: EventLog) -> None:
        """Look up in `log` what an entry does not say."""
        self._log = log
        self._parents: dict[str, str | None] = {}

    async def frame(self, entry: Entry, *, is_replay: bool) -> EntryFrame:
        """Return an entry as a frame."""
        place: dict[str, Any] = {
            "source": entry.source,
            "sequence": entry.seq,
            "at": entry.at,
            "step": entry.step,
            "attempt": entry.attempt if entry.attempt > 1 else None,
            "replay": _flag(is_replay),
        }
        if entry.kind == "gap":
            return GapFrame(**place, lost=int(str(entry.body["lost"])))
        if entry.kind == "message":
            return MessageFrame(**place, message=UIMessage.model_validate(entry.body))
        if entry.kind == "event":
            return EventFrame(**place, event=Event.model_validate(entry.body))
        run_path = run_path_of(entry.source)
        if run_path is None:
            return TurnEventFrame(**place, event=_turn_event(entry))
        event = _run_event(entry, run_path)
        parent = await self._parent(entry, event)
        if isinstance(event, RunStarted):
            event = event.model_copy(update={"parent_tool_call_id": None})  # It is on the envelope (EV-01).
        return AgentToolEventFrame(**place, parent_tool_call_id=parent, event=event)

    async def _parent(self, entry: Entry, event: RunEvent) -> str | None:
        if isinstance(event, RunStarted):
            self._remember(entry.source, event.parent_tool_call_id)
        elif entry.source not in self._parents:
            first = await self._log.read(entry.log, limit=1, source=entry.source)
            started = first[0].body if first and first[0].kind == "run" else {}
            parent = started.get("parentToolCallId")
            self._remember(entry.source, parent if isinstance(parent, str) else None)
        return self._parents[entry.source]

    def _remember(self, source: str, parent: str | None) -> None:
        if len(self._parents) >= REMEMBERED_RUNS:
            self._parents.clear()
        self._parents[source] = parent


def _turn_event(entry: Entry) -> TurnEvent:
    if entry.kind == "turn":
        return _TURN_EVENT.validate_python(entry.body)
    return TurnChunk(turn_id=entry.source.rpartition("/")[2], body=_compact(entry.body))


def _run_event(entry: Entry, run_path: str) -> RunEvent:
    if entry.kind == "run":
        return _RUN_EVENT.validate_python(entry.body)
    return RunChunk(run_id=run_path, body=_compact(entry.body))


def _compact(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _flag(value: bool) -> Literal[True] | None:
    return True if value else None
