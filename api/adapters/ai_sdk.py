"""The AI SDK's UI message stream of one turn, made from the live log (clients.md 1).

What it emits is a function of the log's entries alone, so that every reader of a turn, now or later, gets the same
chunks under the same numbers, by which `WorkflowChatTransport` resumes.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from turnkeeper.chunks import UIMessageChunk
from turnkeeper.event_log.entries import Entry
from turnkeeper.messages import Part, ToolPart, UIMessage
from turnkeeper.names import run_path_of
from turnkeeper.runs import compact_json
from turnkeeper.streamed_parts import StreamedParts

Chunk = dict[str, Any]

SUPERSEDED = "The step was tried again."
"""The error of a tool call that a failed attempt of a model step had streamed."""

PRELIMINARY_GROWTH = 400
"""Characters that a run's message grows by before it is sent again; more as it becomes long, see `_RunView`."""

PRELIMINARY_OUTPUT = 2_000
"""The longest tool output, as JSON, that is part of a run's preliminary message."""

_CHUNK: TypeAdapter[UIMessageChunk] = TypeAdapter(UIMessageChunk)


class TurnStream:
    """Translates the entries of a log, from the turn's first, into the chunks that its readers get."""

    def __init__(self, source: str, turn_id: str, *, shows_preliminary: bool = True) -> None:
        """Translate for a turn.

        Args:
            source: the turn's workflow id.
            turn_id: its id.
            shows_preliminary: whether runs show as preliminary outputs while they go on; see `catch_up`.
        """
        self._source = source
        self._agent_tool_run = re.compile(rf"{re.escape(turn_id)}-\d+-\d+")
        self._steps: dict[str, tuple[int, int]] = {}
        self._open: dict[str, str] = {}
        self._calls: dict[str, bool] = {}
        self._runs: dict[str, _RunView] = {}
        self._shows_preliminary = shows_preliminary
        self.has_ended = False
        self.has_begun = False

    def translate(self, entry: Entry) -> list[Chunk]:
        """Return the chunks that an entry adds; none for what belongs to something else."""
        if self.has_ended or self._is_stale(entry):
            return []
        if entry.source == self._source:
            return self._of_turn(entry)
        path = run_path_of(entry.source)
        if path is None or "/" in path:
            return []
        return self._of_run(path, entry)

    def catch_up(self) -> list[Chunk]:
        """Return how runs stand that were read without showing each of their steps, and show them from now on."""
        self._shows_preliminary = True
        return [chunk for view in self._runs.values() if (chunk := self._preliminary(view)) is not None]

    def end(self, status: str, error: str | None) -> list[Chunk]:
        """Return the end of the stream, `finish` always last (clients.md 1.2, rule 5)."""
        self.has_ended = True
        chunks = self._closing()
        reason = "stop"
        if status == "error":
            reason = "error"
            chunks.append({"type": "error", "errorText": error or "The turn failed."})
        elif status == "aborted":
            reason = "other"
            chunks.append({"type": "abort"})
        return [*chunks, {"type": "finish", "finishReason": reason}]

    def whole(self, message: UIMessage) -> list[Chunk]:
        """Return a message that never streamed, because the log was away."""
        chunks: list[Chunk] = [{"type": "start", "messageId": message.id}]
        for place, part in enumerate(message.parts):
            chunks.extend(_chunks_of(place, part))
        return chunks

    def _is_stale(self, entry: Entry) -> bool:
        """Tell whether an entry comes from an attempt that was given up before."""
        return entry.step is not None and (entry.step, entry.attempt) < self._steps.get(entry.source, (0, 0))

    def _of_turn(self, entry: Entry) -> list[Chunk]:
        if entry.kind == "turn" and entry.body["kind"] == "started":
            self.has_begun = True
            return [{"type": "start", "messageId": entry.body["messageId"]}]
        if entry.kind == "turn":
            statuses = {"finished": "completed", "error": "error", "aborted": "aborted"}
            return self.end(statuses[str(entry.body["kind"])], _text(entry.body.get("error")))
        if entry.kind != "chunk":
            return []
        chunks: list[Chunk] = []
        if entry.body["type"] == "start-step":
            chunks = self._retry(entry)
        return [*chunks, *self._pass(entry.body)]

    def _retry(self, entry: Entry) -> list[Chunk]:
        """Close what an earlier attempt of the same step left open; its text cannot be taken back."""
        before = self._steps.get(self._source)
        self._steps[self._source] = (entry.step or 0, entry.attempt)
        if before is None or before[0] != entry.step or before[1] == entry.attempt:
            return []  # A new step, or one that a `ChatAgent` begins within its own.
        chunks = self._closing()
        for call_id, is_settled in self._calls.items():
            if not is_settled:
                chunks.append({"type": "tool-output-error", "toolCallId": call_id, "errorText": SUPERSEDED})
        self._calls = dict.fromkeys(self._calls, True)
        data = {"step": entry.step, "attempt": entry.attempt}
        return [*chunks, {"type": "data-step-retried", "data": data, "transient": True}]

    def _pass(self, body: Chunk) -> list[Chunk]:
        """Pass a chunk of the turn on, and remember what it leaves open; what would end the reading is left out."""
        kind, part_id, call_id = body["type"], body.get("id"), body.get("toolCallId")
        part, _, moment = kind.rpartition("-")
        if part in ("text", "reasoning"):
            if moment == "start":
                self._open[f"{part}/{part_id}"] = part
            elif f"{part}/{part_id}" not in self._open:
                return []
            elif moment == "end":
                del self._open[f"{part}/{part_id}"]
        elif kind in ("tool-input-start", "tool-input-available"):
            self._calls[str(call_id)] = False
        elif call_id is not None and call_id not in self._calls:
            return []
        elif kind.startswith("tool-output"):
            self._calls[str(call_id)] = True
        return [dict(body)]

    def _closing(self) -> list[Chunk]:
        closing = [{"type": f"{part}-end", "id": key.partition("/")[2]} for key, part in self._open.items()]
        self._open.clear()
        return closing

    def _of_run(self, path: str, entry: Entry) -> list[Chunk]:
        if entry.kind == "run" and entry.body["kind"] == "started":
            return self._of_started_run(path, entry)
        view = self._runs.get(path)
        if view is None:
            return []  # Somebody else's: dispatched from outside, or by an earlier turn.
        if entry.kind in ("progress", "milestone"):
            return [dict(entry.body)]
        if entry.kind == "run":
            view.end(entry.body)
            chunk = self._preliminary(view)
            return [view.data_part(), *([] if chunk is None else [chunk])]
        if entry.kind == "chunk":
            if entry.body["type"] == "start-step":
                self._steps[entry.source] = (entry.step or 0, entry.attempt)
            chunk = self._preliminary(view) if view.add(entry) and self._shows_preliminary else None
            return [] if chunk is None else [chunk]
        return []

    def _of_started_run(self, path: str, entry: Entry) -> list[Chunk]:
        call_id = _text(entry.body.get("parentToolCallId"))
        if call_id is None or call_id not in self._calls:
            return []
        view = _RunView(path, call_id, entry.body, is_output=bool(self._agent_tool_run.fullmatch(path)))
        self._runs[path] = view
        return [view.data_part()]

    def _preliminary(self, view: "_RunView") -> Chunk | None:
        """Return a run's message as what its tool call has come to so far, unless the call has its result."""
        if not view.is_output or self._calls.get(view.call_id, True):
            return None
        return {
            "type": "tool-output-available",
            "toolCallId": view.call_id,
            "output": view.message(),
            "preliminary": True,
        }


@dataclass
class _RunView:
    """A run of the turn's, as data and as a message."""

    path: str
    call_id: str
    started: Chunk
    is_output: bool
    """Whether it is the carrying out of an agent tool, whose output it then is."""
    ended: Chunk = field(default_factory=dict)
    _streamed: StreamedParts = field(default_factory=StreamedParts)
    _grown: int = 0
    _size: int = 0

    def add(self, entry: Entry) -> bool:
        """Take a chunk, and tell whether the message has grown enough to be shown again."""
        try:
            streamed = self._streamed.add(_CHUNK.validate_python(entry.body), entry.step, entry.attempt)
        except ValidationError:
            return False
        if streamed is None:
            return False
        self._streamed = streamed
        self._grown += len(compact_json(entry.body))
        is_delta = str(entry.body["type"]).endswith("-delta")
        # A message that has become long is sent less and less often, so that the whole stays in proportion.
        if self._grown < max(PRELIMINARY_GROWTH if is_delta else 1, self._size // 4):
            return False
        self._size += self._grown
        self._grown = 0
        return True

    def end(self, event: Chunk) -> None:
        self.ended = event

    def data_part(self) -> Chunk:
        data = {key: value for key, value in {**self.started, **self.ended}.items() if key != "kind"}
        return {"type": "data-agent-run", "id": self.path, "data": {**data, "status": self._status()}}

    def message(self) -> Chunk:
        metadata = {"runId": self.path, "agentType": self.started["agentType"], "status": self._status()}
        if "summary" in self.ended:
            metadata["summary"] = self.ended["summary"]
        parts = [_shortened(part).model_dump(mode="json") for part in self._streamed.parts]
        return {"id": self.path, "role": "assistant", "parts": parts, "metadata": metadata}

    def _status(self) -> str:
        kind = str(self.ended.get("kind", "running"))
        return "completed" if kind == "finished" else kind


def thinned(entries: Sequence[Entry]) -> Iterable[Entry]:
    """Leave out what a reader who was away need not see: superseded attempts, and all but the newest progress."""
    attempts: dict[tuple[str, int], int] = {}
    progress: dict[str, int] = {}
    for entry in entries:
        if entry.kind == "progress":
            progress[entry.source] = entry.id
        elif entry.step is not None:
            key = (entry.source, entry.step)
            attempts[key] = max(entry.attempt, attempts.get(key, 0))
    for entry in entries:
        if entry.kind == "progress" and progress[entry.source] != entry.id:
            continue
        if entry.step is not None and entry.attempt < attempts[entry.source, entry.step]:
            continue
        yield entry


def _shortened(part: Part) -> Part:
    if isinstance(part, ToolPart) and len(compact_json(part.output)) > PRELIMINARY_OUTPUT:
        return part.model_copy(update={"output": f"{compact_json(part.output)[:PRELIMINARY_OUTPUT]}…"})
    return part


def _chunks_of(place: int, part: Part) -> list[Chunk]:
    """Return a stored part as the chunks that would have streamed it."""
    value = part.model_dump(mode="json")
    match part.type:
        case "step-start":
            return [{"type": "start-step"}]
        case "text" | "reasoning" as kind:
            part_id = str(place)
            return [
                {"type": f"{kind}-start", "id": part_id},
                {"type": f"{kind}-delta", "id": part_id, "delta": value["text"]},
                {"type": f"{kind}-end", "id": part_id},
            ]
        case _ if isinstance(part, ToolPart):
            common = {"toolCallId": part.tool_call_id, "providerExecuted": True}
            called = {"type": "tool-input-available", "toolName": part.tool_name, "input": part.input, **common}
            if part.state == "output-error":
                return [called, {"type": "tool-output-error", "errorText": part.error_text or "", **common}]
            return [called, {"type": "tool-output-available", "output": part.output, **common}]
        case _:
            return [{key: item for key, item in value.items() if key != "filename"}]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
