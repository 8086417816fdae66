"""Agent-tool runs as their dispatcher sees them: who, how it stands, how it ended."""

import json
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, JsonValue
from pydantic_core import to_jsonable_python

from turnkeeper.json_values import clean_text
from turnkeeper.wire import WireModel

RunStatus = Literal["starting", "running", "completed", "error", "aborted", "interrupted"]
"""How a run stands (DI-24): starting, running, then an end. Only `interrupted` may still be replaced."""

EndStatus = Literal["completed", "error", "aborted", "interrupted"]

InterruptedReason = Literal[
    "no-progress",
    "window-exceeded",
    "not-tailable",
    "inspect-timeout",
    "inspect-failed",
    "recovery-deadline",
    "budget-exceeded",
]
"""Why a parent stopped waiting for a run that had not ended (RF-12)."""

END_STATUSES: frozenset[str] = frozenset({"completed", "error", "aborted", "interrupted"})
MAX_ERROR_BYTES = 1_000
"""Bytes, as JSON, of an error's text that travel on; a failure must stay under 4 KiB in Temporal's mutable state."""

PREVIEW_LENGTH = 500

_GENERIC_ERRORS = {
    "error": "The sub-agent failed without saying why.",
    "aborted": "The sub-agent was cancelled.",
    "interrupted": "The sub-agent did not finish in time.",
}


class Display(WireModel):
    """How a user interface presents runs of an agent tool (DI-23)."""

    name: str | None = None
    icon: str | None = None


class AgentToolResult(WireModel):
    """How a run ended, for whoever dispatched it (RF-01)."""

    run_id: str
    agent_type: str
    status: EndStatus
    output: JsonValue = None
    """The structured output, if the agent gives one."""
    summary: str | None = None
    """What the run has to say, in prose (RF-14 as decided)."""
    error: str | None = None
    reason: InterruptedReason | None = None
    child_still_running: bool | None = None


class AgentToolRunHandle(WireModel):
    """What a detached dispatch gives at once (DD-01): the run is recorded and has started, or was refused."""

    run_id: str
    agent_type: str
    status: RunStatus
    """`running`; `error` for a run that was refused (CC-07); for a known run id how that run stands (DI-13)."""
    error: str | None = None


class DeliveryInfo(WireModel):
    """How far the telling of a run's end has come (DV rows)."""

    to: Literal["agent", "webhook"] = "agent"
    slot: Literal["finish", "give_up"]
    status: Literal["pending", "open", "delivered", "cancelled", "dead"]
    """Not tried yet, tried without success and due again, done, cancelled with the conversation (DV-14), or, of a
    webhook, given up."""
    attempts: int = 0
    error: str | None = None
    """Why the last try failed."""


class AgentToolFailure(WireModel):
    """What the parent's model gets as the tool result of a run that did not complete (RF-02)."""

    ok: Literal[False] = False
    status: Literal["error", "aborted", "interrupted"]
    error: str
    retryable: bool
    reason: InterruptedReason | None = None
    child_still_running: bool | None = None


class AgentToolProgress(WireModel):
    """A run's report of how far it is, for `on_progress` (PR-12)."""

    fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """From 0 to 1 (PR-05 as decided)."""
    message: str | None = None
    phase: str | None = None
    milestone: str | None = None
    """The milestone that this report reached, if it is one."""
    data: JsonValue = None
    at: AwareDatetime
    """When it was reported."""


class AgentToolMilestone(WireModel):
    """A point that a run passed; durable, in order, and never coalesced (MS rows)."""

    name: str
    sequence: int
    """Counts the milestones of the run, from 0 (MS-03)."""
    at: AwareDatetime
    data: JsonValue = None


class AgentToolRunInfo(WireModel):
    """A registry row: a run as the instance that dispatched it knows it."""

    run_id: str
    agent_type: str
    status: RunStatus
    input_preview: JsonValue = None
    parent_tool_call_id: str | None = None
    display_order: int = 0
    display: Display | None = None
    started_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    summary: str | None = None
    error: str | None = None
    reason: InterruptedReason | None = None
    child_still_running: bool | None = None
    detached: bool | None = None
    """True for a run that nobody awaits."""
    notify_source: str | None = None
    deliveries: tuple[DeliveryInfo, ...] | None = None
    """Who of a detached run's end was told, once it has ended or was given up."""


class AgentToolRunInspection(WireModel):
    """What a run says of itself (IC-02); it never says `interrupted`, which is a parent's word (IC-03)."""

    run_id: str
    agent_type: str
    status: Literal["running", "completed", "error", "aborted"]
    output: JsonValue = None
    summary: str | None = None
    error: str | None = None
    started_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    steps: Annotated[int, Field(ge=0)] = 0
    """Model steps taken so far."""
    progress: AgentToolProgress | None = None
    """The latest report that was no milestone (PR-08)."""
    milestones: tuple[AgentToolMilestone, ...] | None = None
    """In order; None when there are none (MS-08)."""


def failure_of(result: AgentToolResult) -> AgentToolFailure:
    """Return what the model is told of a run that did not complete (RF-02 to RF-06).

    Raises:
        ValueError: the run completed.
    """
    if result.status == "completed":
        raise ValueError(f"run {result.run_id} completed and has no failure")
    return AgentToolFailure(
        status=result.status,
        error=result.error or _GENERIC_ERRORS[result.status],
        retryable=result.status == "interrupted",
        reason=result.reason,
        child_still_running=result.child_still_running,
    )


def generic_error(status: Literal["error", "aborted", "interrupted"]) -> str:
    """Return the sentence that stands in for a missing error text (RF-06, RF-25)."""
    return _GENERIC_ERRORS[status]


def shorten_error(text: str) -> str:
    """Return `text` cut to what may travel in a failure."""
    text = clean_text(text)
    size = kept = 0
    for place, character in enumerate(text, start=1):
        # Counted as JSON, where a line break takes two bytes and a control character six.
        size += len(json.dumps(character, ensure_ascii=False).encode()) - 2
        if size > MAX_ERROR_BYTES:
            return f"{text[:kept]}…"
        if size <= MAX_ERROR_BYTES - len("…".encode()):
            kept = place
    return text


def input_preview(value: Any) -> JsonValue:
    """Return what a registry keeps of a run's input (IN-04 to IN-06): never the whole input (IN-08)."""
    if value is None:
        return None
    if isinstance(value, str):
        return value[:PREVIEW_LENGTH]
    try:
        text = json.dumps(to_jsonable_python(value), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return str(value)[:PREVIEW_LENGTH]
    return text if len(text) <= PREVIEW_LENGTH else f"{text[: PREVIEW_LENGTH - 3]}..."


def input_text(value: JsonValue) -> str:
    """Return a run's input as the text of its first user message (IN-01)."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def input_digest(value: JsonValue) -> str:
    """Return a fingerprint of a run's input, by which a reused run id is recognised (DI-16)."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=16).hexdigest()


def run_id_taken(run_id: str, agent_type: str) -> str:
    """Return the text of the conflict that a reused run id is (DI-16)."""
    return f"the run id {run_id!r} is taken by a run of {agent_type}, for another agent or input; choose another id"


def run_memo(agent_type: str, value: JsonValue) -> dict[str, str]:
    """Return what a run's workflow shows of its identity, should its id be used again (DI-16)."""
    return {"agent_type": agent_type, "input_digest": input_digest(value)}


def compact_json(value: JsonValue) -> str:
    """Return `value` as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def default_summary(text: str, output: JsonValue) -> str:
    """Return the summary of a run whose agent does not write its own (RF-14, RF-17 as decided)."""
    if text:
        return text
    if output is None:
        return ""
    return output if isinstance(output, str) else compact_json(output)
