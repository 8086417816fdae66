"""The events that tell of a model step's recovery: from the second attempt on, it is one (OE-14, OE-15, OE-17)."""

from pydantic import JsonValue
from temporalio import activity

from turnkeeper.events import Event


def recovery_events(turn_id: str, attempt: activity.Info) -> list[Event]:
    """Return what is to be told when an attempt begins: nothing of the first one."""
    if attempt.attempt == 1:
        return []
    payload = _payload(turn_id, attempt)
    begun = Event(type="chat:recovery:attempt", payload=payload)
    if attempt.attempt > 2:
        return [begun]
    return [Event(type="chat:recovery:detected", payload=payload), begun]


def recovered(turn_id: str, attempt: activity.Info) -> Event:
    """Return what is to be told when a later attempt has succeeded."""
    return Event(type="chat:recovery:completed", payload=_payload(turn_id, attempt))


def _payload(turn_id: str, attempt: activity.Info) -> dict[str, JsonValue]:
    policy = attempt.retry_policy
    return {
        "incidentId": f"{attempt.workflow_id}/{attempt.activity_id}",
        "requestId": turn_id,
        "attempt": attempt.attempt,
        "maxAttempts": policy.maximum_attempts if policy is not None else 0,
        "recoveryKind": "retry",
    }
