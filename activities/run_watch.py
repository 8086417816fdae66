"""The activities that look at runs and turns from outside."""

from temporalio import activity

from activities.heartbeats import beating
from turnkeeper import names
from turnkeeper.client import TurnkeeperClient
from turnkeeper.errors import Conflict
from turnkeeper.steps import AttachRunInput, AttachRunResult
from turnkeeper.turns import TurnResult
from turnkeeper.workflow_requests import ACTIVITY_QUERY_PATIENCE


class RunWatchActivities:
    """Follows runs that the asking workflow did not start, and reads turns that were stopped."""

    def __init__(self, client: TurnkeeperClient) -> None:
        """Look through `client`."""
        self._client = client

    @activity.defn(name=names.ATTACH_RUN)
    async def attach_run(self, request: AttachRunInput) -> AttachRunResult:
        """Wait for a run's end; a run that is not the one asked for is a conflict, which is a result too."""
        async with beating():
            try:
                result = await self._client.runs.follow(
                    request.workflow_id, request.run_id, request.agent_type, request.input_digest
                )
            except Conflict as conflict:
                return AttachRunResult(conflict=str(conflict))
        return AttachRunResult(result=result)

    @activity.defn(name=names.READ_STOPPED_TURN)
    async def read_stopped_turn(self, workflow_id: str) -> TurnResult:
        """Return what a turn that failed, was cancelled or was terminated had added; closed workflows answer too."""
        result: TurnResult = await self._client.requests.query(
            workflow_id, names.TURN, TurnResult, patience=ACTIVITY_QUERY_PATIENCE
        )
        return result
