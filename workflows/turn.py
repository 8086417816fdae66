"""AgentTurn: one turn of an instance."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from turnkeeper import names
from turnkeeper.errors import TURN_FAILED
from turnkeeper.frames import TurnAborted, TurnError, TurnEvent, TurnFinished
from turnkeeper.messages import UIMessage, merge_steps
from turnkeeper.steps import PublishInput
from turnkeeper.turns import LoopState, TurnInput, TurnResult
from workflows.loop import ModelToolLoop, stop_reason
from workflows.publishing import publish_own_course


@workflow.defn(name=names.AGENT_TURN)
class AgentTurn(ModelToolLoop):
    """Answers the last message of an instance's transcript and returns the assistant's message."""

    @workflow.init
    def __init__(self, turn: TurnInput) -> None:
        """Begin the turn, or go on with it after a continue-as-new."""
        super().__init__(
            instance=turn.instance,
            turn_id=turn.turn_id,
            profile=turn.profile,
            depth=0,
            base=turn.transcript,
            open_elsewhere=turn.open_runs,
            state=turn.state,
            context=turn.context,
        )
        self._input = turn

    @workflow.run
    async def run(self, turn: TurnInput) -> TurnResult:
        """Take steps until the model answers.

        Raises:
            ApplicationError: of type `TurnFailed`, when no answer came about; what was written so far can be queried.
        """
        turn_id = turn.turn_id
        try:
            end = await self._take_steps()
        except asyncio.CancelledError:
            await self._runs.close(stop_reason())
            self._publish(TurnAborted(turn_id=turn_id, reason=stop_reason()))
            await self.all_told()
            raise
        await self._runs.close(stop_reason())
        failed = TurnError(turn_id=turn_id, error=end.error or "")
        self._publish(TurnFinished(turn_id=turn_id) if end.error is None else failed)
        await self.all_told()  # A cancel that comes this late changes nothing any more.
        if end.error is not None:
            raise ApplicationError(end.error, type=TURN_FAILED, non_retryable=True)
        return self.result()

    @workflow.query(name=names.TURN)
    def result(self) -> TurnResult:
        """Return what the turn has added so far."""
        steps: tuple[UIMessage, ...] = self._log.messages
        if self._open_step is not None:
            steps = (*steps, self._open_step)
        merged = merge_steps(steps)
        return TurnResult(
            message=merged[0] if merged else None, runs=self._runs.registry.records, context=self._context
        )

    def _publish(self, event: TurnEvent) -> None:
        source = workflow.info().workflow_id
        publish_own_course(PublishInput(source=source, settled=self._settled(), turn=event))

    def _continue_as_new(self, state: LoopState) -> None:
        workflow.continue_as_new(self._input.model_copy(update={"state": state}))
