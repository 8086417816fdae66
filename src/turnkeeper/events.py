"""Diagnostic events, under the reference's names (conformance 3.21)."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from turnkeeper.wire import WireModel

EventType = Literal[
    "agent_tool:detached:delivery_cancelled",
    "agent_tool:detached:delivery_failed",
    "agent_tool:detached:live_count_warning",
    "agent_tool:webhook:dead_letter",
    "message:clear",
]


class Event(WireModel):
    """Something that whoever runs the system may want to know."""

    type: EventType
    payload: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
