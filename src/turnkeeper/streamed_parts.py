"""The parts of a message that is still streaming, when some of what streamed may turn out to be superseded."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from turnkeeper.chunks import (
    FinishStep,
    PartsBuilder,
    StreamError,
    ToolOutputAvailable,
    ToolOutputError,
    UIMessageChunk,
)
from turnkeeper.messages import Part, TextPart, ToolPart

MILESTONE = "data-agent-milestone"
"""The type of the chunks that tell of milestones (MS-06)."""


@dataclass(frozen=True)
class StreamedParts:
    """What the chunks of a turn or run add up to; a value that `add` leaves as it is."""

    parts: tuple[Part, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    """See `PartsBuilder.places`."""
    attempt: tuple[int, int] = (-1, 0)
    """The model step that streams, and which attempt of it."""
    settled: int = 0
    """How many parts belong to the steps before."""

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart) and part.text)

    @property
    def tool_parts(self) -> tuple[ToolPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolPart))

    def add(self, chunk: UIMessageChunk, step: int | None, attempt: int | None) -> "StreamedParts | None":
        """Return the parts with one more chunk, or None if it comes from an attempt that was superseded before.

        A chunk that does not fit, because what it refers to was lost, adds nothing.

        Args:
            chunk: what was streamed.
            step: the model step that streamed it, if one did.
            attempt: which attempt of the step, if not the first.
        """
        current = self
        # What a step's calls gave is told by the workflow, which knows nothing of attempts.
        if step is not None and not isinstance(chunk, ToolOutputAvailable | ToolOutputError | FinishStep):
            place = (step, attempt or 1)
            if place < self.attempt:
                return None
            if place > self.attempt:
                current = self._begin(place)
        builder = PartsBuilder(current.parts, current.places)
        try:
            builder.add(chunk)
        except (StreamError, ValueError):
            return current
        return replace(current, parts=builder.parts, places=dict(builder.places))

    def _begin(self, place: tuple[int, int]) -> "StreamedParts":
        """Return the parts at the beginning of an attempt, without those of an earlier one of the same step."""
        current = self if place[0] != self.attempt[0] else self._without_step()
        return replace(current, attempt=place, settled=len(current.parts))

    def _without_step(self) -> "StreamedParts":
        """Return the parts before the step that streams, and its milestones, which are never taken back."""
        kept = [at for at, part in enumerate(self.parts) if at < self.settled or part.type == MILESTONE]
        moved = {before: now for now, before in enumerate(kept)}
        places = {key: moved[at] for key, at in self.places.items() if at in moved}
        return replace(self, parts=tuple(self.parts[at] for at in kept), places=places)
