"""The activities that look at runs and turns from outside."""

from datetime import UTC, datetime

from temporalio import activity

from activities.heartbeats import beating
from turnkeeper import names
from turnkeeper.client import TurnkeeperClient
from turnkeeper.errors import Conflict, NotFound
from turnkeeper.outcomes import error_result
from turnkeeper.runs import AgentToolResult, AgentToolRunHandle
from turnkeeper.steps import (
    AttachRunInput,
    AttachRunResult,
    DispatchDetachedInput,
    InspectRunsInput,
    InspectRunsResult,
)
from turnkeeper.turns import TurnResult
from turnkeeper.workflow_requests import ACTIVITY_QUERY_PATIENCE

GONE = "The run's workflow was deleted from Temporal, and its result with it."


class RunWatchActivities:
    """Follows runs that the asking workflow did not start, and reads turns that were stopped."""

    def __init__(self, client: TurnkeeperClient) -> None:
        """Look through `client`."""
        self._client = client

    @activity.defn(name=names.ATTACH_RUN)
    async def attach_run(self, request: AttachRunInput) -> AttachRunResult:
        """Wait for a run within windows; one that is not the one asked for is a conflict, which is a result too."""
        async with beating():
            try:
                result = await self._client.runs.join(
                    request.workflow_id,
                    request.run_id,
                    request.agent_type,
                    request.input_digest,
                    request.windows,
                    waited=datetime.now(UTC) - activity.info().scheduled_time,
                )
            except Conflict as conflict:
                return AttachRunResult(conflict=str(conflict))
        return AttachRunResult(result=result)

    @activity.defn(name=names.INSPECT_RUNS)
    async def inspect_runs(self, request: InspectRunsInput) -> InspectRunsResult:
        """Return how runs ended that have; one that cannot be asked is not taken for failed (IC-01)."""
        results: list[AgentToolResult | None] = []
        for workflow_id in request.workflow_ids:
            activity.heartbeat()
            try:
                results.append(await self._client.runs.ended(workflow_id))
            except NotFound:
                results.append(error_result(names.run_id_of(workflow_id) or "", "", GONE))
        return InspectRunsResult(results=tuple(results))

    @activity.defn(name=names.DISPATCH_DETACHED)
    async def dispatch_detached(self, request: DispatchDetachedInput) -> AgentToolRunHandle:
        """Have a session start a detached run; the same run id again is the same run."""
        async with beating():
            return await self._client.runs.dispatch_detached(request.session_id, request.request)

    @activity.defn(name=names.READ_STOPPED_TURN)
    async def read_stopped_turn(self, workflow_id: str) -> TurnResult:
        """Return what a turn that failed, was cancelled or was terminated had added; closed workflows answer too."""
        result: TurnResult = await self._client.requests.query(
            workflow_id, names.TURN, TurnResult, patience=ACTIVITY_QUERY_PATIENCE
        )
        return result
