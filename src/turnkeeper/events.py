"""Diagnostic events, under the reference's names (conformance 3.21)."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from turnkeeper.wire import WireModel

EventType = Literal[
    "agent_tool:detached:delivery_cancelled",
    "agent_tool:detached:delivery_failed",
    "agent_tool:detached:live_count_warning",
    "agent_tool:webhook:dead_letter",
    "chat:context:compacted",
    "chat:recovery:attempt",
    "chat:recovery:completed",
    "chat:recovery:detected",
    "chat:recovery:exhausted",
    "chat:request:failed",
    "chat:stream:stalled",
    "chat:transcript:repaired",
    "message:clear",
]


class Event(WireModel):
    """Something that whoever runs the system may want to know."""

    type: EventType
    payload: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
