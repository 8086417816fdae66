"""Turns and the transcript of an instance."""

from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Query, Response
from pydantic import JsonValue

from api.dependencies import IdempotencyKey, Instance, InstanceDependency, PathName
from api.schemas import Cancel, InstanceView, Steer, SubmitTurn, TurnView, UserMessage
from turnkeeper import names
from turnkeeper.errors import Unavailable
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.turns import TurnInfo

router = APIRouter(prefix="/agents/{agent}/{name}", tags=["turns"])

FROM_TEMPORAL = "No worker answered; this is what Temporal itself knows."


@router.get("")
async def get_instance(instance: InstanceDependency) -> InstanceView:
    """Return how an instance stands."""
    snapshot = await instance.client.snapshot(instance.agent, instance.name)
    return InstanceView(
        agent=instance.agent,
        name=instance.name,
        workflow_id=instance.session_id,
        active_turn_id=snapshot.active_turn_id,
        queued_turns=snapshot.queued_turns,
        messages=snapshot.messages,
    )


@router.post("/turns", status_code=202)
async def submit_turn(
    instance: InstanceDependency,
    body: SubmitTurn,
    response: Response,
    idempotency_key: IdempotencyKey = None,
    wait: Annotated[bool, Query(description="Answer when the turn has ended.")] = False,
) -> TurnView:
    """Submit a message; it becomes a turn, after those that were submitted before it."""
    submission_id = idempotency_key or uuid4().hex
    message = _message_of(body, submission_id)
    turn = await instance.client.submit(instance.agent, instance.name, message, submission_id=submission_id)
    response.headers["Location"] = _url(instance, turn.turn_id)
    if not wait:
        return _view(instance, turn)
    ended = await instance.client.wait_for_turn(instance.agent, instance.name, turn.turn_id)
    response.status_code = 200
    return await _view_with_message(instance, ended)


@router.get("/turns")
async def list_turns(instance: InstanceDependency) -> list[TurnView]:
    """Return the latest turns, oldest first."""
    snapshot = await instance.client.snapshot(instance.agent, instance.name)
    return [_view(instance, turn) for turn in snapshot.turns]


@router.get("/turns/{turn_id}")
async def get_turn(instance: InstanceDependency, turn_id: PathName) -> TurnView:
    """Return one turn with what the assistant has written in it."""
    try:
        turn = await instance.client.standing(instance.agent, instance.name, turn_id)
    except Unavailable:
        status = await instance.client.turn_status(instance.agent, instance.name, turn_id)
        workflow_id = names.turn_workflow_id(instance.session_id, turn_id)
        url = _url(instance, turn_id)
        return TurnView(turn_id=turn_id, status=status, url=url, workflow_id=workflow_id, hint=FROM_TEMPORAL)
    return await _view_with_message(instance, turn)


@router.post("/turns/{turn_id}/cancel")
async def cancel_turn(instance: InstanceDependency, turn_id: PathName, body: Cancel | None = None) -> TurnView:
    """Stop a turn and the runs that it awaits; without effect on one that has ended."""
    reason = body.reason if body else None
    return _view(instance, await instance.client.cancel_turn(instance.agent, instance.name, turn_id, reason))


@router.post("/turns/{turn_id}/steer", responses={409: {"description": "It does not go on."}})
async def steer_turn(
    instance: InstanceDependency, turn_id: PathName, body: Steer, idempotency_key: IdempotencyKey = None
) -> TurnView:
    """Put a message before the model, before the next step of a turn that goes on."""
    turn = await instance.client.turn(instance.agent, instance.name, turn_id)
    await instance.client.steer_turn(instance.agent, instance.name, turn_id, body.message, idempotency_key)
    return _view(instance, turn)


@router.post("/turns/{turn_id}/wrap_up", responses={409: {"description": "It does not go on."}})
async def wrap_up_turn(instance: InstanceDependency, turn_id: PathName, body: Cancel | None = None) -> TurnView:
    """Ask a turn that goes on to finish with what it has: no more tools, one last answer."""
    turn = await instance.client.turn(instance.agent, instance.name, turn_id)
    await instance.client.wrap_up_turn(instance.agent, instance.name, turn_id, body.reason if body else None)
    return _view(instance, turn)


@router.delete("", status_code=204)
async def destroy_instance(instance: InstanceDependency, body: Cancel | None = None) -> None:
    """End an instance: turns are aborted, detached runs go on; a later message begins anew."""
    await instance.client.destroy(instance.agent, instance.name, body.reason if body else None)


@router.get("/messages")
async def list_messages(instance: InstanceDependency) -> list[UIMessage]:
    """Return the transcript; a turn that is going on adds its message when it ends."""
    return await instance.client.messages(instance.agent, instance.name)


@router.delete("/messages", status_code=204)
async def clear_messages(instance: InstanceDependency) -> None:
    """Begin the conversation anew; turns are aborted, runs go on, and what waits to be told is cancelled (DV-14)."""
    await instance.client.clear_messages(instance.agent, instance.name)


@router.get("/state")
async def get_state(instance: InstanceDependency) -> JsonValue:
    """Return what the instance remembers beside its conversation; its agent sets it."""
    return await instance.client.state(instance.agent, instance.name)


def _message_of(body: SubmitTurn, submission_id: str) -> UIMessage:
    if isinstance(body.message, UserMessage):
        return UIMessage(
            id=body.message.id or submission_id,
            role="user",
            parts=tuple(body.message.parts),
            metadata=body.message.metadata,
        )
    return user_message(submission_id, body.message)


def _url(instance: Instance, turn_id: str) -> str:
    return f"{instance.url}/turns/{turn_id}"


def _view(instance: Instance, turn: TurnInfo) -> TurnView:
    workflow_id = names.turn_workflow_id(instance.session_id, turn.turn_id)
    return TurnView(url=_url(instance, turn.turn_id), workflow_id=workflow_id, **dict(turn))


async def _view_with_message(instance: Instance, turn: TurnInfo) -> TurnView:
    message = await instance.client.answer(instance.agent, instance.name, turn.turn_id)
    return _view(instance, turn).model_copy(update={"message": message})
