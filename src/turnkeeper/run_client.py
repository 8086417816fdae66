"""The part of the client that concerns agent-tool runs."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import WorkflowFailureError

from turnkeeper import names
from turnkeeper.dispatches import (
    USUAL_WINDOWS,
    AgentProfile,
    CancelRunInput,
    ClearRunsInput,
    DispatchRunInput,
    DispatchRunResult,
    ReattachWindows,
)
from turnkeeper.errors import Conflict, InvalidRequest, MilestoneMissed, NotFound, TooLarge, Unavailable
from turnkeeper.json_values import clean_json
from turnkeeper.messages import UIMessage
from turnkeeper.outcomes import result_from_failure
from turnkeeper.reattachment import GAVE_UP_TEXTS, result_within
from turnkeeper.runs import (
    END_STATUSES,
    AgentToolMilestone,
    AgentToolResult,
    AgentToolRunHandle,
    AgentToolRunInfo,
    AgentToolRunInspection,
    RunStatus,
    compact_json,
    input_digest,
    run_id_taken,
)
from turnkeeper.turns import MAX_INPUT_BYTES, SessionSnapshot
from turnkeeper.workflow_requests import DISPATCH_PATIENCE, WorkflowRequests

FIRST_LOOK_PAUSE = timedelta(milliseconds=100)
LONGEST_LOOK_PAUSE = timedelta(seconds=2)
"""Between two looks at a run of which a milestone is awaited: a query costs a worker a moment, and no history."""

RunPath = tuple[str, ...]
"""Run ids from an instance down to a run; the innermost is last."""


class RunClient:
    """Dispatches, follows and inspects runs; always through the registry of the instance that owns them (DG-03)."""

    def __init__(self, requests: WorkflowRequests) -> None:
        """Send through `requests`."""
        self._requests = requests

    async def dispatch(self, session_id: str, profile: AgentProfile, request: DispatchRunInput) -> DispatchRunResult:
        """Start a run of an instance; the same run id again is the same run.

        Args:
            session_id: the instance's workflow id.
            profile: the instance's agent, in case that it does not exist yet.
            request: the run.

        Returns:
            Where the run is, once it has started; or its result, if it was refused or had ended.

        Raises:
            Conflict: the run id belongs to a run of another agent type or with another input (DI-16).
            InvalidRequest: the input or the preview holds a number that JSON lacks, or is nested too deep.
            TooLarge: the input is over `MAX_INPUT_BYTES`.
            Unavailable: nobody answered; dispatch again with the same run id.
        """
        request = _checked(request)
        dispatched = await self._requests.update_session(
            session_id, profile, names.DISPATCH_RUN, request, DispatchRunResult
        )
        dispatched = await self._without_needless_refusal(dispatched)
        if dispatched.result is None:
            await self._check_same_run(
                dispatched.workflow_id, request.run_id, request.profile.agent_type, input_digest(request.input)
            )
        return dispatched

    async def dispatch_detached(self, session_id: str, request: DispatchRunInput) -> AgentToolRunHandle:
        """Start a run of a session's tree that nobody awaits; returns when it is recorded and has started (DD-01).

        Raises:
            Conflict: the run id belongs to a run of another agent type or with another input (DI-16).
            InvalidRequest: the input or the preview cannot be passed on, or notices are asked for a run's own run.
            NotFound: the session has ended.
            TooLarge: the input is over `MAX_INPUT_BYTES`.
            Unavailable: nobody answered; dispatch again with the same run id.
        """
        options = request.detached
        if request.owner is not None and options is not None and (options.notify_source or options.milestones):
            raise InvalidRequest("notify and on_milestones need a conversation that goes on, and a run is one turn")
        request = _checked(request)
        dispatched = await self._requests.update(
            session_id, names.DISPATCH_RUN, request, DispatchRunResult, DISPATCH_PATIENCE
        )
        refusal = dispatched.result if dispatched.refused else None
        status = dispatched.status
        if status is None:
            # A turn holds its row, or it was cleared; the run itself knows whether it has ended (DI-13).
            ended = await self.ended(dispatched.workflow_id)
            status = ended.status if ended else "running"
        return AgentToolRunHandle(
            run_id=request.run_id,
            agent_type=request.profile.agent_type,
            status=status,
            error=refusal.error if refusal else None,
        )

    async def run_from(
        self, workflow_id: str, request: DispatchRunInput, windows: ReattachWindows | None
    ) -> AgentToolResult:
        """Dispatch a run on the turn, run or session that the caller belongs to, and wait for its end.

        One that somebody else had dispatched is waited for within `windows` (DI-09).

        Raises:
            Conflict: the run id belongs to a run of another agent type or with another input (DI-16).
            InvalidRequest: the input or the preview holds a number that JSON lacks, or is nested too deep.
            TooLarge: the input is over `MAX_INPUT_BYTES`.
        """
        request = _checked(request)
        dispatched = await self._requests.update(
            workflow_id, names.DISPATCH_RUN, request, DispatchRunResult, DISPATCH_PATIENCE
        )
        dispatched = await self._without_needless_refusal(dispatched)
        if dispatched.result is not None and dispatched.result.status != "completed":
            return dispatched.result
        digest = input_digest(request.input)
        await self._check_same_run(dispatched.workflow_id, request.run_id, request.profile.agent_type, digest)
        if dispatched.joined:
            return await self.join(dispatched.workflow_id, request.run_id, request.profile.agent_type, digest, windows)
        return await self._result(dispatched.workflow_id, request.run_id, request.profile.agent_type)

    async def join(
        self,
        workflow_id: str,
        run_id: str,
        agent_type: str,
        digest: str,
        windows: ReattachWindows | None,
        waited: timedelta = timedelta(),
    ) -> AgentToolResult:
        """Wait for the end of a run that somebody else dispatched, as long as it shows signs of life (DI-09, RC-05).

        Args:
            workflow_id: the run.
            run_id: its id.
            agent_type: its agent.
            digest: the fingerprint of its input.
            windows: how long to wait, if not as long as usual; one that is used up gives `interrupted`, and the reason.
            waited: how long it was waited for before, by an attempt that was lost.

        Raises:
            Conflict: it is of another agent type or has another input (DI-16).
            NotFound: there is no such run.
        """
        await self._check_same_run(workflow_id, run_id, agent_type, digest)
        waiting = self._result(workflow_id, run_id, agent_type)
        result = await result_within(self._requests, workflow_id, windows or USUAL_WINDOWS, waiting, waited)
        if isinstance(result, AgentToolResult):
            return result
        if result == "window-exceeded":
            await self._requests.cancel(workflow_id, GAVE_UP_TEXTS[result])
        return AgentToolResult(
            run_id=run_id,
            agent_type=agent_type,
            status="interrupted",
            error=GAVE_UP_TEXTS[result],
            reason=result,
            child_still_running=result == "no-progress",
        )

    async def wait(self, session_id: str, path: RunPath) -> AgentToolResult:
        """Wait for the end of a run.

        Raises:
            NotFound: it is not in the registry of its parent.
            Unavailable: no worker answered.
        """
        info, workflow_id = await self._find(session_id, path)
        return await self._result(workflow_id, info.run_id, info.agent_type)

    async def registered(self, session_id: str, parents: RunPath = ()) -> list[AgentToolRunInfo]:
        """Return the registry of an instance, or of one of its runs, oldest first.

        Raises:
            NotFound: no such instance, or a parent is not in its own parent's registry.
            Unavailable: no worker answered.
        """
        if not parents:
            return await self._session_rows(session_id)
        _, workflow_id = await self._find(session_id, parents)
        return await self._rows(workflow_id)

    async def info(self, session_id: str, path: RunPath) -> AgentToolRunInfo:
        """Return the registry row of a run.

        Raises:
            NotFound: there is none.
            Unavailable: no worker answered.
        """
        info, _ = await self._find(session_id, path)
        return info

    async def inspect(self, session_id: str, path: RunPath) -> AgentToolRunInspection | None:
        """Return what a run says of itself; None while it is not known yet, which is not a failure (IC-01).

        Raises:
            NotFound: it is not in the registry of its parent.
            Unavailable: no worker answered.
        """
        _, workflow_id = await self._find(session_id, path)
        try:
            inspection: AgentToolRunInspection = await self._requests.query(
                workflow_id, names.INSPECT, AgentToolRunInspection
            )
        except NotFound:
            return None
        return inspection

    async def messages(self, session_id: str, path: RunPath) -> list[UIMessage]:
        """Return the transcript of a run, with the step that it is at (DG-06, IC-21).

        Raises:
            NotFound: it is not in the registry of its parent.
            Unavailable: no worker answered.
        """
        _, workflow_id = await self._find(session_id, path)
        return await self._requests.messages(workflow_id)

    async def ended(self, workflow_id: str) -> AgentToolResult | None:
        """Return how a run ended, or None while it goes on or cannot be asked (IC-01, IC-04).

        Raises:
            NotFound: Temporal does not know it: it has not begun, or was deleted.
        """
        try:
            description = await self._requests.describe(workflow_id)
            if description.close_time is None:
                return None
            agent_type = str((await description.memo()).get("agent_type"))
            return await self._result(workflow_id, names.run_id_of(workflow_id) or "", agent_type)
        except Unavailable:
            return None

    async def clear(
        self,
        session_id: str,
        above: RunPath = (),
        status: Sequence[RunStatus] = (),
        older_than: timedelta | None = None,
    ) -> int:
        """Remove runs from an instance's registry, or from that of one of its runs; returns how many (CL rows).

        Raises:
            NotFound: no such instance.
            Unavailable: nobody answered.
        """
        request = ClearRunsInput(owner="/runs/".join(above) or None, status=tuple(status), older_than=older_than)
        return await self._requests.update(session_id, names.CLEAR_RUNS, request, int)

    async def wait_for_milestone(
        self, session_id: str, path: RunPath, name: str, timeout: timedelta
    ) -> AgentToolMilestone:
        """Wait until a run reaches a milestone, or return it if it has (MS-11).

        Raises:
            MilestoneMissed: it did not in time, or ended or was given up without it.
            NotFound: there is no such run.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        run = "/runs/".join(path)
        pause = FIRST_LOOK_PAUSE.total_seconds()
        while True:
            info = await self.info(session_id, path)
            inspection = await self.inspect(session_id, path)
            for milestone in (inspection.milestones or ()) if inspection else ():
                if milestone.name == name:
                    return milestone
            if info.status in END_STATUSES or (inspection is not None and inspection.status in END_STATUSES):
                status = info.status if info.status in END_STATUSES or inspection is None else inspection.status
                raise MilestoneMissed(f"run {run} is {status} and did not reach {name!r}")
            if time.monotonic() >= deadline:
                raise MilestoneMissed(f"run {run} did not reach {name!r} within {timeout.total_seconds():g} s")
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 1.5, LONGEST_LOOK_PAUSE.total_seconds())

    async def cancel(self, session_id: str, path: RunPath, reason: str | None = None) -> None:
        """Cancel a run; without effect on one that has ended (CX-12).

        Raises:
            NotFound: it is not in the registry of its parent.
            Unavailable: no worker answered.
        """
        _, workflow_id = await self._find(session_id, path)
        watched = CancelRunInput(run_id="/runs/".join(path), reason=reason)
        if await self._requests.update(session_id, names.CANCEL_RUN, watched, bool):
            return
        request = CancelRunInput(run_id=path[-1], reason=reason)
        for owner in await self._possible_owners(session_id, path):
            # Told by its owner, so that who awaits the run gets the reason as well.
            with contextlib.suppress(NotFound):
                await self._requests.update(owner, names.CANCEL_RUN, request, bool)
        await self._requests.cancel(workflow_id, reason or "cancelled")

    async def _possible_owners(self, session_id: str, path: RunPath) -> list[str]:
        """Return the workflows that may have dispatched a run and be waiting for it."""
        if len(path) > 1:
            owner = session_id
            for run_id in path[:-1]:
                owner = names.run_workflow_id(owner, run_id)
            return [owner]
        snapshot: SessionSnapshot = await self._requests.query(session_id, names.SNAPSHOT, SessionSnapshot)
        turn = snapshot.active_turn_id
        return [] if turn is None else [names.turn_workflow_id(session_id, turn)]

    async def _find(self, session_id: str, path: RunPath) -> tuple[AgentToolRunInfo, str]:
        """Return a run's row and workflow id, having found each run on the way in its parent's registry."""
        rows = await self._session_rows(session_id)
        workflow_id = session_id
        for depth, run_id in enumerate(path, start=1):
            info = next((row for row in rows if row.run_id == run_id), None)
            if info is None:
                break
            workflow_id = names.run_workflow_id(workflow_id, run_id)
            if depth == len(path):
                return info, workflow_id
            rows = await self._rows(workflow_id)
        raise NotFound(f"there is no run {'/runs/'.join(path)!r}")

    async def _session_rows(self, session_id: str) -> list[AgentToolRunInfo]:
        """Return a session's registry with that of the turn that is going on, which keeps its own until it ends."""
        snapshot: SessionSnapshot = await self._requests.query(session_id, names.SNAPSHOT, SessionSnapshot)
        rows: dict[str, AgentToolRunInfo] = {}
        if snapshot.active_turn_id is not None:
            try:
                turn = names.turn_workflow_id(session_id, snapshot.active_turn_id)
                rows.update({row.run_id: row for row in await self._rows(turn)})
            except NotFound:
                pass  # The session has decided to start the turn, and Temporal has not recorded it yet.
        # Asked last, so that the rows of a turn that ended in between are not missed.
        rows.update({row.run_id: row for row in await self._rows(session_id)})
        return sorted(rows.values(), key=lambda row: row.started_at)

    async def _rows(self, workflow_id: str) -> list[AgentToolRunInfo]:
        rows: list[AgentToolRunInfo] = await self._requests.query(workflow_id, names.RUNS, list[AgentToolRunInfo])
        return rows

    async def _without_needless_refusal(self, dispatched: DispatchRunResult) -> DispatchRunResult:
        """Return an answer without its refusal where the run exists already, so that nothing has to start (DI-14).

        The dispatcher cannot know of runs that earlier turns dispatched; Temporal does.
        """
        if not dispatched.refused:
            return dispatched
        try:
            await self._requests.describe(dispatched.workflow_id)
        except NotFound:
            return dispatched
        return dispatched.model_copy(update={"refused": False, "result": None})

    async def _check_same_run(self, workflow_id: str, run_id: str, agent_type: str, digest: str) -> None:
        memo = await (await self._requests.describe(workflow_id)).memo()
        if (memo.get("agent_type"), memo.get("input_digest")) != (agent_type, digest):
            raise Conflict(run_id_taken(run_id, str(memo.get("agent_type"))))

    async def _result(self, workflow_id: str, run_id: str, agent_type: str) -> AgentToolResult:
        handle = self._requests.temporal.get_workflow_handle(workflow_id, result_type=AgentToolResult)
        try:
            result: AgentToolResult = await handle.result()
            return result
        except WorkflowFailureError as failure:
            ended = result_from_failure(failure.cause, run_id=run_id, agent_type=agent_type)
        if ended.status != "aborted":
            return ended
        try:
            # A cancelled workflow's closing event has no room for the reason.
            inspection: AgentToolRunInspection = await self._requests.query(
                workflow_id, names.INSPECT, AgentToolRunInspection
            )
        except Unavailable:
            return ended
        return ended.model_copy(update={"error": inspection.error or ended.error})


def _checked(request: DispatchRunInput) -> DispatchRunInput:
    try:
        value = clean_json(request.input, "the input")
        preview = clean_json(request.input_preview, "the preview")
    except (RecursionError, ValueError) as error:
        raise InvalidRequest(f"the input cannot be passed on: {error}") from error
    size = len(compact_json(value).encode())
    if size > MAX_INPUT_BYTES:
        raise TooLarge(f"the input is {size:,} bytes, over the limit of {MAX_INPUT_BYTES:,}")
    return request.model_copy(update={"input": value, "input_preview": preview})
