"""Updates and queries as Turnkeeper sends them: tried again where that is safe, with errors that say what to do."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from turnkeeper import names
from turnkeeper.dispatches import AgentProfile
from turnkeeper.errors import REQUEST_ERRORS, InvalidRequest, NotFound, RollingOver, Unavailable
from turnkeeper.messages import UIMessage, merge_steps
from turnkeeper.search_attributes import instance_attributes
from turnkeeper.turns import MessagesInput, MessagesPage, SessionInput, SessionSnapshot
from turnkeeper.update_slots import UpdateSlots

ResultT = TypeVar("ResultT")

UPDATE_PATIENCE = timedelta(seconds=15)
"""How long an update may take, tries included, before its sender is told to come back."""

QUERY_PATIENCE = timedelta(milliseconds=1800)
"""How long a status read may take; it has to answer within 2 s even when no worker does (field case 2)."""

DISPATCH_PATIENCE = timedelta(minutes=30)
"""How long a tool waits for the start of a run that it dispatched, which its agent's start hook may put off."""

DESCRIBE_PATIENCE = timedelta(seconds=1)
"""How long Temporal itself, which needs no worker for it, may take to describe a workflow or a task queue."""

ACTIVITY_QUERY_PATIENCE = timedelta(seconds=30)
"""How long an activity waits for what it cannot work without."""

FIRST_QUERY_ATTEMPT = timedelta(milliseconds=400)

_NO_WORKER = "no worker answered in time; is one polling the task queue?"
_PASSING = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)
_ABORTED_UPDATES = frozenset({"AcceptedUpdateCompletedWorkflow", "UpdateAborted", RollingOver.wire_type})
"""What an update fails with when its workflow continued as new or closed before it was done with, or is about to."""


class WorkflowRequests:
    """Sends updates and queries to sessions, turns and runs."""

    def __init__(self, temporal: Client, task_queue: str, query_patience: timedelta = QUERY_PATIENCE) -> None:
        """Send through `temporal`; sessions that begin to exist run on `task_queue`."""
        self.temporal = temporal
        self._task_queue = task_queue
        self._query_patience = query_patience
        self._slots = UpdateSlots()

    async def update(
        self,
        workflow_id: str,
        name: str,
        request: object,
        result_type: type[ResultT],
        patience: timedelta | None = None,
    ) -> ResultT:
        """Send an update to a workflow that exists.

        Args:
            workflow_id: the workflow.
            name: the update.
            request: its argument.
            result_type: what it answers.
            patience: how long it may take; `UPDATE_PATIENCE` if not given.

        Raises:
            RequestError: the workflow refused it, or there is no such workflow.
            Unavailable: it was not answered in time; whether it was accepted is not known.
        """
        update_id = uuid4().hex

        async def attempt(remaining: timedelta) -> ResultT:
            return await self._update_once(workflow_id, name, request, result_type, update_id, remaining)

        return await _until_answered(attempt, patience or UPDATE_PATIENCE)

    async def update_session(
        self,
        session_id: str,
        profile: AgentProfile,
        name: str,
        request: object,
        result_type: type[ResultT],
        update_id: str | None = None,
    ) -> ResultT:
        """Send an update to a session, which begins to exist if it does not yet.

        Raises:
            RequestError: the session refused it.
            Unavailable: it was not answered in time; whether it was accepted is not known.
        """
        sent_id = update_id or uuid4().hex

        async def attempt(remaining: timedelta) -> ResultT:
            try:
                return await self._update_once(session_id, name, request, result_type, sent_id, remaining)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
            state = SessionInput(profile=profile, turns_submitted=await self._turns_of_closed(session_id))
            return await self._update_with_start(session_id, state, name, request, result_type, sent_id, remaining)

        return await _until_answered(attempt, UPDATE_PATIENCE)

    async def _update_once(
        self,
        workflow_id: str,
        name: str,
        request: object,
        result_type: type[ResultT],
        update_id: str,
        patience: timedelta,
    ) -> ResultT:
        async with self._slots.taken(workflow_id, name, patience) as remaining:
            answer: ResultT = await self._handle(workflow_id).execute_update(
                name, request, id=update_id, result_type=result_type, rpc_timeout=remaining
            )
        return answer

    async def _update_with_start(
        self,
        session_id: str,
        state: SessionInput,
        name: str,
        request: object,
        result_type: type[ResultT],
        update_id: str,
        patience: timedelta,
    ) -> ResultT:
        start = self._session_start(session_id, state)
        try:
            async with self._slots.taken(session_id, name, patience) as remaining:
                answer: ResultT = await self.temporal.execute_update_with_start_workflow(
                    name,
                    request,
                    start_workflow_operation=start,
                    id=update_id,
                    result_type=result_type,
                    rpc_timeout=remaining,
                )
            return answer
        except BaseException:
            # The SDK keeps the failure in the operation as well, and complains when nobody looks at it there. Where it
            # failed before it was sent, nothing ever comes, hence no wait.
            with contextlib.suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(0):
                    await start.workflow_handle()
            raise

    async def _turns_of_closed(self, session_id: str) -> int:
        """Return how many turns an earlier session of this id took, so that the next one's ids do not meet them.

        Raises:
            Unavailable: there was one, and no worker answers for it.
        """
        try:
            snapshot: SessionSnapshot = await self.query(session_id, names.SNAPSHOT, SessionSnapshot)
        except NotFound:
            return 0
        except Unavailable as error:
            if isinstance(error.__cause__, WorkflowQueryFailedError):
                return 0  # It failed before it was anything.
            raise
        return snapshot.turns_submitted

    async def signal(self, workflow_id: str, name: str, argument: object) -> None:
        """Signal a workflow; the same argument may arrive twice, so it carries an id of the sender's.

        Raises:
            NotFound: there is no such workflow, or it has ended.
            Unavailable: Temporal did not answer in time.
        """

        async def attempt(remaining: timedelta) -> None:
            await self._handle(workflow_id).signal(name, argument, rpc_timeout=remaining)

        await _until_answered(attempt, UPDATE_PATIENCE)

    async def query(
        self,
        workflow_id: str,
        name: str,
        result_type: Any,
        *arguments: object,
        patience: timedelta | None = None,
    ) -> Any:
        """Ask a workflow, open or closed.

        A query that a worker lets drop (when it evicts the workflow at that moment) is never answered, so it is asked
        again after a while, and each time given twice as long.

        Raises:
            NotFound: there is no such workflow.
            Unavailable: no worker answered within `patience`, or this object's if none is given.
        """
        handle = self._handle(workflow_id)
        deadline = time.monotonic() + (patience or self._query_patience).total_seconds()
        attempt = FIRST_QUERY_ATTEMPT.total_seconds()
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(attempt, remaining)):
                        return await handle.query(name, args=arguments, result_type=result_type)
                attempt *= 2
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise NotFound("there is no such workflow") from error
            raise Unavailable(f"{workflow_id} could not be asked: {error.message}") from error
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            raise Unavailable(f"{workflow_id} could not answer: {error}") from error
        raise Unavailable(_NO_WORKER)

    async def messages(self, workflow_id: str) -> list[UIMessage]:
        """Return all messages that a workflow holds, page by page, the steps of a turn joined.

        Raises:
            NotFound: there is no such workflow.
            Unavailable: no worker answered.
        """
        messages: list[UIMessage] = []
        total, revision = 1, None
        while len(messages) < total:
            request = MessagesInput(after=len(messages))
            page: MessagesPage = await self.query(workflow_id, names.MESSAGES, MessagesPage, request)
            if revision is not None and page.revision != revision:
                messages, total, revision = [], 1, None  # Cleared meanwhile: from the beginning.
                continue
            messages.extend(page.messages)
            total, revision = page.total if page.messages else 0, page.revision
        return merge_steps(messages)

    async def cancel(self, workflow_id: str, reason: str) -> None:
        """Ask a workflow to stop; without effect on one that has ended."""
        try:
            await self._handle(workflow_id).cancel(reason=reason, rpc_timeout=DESCRIBE_PATIENCE)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise Unavailable(f"{workflow_id} could not be cancelled: {error.message}") from error

    async def describe(self, workflow_id: str) -> WorkflowExecutionDescription:
        """Return what Temporal itself knows of a workflow; needs no worker.

        Raises:
            NotFound: there is no such workflow.
        """
        try:
            return await self._handle(workflow_id).describe(rpc_timeout=DESCRIBE_PATIENCE)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise NotFound("there is no such workflow") from error
            raise Unavailable(f"Temporal could not be asked: {error.message}") from error

    def _handle(self, workflow_id: str) -> WorkflowHandle[Any, Any]:
        return self.temporal.get_workflow_handle(workflow_id)

    def _session_start(self, session_id: str, state: SessionInput) -> WithStartWorkflowOperation[Any, Any]:
        agent_type, name = names.agent_and_name_of(session_id)
        return WithStartWorkflowOperation(
            names.AGENT_SESSION,
            state,
            id=session_id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=instance_attributes(session_id, agent_type),
            static_summary=f"{agent_type}: session {name}",
        )


async def _until_answered(attempt: Callable[[timedelta], Awaitable[ResultT]], patience: timedelta) -> ResultT:
    deadline = time.monotonic() + patience.total_seconds()
    pause = 0.02
    while (remaining := deadline - time.monotonic()) > 0:
        try:
            return await attempt(timedelta(seconds=remaining))
        except WorkflowUpdateFailedError as error:
            _raise_unless_aborted(error)
        except RPCError as error:
            _raise_unless_passing(error)
        except TimeoutError:
            break  # Others of this process have kept the workflow busy for all that time.
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            # The SDK raises this for a cancelled task too, which has to stay cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error
        await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)
    raise Unavailable(_NO_WORKER)


def _raise_unless_aborted(error: WorkflowUpdateFailedError) -> None:
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        raise Unavailable(str(cause)) from error
    if cause.type in _ABORTED_UPDATES:
        return
    raise REQUEST_ERRORS.get(cause.type or "", InvalidRequest)(cause.message) from error


def _raise_unless_passing(error: RPCError) -> None:
    if error.status == RPCStatusCode.NOT_FOUND:
        raise NotFound("there is no such workflow, or it has ended") from error
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        raise InvalidRequest(error.message) from error
    if error.status not in _PASSING:
        raise Unavailable(error.message) from error
