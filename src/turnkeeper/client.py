"""The client: submits messages to agent instances and reads what became of them."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import NoneType
from uuid import uuid4

from pydantic import JsonValue
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.service import RPCError

from turnkeeper import guidance, names
from turnkeeper.errors import InvalidRequest, NotFound, TooLarge, Unavailable
from turnkeeper.json_values import clean_json
from turnkeeper.messages import FilePart, UIMessage
from turnkeeper.registry import AgentRegistry
from turnkeeper.run_client import RunClient
from turnkeeper.runs import compact_json, input_digest
from turnkeeper.turns import (
    MAX_MESSAGE_BYTES,
    MAX_STATE_BYTES,
    TURN_END_STATUSES,
    CancelTurnInput,
    ClearMessagesInput,
    InstanceState,
    SessionSnapshot,
    SetStateInput,
    SubmitInput,
    TurnInfo,
    TurnResult,
    TurnStatus,
)
from turnkeeper.workflow_requests import DESCRIBE_PATIENCE, QUERY_PATIENCE, WorkflowRequests

_TURN_STATUSES: dict[WorkflowExecutionStatus | None, TurnStatus] = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "running",
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.CANCELED: "aborted",
}

POLLER_SILENCE = timedelta(seconds=75)
"""Temporal lists a poller for five minutes; one that is alive polls anew every minute."""


SESSION_ENDED = "its session has ended"
"""The error of a turn that its session did not live to see."""


class TurnkeeperClient:
    """Speaks to sessions, turns and runs by their registered names; any process with a Temporal client may have one."""

    def __init__(
        self,
        temporal: Client,
        registry: AgentRegistry,
        *,
        task_queue: str = names.DEFAULT_TASK_QUEUE,
        tenant: str = names.DEFAULT_TENANT,
        query_patience: timedelta = QUERY_PATIENCE,
    ) -> None:
        """Speak for one tenant.

        Args:
            temporal: a client that was connected with `turnkeeper.payloads.data_converter`.
            registry: the agent types that may be addressed.
            task_queue: where the workflows run.
            tenant: whose instances they are.
            query_patience: how long a read waits for a worker before it is given up as `Unavailable`.
        """
        self.requests = WorkflowRequests(temporal, task_queue, query_patience)
        self._task_queue = task_queue
        self._tenant = tenant
        self.registry = registry
        self.runs = RunClient(self.requests)

    def session_id(self, agent_type: str, name: str) -> str:
        """Return the workflow id of an instance's session."""
        return names.session_workflow_id(self._tenant, agent_type, name)

    async def submit(
        self, agent_type: str, name: str, message: UIMessage, *, submission_id: str | None = None
    ) -> TurnInfo:
        """Queue a message for a turn of an instance, which begins to exist with its first message.

        Args:
            agent_type: a registered agent type.
            name: the instance's name.
            message: a user message.
            submission_id: the same id again is the same submission, and gives the same turn.

        Raises:
            NotFound: no such agent type.
            Conflict: the submission id was used for another message.
            InvalidRequest: the message says nothing, has an id of ours, or holds what is not JSON.
            TooLarge: the message is over `MAX_MESSAGE_BYTES`.
            Unavailable: nobody answered; submit again with the same id.
        """
        message = _checked(message)
        size = len(message.model_dump_json().encode())
        if size > MAX_MESSAGE_BYTES:
            raise TooLarge(f"the message is {size:,} bytes, over the limit of {MAX_MESSAGE_BYTES:,}")
        profile = self.registry.profile(agent_type)
        request = SubmitInput(submission_id=submission_id or uuid4().hex, message=message, profile=profile)
        # Temporal answers an update id that it knows without asking the workflow, so another message needs another id.
        content = input_digest(message.model_dump(mode="json", exclude={"id"}))
        update_id = f"submit-{request.submission_id}-{content}"
        session_id = self.session_id(agent_type, name)
        return await self.requests.update_session(session_id, profile, names.SUBMIT, request, TurnInfo, update_id)

    async def snapshot(self, agent_type: str, name: str) -> SessionSnapshot:
        """Return how an instance stands.

        Raises:
            NotFound: no such instance.
            Unavailable: no worker answered.
        """
        session_id = self.session_id(agent_type, name)
        snapshot: SessionSnapshot = await self.requests.query(session_id, names.SNAPSHOT, SessionSnapshot)
        return snapshot

    async def turn(self, agent_type: str, name: str, turn_id: str) -> TurnInfo:
        """Return one turn.

        Raises:
            NotFound: no such turn, or one too old to be remembered by its session.
            Unavailable: no worker answered.
        """
        session_id = self.session_id(agent_type, name)
        turn: TurnInfo | None = await self.requests.query(session_id, names.TURN, TurnInfo, turn_id)
        if turn is None:
            raise NotFound(f"there is no turn {turn_id!r} among the latest")
        return turn

    async def standing(self, agent_type: str, name: str, turn_id: str) -> TurnInfo:
        """Return one turn as it really stands: one that its session did not live to see end is aborted.

        Raises:
            NotFound: no such turn.
            Unavailable: nobody answered.
        """
        turn = await self.turn(agent_type, name, turn_id)
        if turn.status in TURN_END_STATUSES:
            return turn
        session = await self.requests.describe(self.session_id(agent_type, name))
        if session.close_time is not None:
            return turn.model_copy(update={"status": "aborted", "error": SESSION_ENDED})
        return turn

    async def turn_status(self, agent_type: str, name: str, turn_id: str) -> TurnStatus:
        """Return how a turn that has begun stands, as Temporal itself knows it; needs no worker.

        Raises:
            NotFound: it has not begun, or does not exist.
            Unavailable: Temporal does not answer.
        """
        workflow_id = names.turn_workflow_id(self.session_id(agent_type, name), turn_id)
        return _TURN_STATUSES.get((await self.requests.describe(workflow_id)).status, "error")

    async def answer(self, agent_type: str, name: str, turn_id: str) -> UIMessage | None:
        """Return what the assistant has written in a turn so far, or None if nothing.

        Raises:
            Unavailable: no worker answered.
        """
        workflow_id = names.turn_workflow_id(self.session_id(agent_type, name), turn_id)
        try:
            result: TurnResult = await self.requests.query(workflow_id, names.TURN, TurnResult)
        except NotFound:
            return None  # It has not begun.
        return result.message

    async def wait_for_turn(self, agent_type: str, name: str, turn_id: str) -> TurnInfo:
        """Wait until a turn has ended and its session holds what it wrote.

        Raises:
            NotFound: no such turn.
        """
        workflow_id = names.turn_workflow_id(self.session_id(agent_type, name), turn_id)
        turn_workflow = self.requests.temporal.get_workflow_handle(workflow_id)
        pause = 0.01
        while True:
            try:
                turn = await self.standing(agent_type, name, turn_id)
                if turn.status in TURN_END_STATUSES:
                    return turn
                if turn.status == "running":
                    await turn_workflow.result()
            except (Unavailable, RPCError, WorkflowFailureError):
                pass  # A turn's workflow begins a moment after its session says so, and ends a moment before.
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def cancel_turn(self, agent_type: str, name: str, turn_id: str, reason: str | None = None) -> TurnInfo:
        """Stop a turn and the runs that it awaits; without effect on one that has ended.

        Raises:
            NotFound: no such turn.
            Unavailable: nobody answered.
        """
        session_id = self.session_id(agent_type, name)
        request = CancelTurnInput(turn_id=turn_id, reason=reason)
        return await self.requests.update(session_id, names.CANCEL_TURN, request, TurnInfo)

    async def steer_turn(
        self, agent_type: str, name: str, turn_id: str, text: str, message_id: str | None = None
    ) -> None:
        """Put a message before the model, before the next step of a turn that goes on; see `guidance.steer`."""
        workflow_id = names.turn_workflow_id(self.session_id(agent_type, name), turn_id)
        await guidance.steer(self.requests, workflow_id, text, message_id or uuid4().hex)

    async def wrap_up_turn(self, agent_type: str, name: str, turn_id: str, reason: str | None = None) -> None:
        """Ask a turn that goes on to finish with what it has; see `guidance.wrap_up`."""
        workflow_id = names.turn_workflow_id(self.session_id(agent_type, name), turn_id)
        await guidance.wrap_up(self.requests, workflow_id, reason)

    async def destroy(self, agent_type: str, name: str, reason: str | None = None) -> None:
        """End an instance: its turns are aborted with the runs that they await; its detached runs go on.

        A later message begins a new conversation under the same name.

        Raises:
            NotFound: no such instance.
            Unavailable: Temporal did not answer.
        """
        session_id = self.session_id(agent_type, name)
        await self.requests.describe(session_id)
        await self.requests.cancel(session_id, reason or "cancelled")

    async def messages(self, agent_type: str, name: str) -> list[UIMessage]:
        """Return an instance's transcript; a turn that is going on adds its message when it ends.

        Raises:
            NotFound: no such instance.
            Unavailable: no worker answered.
        """
        return await self.requests.messages(self.session_id(agent_type, name))

    async def clear_messages(self, agent_type: str, name: str) -> None:
        """Begin an instance's conversation anew: turns are aborted, and what waits to be told is cancelled (DV-14).

        Raises:
            NotFound: no such instance.
            Unavailable: nobody answered.
        """
        request = ClearMessagesInput(request_id=uuid4().hex)
        await self.requests.update(self.session_id(agent_type, name), names.CLEAR_MESSAGES, request, NoneType)

    async def state(self, agent_type: str, name: str) -> JsonValue:
        """Return an instance's state: its agent's `initial_state` until it is set.

        Raises:
            NotFound: no such agent type.
            Unavailable: no worker answered.
        """
        initial = self.registry.get(agent_type).initial_state
        try:
            kept: InstanceState = await self.requests.query(
                self.session_id(agent_type, name), names.STATE, InstanceState
            )
        except NotFound:
            return initial
        return kept.value if kept.is_set else initial

    async def set_state(self, agent_type: str, name: str, value: JsonValue) -> None:
        """Replace an instance's state.

        Raises:
            InvalidRequest: the value is not JSON.
            NotFound: no such instance.
            TooLarge: it is over `MAX_STATE_BYTES`.
            Unavailable: nobody answered; it may have been set.
        """
        try:
            value = clean_json(value, "the state")
        except (RecursionError, ValueError) as error:
            raise InvalidRequest(f"the state cannot be stored: {error}") from error
        size = len(compact_json(value).encode())
        if size > MAX_STATE_BYTES:
            raise TooLarge(f"the state is {size:,} bytes, over the limit of {MAX_STATE_BYTES:,}")
        request = SetStateInput(request_id=uuid4().hex, value=value)
        await self.requests.update(self.session_id(agent_type, name), names.SET_STATE, request, NoneType)

    async def has_worker(self) -> bool:
        """Tell whether a worker polls the task queue of the workflows.

        Raises:
            Unavailable: Temporal itself does not answer.
        """
        temporal = self.requests.temporal
        request = DescribeTaskQueueRequest(
            namespace=temporal.namespace,
            task_queue=TaskQueue(name=self._task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        try:
            answer = await temporal.workflow_service.describe_task_queue(request, timeout=DESCRIBE_PATIENCE)
        except RPCError as error:
            raise Unavailable(f"Temporal does not answer: {error.message}") from error
        oldest = datetime.now(UTC) - POLLER_SILENCE
        return any(poller.last_access_time.ToDatetime(UTC) > oldest for poller in answer.pollers)


def _checked(message: UIMessage) -> UIMessage:
    """Return a message as it may be stored.

    Raises:
        InvalidRequest: it may not.
    """
    if message.id.startswith(names.assistant_message_id("")):
        raise InvalidRequest(f"message ids that begin with {names.assistant_message_id('')!r} are the assistant's")
    try:
        message = UIMessage.model_validate(clean_json(message.model_dump(), "the message"))
    except (RecursionError, ValueError) as error:
        raise InvalidRequest(f"the message cannot be stored: {error}") from error
    files = [part for part in message.parts if isinstance(part, FilePart)]
    if not message.text.strip() and not files:
        raise InvalidRequest("the message says nothing: it needs some text or a file")
    if any(not file.url.strip() or not file.media_type.strip() for file in files):
        raise InvalidRequest("a file of the message has no URL or no media type")
    return message
