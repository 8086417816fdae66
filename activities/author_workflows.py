"""The activities that Turnkeeper's workers offer to Temporal workflows of an author's own (`turnkeeper.workflow`)."""

from temporalio import activity

from activities.failures import final_failure
from activities.heartbeats import beating
from turnkeeper import names
from turnkeeper.author_dispatches import AuthorDispatchInput, AuthorDispatchResult, CancelAuthorRunInput
from turnkeeper.client import TurnkeeperClient
from turnkeeper.detached import options_of
from turnkeeper.dispatches import DetachedOptions, DispatchRunInput, DispatchRunResult
from turnkeeper.errors import NotFound, RequestError
from turnkeeper.json_values import clean_json
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import AgentToolRunHandle, input_digest


class AuthorWorkflowActivities:
    """Dispatches and cancels runs for workflows that have no client."""

    def __init__(self, client: TurnkeeperClient, registry: AgentRegistry) -> None:
        """Dispatch through `client` the agents of `registry`."""
        self._client = client
        self._registry = registry

    @activity.defn(name=names.DISPATCH_FOR_AUTHOR)
    async def dispatch_for_author(self, asked: AuthorDispatchInput) -> AuthorDispatchResult:
        """Start a run of an instance; the same run id again is the same run.

        Raises:
            ApplicationError: final, with the type of a `RequestError`, when the request was refused.
        """
        async with beating():
            try:
                return await self._dispatch(asked)
            except RequestError as error:
                raise final_failure(str(error), error.wire_type) from error

    async def _dispatch(self, asked: AuthorDispatchInput) -> AuthorDispatchResult:
        agent_type, name = asked.instance
        own = self._registry.get(agent_type)
        request = DispatchRunInput(
            run_id=asked.run_id,
            profile=self._registry.profile(asked.agent),
            input=asked.input,
            input_preview=asked.input_preview,
            display=asked.display,
            detached=None if asked.detached is None else options_of(own, asked.detached.detached),
        )
        session_id = self._client.session_id(agent_type, name)
        dispatched = await self._client.runs.dispatch(session_id, self._registry.profile(agent_type), request)
        return AuthorDispatchResult(
            workflow_id=dispatched.workflow_id,
            input_digest=input_digest(clean_json(asked.input)),
            joined=dispatched.joined,
            handle=_handle(request, request.detached, dispatched),
            result=None if dispatched.result is None or dispatched.result.status == "completed" else dispatched.result,
        )

    @activity.defn(name=names.CANCEL_FOR_AUTHOR)
    async def cancel_for_author(self, cancel: CancelAuthorRunInput) -> bool:
        """Cancel a run whose wait was cancelled; answers whether there was one."""
        async with beating():
            try:
                session_id = self._client.session_id(*cancel.instance)
                await self._client.runs.cancel(session_id, (cancel.run_id,), cancel.reason)
            except NotFound:
                return False
            return True


def _handle(
    request: DispatchRunInput, options: DetachedOptions | None, dispatched: DispatchRunResult
) -> AgentToolRunHandle | None:
    if options is None:
        return None
    return AgentToolRunHandle(
        run_id=request.run_id,
        agent_type=request.profile.agent_type,
        status=dispatched.status or "running",
        error=dispatched.result.error if dispatched.refused and dispatched.result else None,
    )
