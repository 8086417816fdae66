"""What workflows tell the live log: beginnings, ends and milestones. It never fails and never takes long."""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b

from temporalio import activity

from turnkeeper import names
from turnkeeper.chunks import FinishStep, ToolOutputAvailable, ToolOutputError, UIMessageChunk
from turnkeeper.event_log.entries import EntryKind, NewEntry
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.events import Event
from turnkeeper.frames import END_KINDS, RunEvent, TurnEvent, TurnStarted
from turnkeeper.messages import ToolPart
from turnkeeper.names import assistant_message_id, run_path_of
from turnkeeper.progress import milestone_chunk
from turnkeeper.steps import PublishInput, SettledStep
from turnkeeper.wire import WireModel


class PublishActivities:
    """Tells the live log of the course of turns and runs."""

    def __init__(self, writer: EventWriter) -> None:
        """Write through `writer`."""
        self._writer = writer

    @activity.defn(name=names.PUBLISH)
    async def publish(self, told: PublishInput) -> None:
        """Append what a workflow tells; each thing is appended once, however often it is told."""
        self._writer.add(*published(told))
        await self._writer.flush()


def published(told: PublishInput) -> Iterator[NewEntry]:
    """Yield the entries of what a workflow tells."""
    if told.turn is not None:
        # Its first model step tells a turn's beginning; one that was stopped before that begins here.
        yield turn_started(told.source, told.turn.turn_id)
    if told.settled is not None:
        yield from settled_entries(told.source, told.settled)
    for reached in told.milestones:
        chunk = milestone_chunk(run_path_of(told.source) or "", reached.milestone, reached.report)
        yield _entry(told.source, f"milestone/{reached.milestone.sequence}", "milestone", chunk)
    for event in told.runs:
        yield _course_entry(told.source, "run", event, told.occasion)
    if told.turn is not None:
        yield _course_entry(told.source, "turn", told.turn)
    if told.message is not None:
        yield _entry(told.source, f"message/{told.message.id}", "message", told.message)
    for place, noted in enumerate(told.events):
        yield _entry(told.source, f"event/{place}{told.occasion}", "event", noted)


def turn_started(source: str, turn_id: str) -> NewEntry:
    """Return the entry of a turn's beginning."""
    return _course_entry(source, "turn", TurnStarted(turn_id=turn_id, message_id=assistant_message_id(turn_id)))


def _course_entry(source: str, kind: EntryKind, event: RunEvent | TurnEvent, occasion: str = "") -> NewEntry:
    # It ends once, whoever tells it; only its being given up is something else.
    return _entry(source, ("ended" if event.kind in END_KINDS else event.kind) + occasion, kind, event)


def settled_entries(source: str, settled: SettledStep) -> Iterator[NewEntry]:
    """Yield the results of a step's calls, and its end."""
    for call in settled.calls:
        if call.is_settled:
            yield output_entry(source, settled.step, call)
    yield _entry(source, f"finish-step/{settled.step}", "chunk", FinishStep())


def output_entry(source: str, step: int, call: ToolPart) -> NewEntry:
    """Return the entry of a tool call's result."""
    chunk: UIMessageChunk
    if call.state == "output-error":
        chunk = ToolOutputError(tool_call_id=call.tool_call_id, error_text=call.error_text or "")
    else:
        chunk = ToolOutputAvailable(tool_call_id=call.tool_call_id, output=call.output)
    # Told by the activity at once and by the workflow later. Where they differ, because nobody heard of the activity's
    # end, both are told, and the later one counts.
    digest = blake2b(chunk.model_dump_json().encode(), digest_size=6).hexdigest()
    return _entry(source, f"output/{step}/{call.tool_call_id}/{digest}", "chunk", chunk)


def event_entry(source: str, occasion: str, event: Event) -> NewEntry:
    """Return the entry of a diagnostic event; the same occasion again is the same event."""
    return _entry(source, f"event/{event.type}/{occasion}", "event", event)


def _entry(source: str, key: str, kind: EntryKind, body: WireModel) -> NewEntry:
    # Without a step, for what a workflow tells belongs to no attempt and is never superseded.
    return NewEntry(
        source=source,
        key=f"{source}#{key}",
        kind=kind,
        body=body.model_dump(mode="json"),
        at=datetime.now(UTC),
    )
