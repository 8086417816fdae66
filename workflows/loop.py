"""The model-tool loop that a turn and an agent-tool run share."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, RetryState, is_cancelled_exception

from activities.model_calls import ModelCallActivities
from turnkeeper import names
from turnkeeper.dispatches import AgentProfile, CancelRunInput, DispatchRunInput, DispatchRunResult, RunReported
from turnkeeper.errors import Conflict
from turnkeeper.events import Event
from turnkeeper.messages import ToolPart, UIMessage, close_open_calls, last_step, settle_call
from turnkeeper.outcomes import cancel_reason, failure_text
from turnkeeper.runs import AgentToolRunInfo
from turnkeeper.steps import (
    CallModelInput,
    Dispatch,
    FunctionToolDispatch,
    PublishInput,
    RefusedDispatch,
    SettledStep,
    StepResult,
    ToolResult,
)
from turnkeeper.turns import (
    ContextState,
    LoopState,
    MessagesInput,
    MessagesPage,
    ReportState,
    SteerInput,
    TranscriptRef,
    WrapUpInput,
)
from workflows import options
from workflows.awaited_runs import AwaitedRuns
from workflows.dispatch import carry_out
from workflows.guidance import Guidance
from workflows.message_pages import MessageLog
from workflows.publishing import PublishingWorkflow, publish
from workflows.run_starts import Dispatcher

LEFT_BEHIND = "the turn ended"
WRAPPING_UP = "nothing more is run, for the work is being wrapped up"

NO_LAST_ANSWER = "The work was to be wrapped up, and the model gave no last answer."

MAX_REFUSED_STEPS = 5
"""Steps in a row without a call that could be carried out; a model that goes on like that never gets anywhere."""

ONLY_REFUSED = f"In {MAX_REFUSED_STEPS} steps in a row the model made only calls that cannot be carried out."

WRAP_UP_GRACE = timedelta(seconds=30)
"""How long function tools that are under way may still take when a turn or run is asked to wrap up."""


@dataclass(frozen=True)
class LoopEnd:
    """How a loop ended: with an answer, or with what kept it from one."""

    error: str | None = None
    is_exhausted: bool = False
    """Whether a step failed at every attempt that it had."""


class ModelToolLoop(PublishingWorkflow):
    """Model step, tool calls, model step, until the model calls no tool.

    A base of workflow classes: it brings the messages that the loop adds, the registry of the runs that it awaits, and
    the handlers for both.
    """

    def __init__(
        self,
        *,
        instance: str,
        turn_id: str,
        profile: AgentProfile,
        depth: int,
        base: TranscriptRef | None,
        open_elsewhere: int,
        state: LoopState | None,
        silence_budget: timedelta | None = None,
        context: ContextState | None = None,
    ) -> None:
        """Begin, or go on from `state` after a continue-as-new."""
        info = workflow.info()
        self._profile = profile
        self._base = base
        self._message_id = names.assistant_message_id(turn_id)
        self._log = MessageLog(state.messages if state else ())
        self._open_step: UIMessage | None = None
        self._steps = state.steps if state else 0
        self._shown_step: int | None = self._steps - 1 if self._steps else None
        self._started_at = state.started_at if state else workflow.now()
        dispatcher = Dispatcher(info.workflow_id, instance, turn_id, profile, depth, silence_budget)
        self._runs = AwaitedRuns(dispatcher, state.runs if state else (), open_elsewhere)
        self._guidance = Guidance(state.guidance if state else None, self._message_id)
        self._context = (state.context if state else context) or ContextState()
        self._refused_steps = (state.refused_steps if state else None) or 0
        self._function_calls: dict[str, asyncio.Task[ToolPart]] = {}
        self._is_over = False

    @workflow.update(name=names.DISPATCH_RUN)
    async def dispatch_run(self, request: DispatchRunInput) -> DispatchRunResult:
        """Start an agent-tool run for one of this loop's tools or hooks; answers once it has started."""
        result = await self._runs.dispatch(request)
        workflow_id = names.run_workflow_id(self._runs.dispatcher.instance, request.run_id)
        return DispatchRunResult(
            run_id=request.run_id,
            workflow_id=workflow_id,
            result=result,
            refused=self._runs.registry.is_refused(request.run_id),
            joined=self._runs.is_joined(request.run_id),
        )

    @dispatch_run.validator
    def _check_dispatch(self, request: DispatchRunInput) -> None:
        self._runs.registry.find(request)

    @workflow.update(name=names.CANCEL_RUN)
    def cancel_run(self, request: CancelRunInput) -> bool:
        """Cancel one awaited run, whose caller then gets the aborted result (CX-13); answers whether it was open."""
        return self._runs.cancel(request.run_id, request.reason or "cancelled")

    @workflow.update(name=names.STEER)
    def steer(self, said: SteerInput) -> None:
        """Put a message before the model, with its next step; if it was about to end, it takes one more."""
        self._guidance.steer(said)

    @steer.validator
    def _check_steer(self, said: SteerInput) -> None:
        if self._is_over:
            raise Conflict("it has just ended; send a message to the agent instead")

    @workflow.signal(name=names.WRAP_UP)
    async def wrap_up(self, asked: WrapUpInput) -> None:
        """Finish with what there is: runs wrap up too, function tools have a while to end, one last answer follows."""
        if self._guidance.is_wrapping_up or self._is_over:
            return
        self._guidance.wrap_up(asked)
        await self._runs.wrap_up(asked)
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: not self._function_calls, timeout=WRAP_UP_GRACE)
        for call in self._function_calls.values():
            call.cancel()

    @workflow.signal(name=names.RUN_REPORTED)
    def run_reported(self, reported: RunReported) -> None:
        """Have `on_progress` hear of a run's report."""
        self._runs.progress_hooks.offer(reported)

    @workflow.query(name=names.MESSAGES)
    def messages(self, request: MessagesInput) -> MessagesPage:
        """Return the messages that this loop added: one a step, the open step last."""
        return self._log.page(request.after, self._open_step)

    @workflow.query(name=names.RUNS)
    def runs(self) -> list[AgentToolRunInfo]:
        """Return the registry of the runs that this loop dispatched, oldest first."""
        return [record.info for record in self._runs.registry.records]

    async def _take_steps(self) -> LoopEnd:
        end = await self._steps_to_an_end()
        if end.error is not None:
            self._publish_failure(end)
        return end

    async def _steps_to_an_end(self) -> LoopEnd:
        try:
            while (is_last := self._guidance.is_wrapping_up) or self._steps < self._profile.max_steps:
                self._take_guidance()
                step = await self._call_model(is_last)
                await self._finish_step(step)
                if is_last:
                    return LoopEnd(error=None if step.message.text else NO_LAST_ANSWER)
                if not step.dispatches and not self._guidance.is_waiting:
                    return LoopEnd()
                if self._refused_steps >= MAX_REFUSED_STEPS:
                    return LoopEnd(error=ONLY_REFUSED)
                await self._roll_over_if_long()
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            is_exhausted = error.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED
            return LoopEnd(error=failure_text(error), is_exhausted=is_exhausted)
        finally:
            self._is_over = True
            self._close_open_step()
        return LoopEnd(error=f"The agent stopped at its limit of {self._profile.max_steps} steps without an answer.")

    def _publish_failure(self, end: LoopEnd) -> None:
        """Tell that no answer came about (OE-12), and whether the attempts of a step were used up (OE-18)."""
        request = self._runs.dispatcher.turn_id
        failed: dict[str, JsonValue] = {"requestId": request, "stage": "turn", "error": end.error}
        events = [Event(type="chat:request:failed", payload={**failed, "messagesPersisted": bool(len(self._log))})]
        if end.is_exhausted:
            reason: dict[str, JsonValue] = {"requestId": request, "reason": "max_attempts_exceeded"}
            events.insert(0, Event(type="chat:recovery:exhausted", payload=reason))
        occasion = f"/failed-{self._steps}"
        publish(PublishInput(source=workflow.info().workflow_id, events=tuple(events), occasion=occasion))

    def _take_guidance(self) -> None:
        said = self._guidance.take()
        if said is not None:
            self._log.append(said)

    async def _call_model(self, is_last: bool) -> StepResult:
        request = CallModelInput(
            agent_type=self._profile.agent_type,
            source=self._runs.dispatcher.source(self._steps),
            transcript=self._transcript(),
            message_id=self._message_id,
            is_last=is_last,
            context=self._context,
        )
        step = await workflow.execute_activity_method(
            ModelCallActivities.call_model, request, **options.model_step(self._profile, self._steps)
        )
        self._context = ContextState(
            compaction=step.compaction or self._context.compaction,
            tokens=step.usage.input_tokens + step.usage.output_tokens,
        )
        is_refused = bool(step.dispatches) and all(isinstance(each, RefusedDispatch) for each in step.dispatches)
        self._refused_steps = self._refused_steps + 1 if is_refused else 0
        return step

    async def _finish_step(self, step: StepResult) -> None:
        """Carry out a step's calls, all at once, and add the step with their results to the transcript."""
        self._open_step = step.message
        self._shown_step = self._steps
        calls = [part for part in step.message.tool_parts if not part.is_settled]
        await asyncio.gather(
            *(
                self._carry_out(call, dispatch, position)
                for position, (call, dispatch) in enumerate(zip(calls, step.dispatches, strict=True))
            )
        )
        self._log.append(self._open_step)
        self._open_step = None
        self._steps += 1

    async def _carry_out(self, call: ToolPart, dispatch: Dispatch, position: int) -> None:
        """Carry out one call of the open step; its result counts from then on, whatever becomes of the others."""
        if self._guidance.is_wrapping_up:
            dispatch = RefusedDispatch(error=WRAPPING_UP)
        carrying = asyncio.create_task(carry_out(self._runs, call, dispatch, self._steps, position))
        if isinstance(dispatch, FunctionToolDispatch):
            self._function_calls[call.tool_call_id] = carrying
        try:
            settled = await carrying
        except (ActivityError, asyncio.CancelledError) as error:
            if not is_cancelled_exception(error) or workflow.cancellation_reason() is not None:
                raise
            settled = ToolResult(error=f"The call was stopped: {WRAPPING_UP}").settle(call)
        finally:
            self._function_calls.pop(call.tool_call_id, None)
        if self._open_step is not None:
            self._open_step = settle_call(self._open_step, settled)

    def _close_open_step(self) -> None:
        """Give the calls of a step that was cut short their results, so that the transcript stays valid."""
        if self._open_step is not None:
            reason = f"The call was stopped: {stop_reason()}."
            self._log.append(close_open_calls(self._open_step, reason))
            self._open_step = None

    def _settled(self) -> SettledStep | None:
        """Return the last step, all of whose calls have results by now, for the live log."""
        step = last_step(self._log.messages)
        if self._shown_step is None or step is None:
            return None
        return SettledStep(step=self._shown_step, calls=tuple(step.tool_parts))

    def _transcript(self) -> tuple[TranscriptRef, ...]:
        own = TranscriptRef(
            workflow_id=workflow.info().workflow_id,
            first_temporal_run_id=workflow.info().first_execution_run_id,
            length=len(self._log),
        )
        return tuple(ref for ref in (self._base, own) if ref is not None and ref.length)

    async def _roll_over_if_long(self) -> None:
        if workflow.info().is_continue_as_new_suggested() and not self._runs.registry.open_count:
            # One wait for all of it, after which nothing comes in between: what would be noted then would be lost.
            await workflow.wait_condition(self._is_quiet)
            self._continue_as_new(
                LoopState(
                    messages=self._log.messages,
                    steps=self._steps,
                    runs=self._runs.registry.records,
                    reports=self._report_state(),
                    guidance=self._guidance.state,
                    context=self._context,
                    refused_steps=self._refused_steps or None,
                    started_at=self._started_at,
                )
            )

    def _is_quiet(self) -> bool:
        """Tell whether nothing is under way that a continue-as-new would cut off."""
        return workflow.all_handlers_finished() and not self._runs.progress_hooks.is_busy and not self.untold

    def _report_state(self) -> ReportState | None:
        """Return what a continue-as-new carries of reports; a turn has none."""
        return None

    def _continue_as_new(self, state: LoopState) -> None:
        """Start this workflow anew with `state`; each workflow knows its own input."""
        raise NotImplementedError


def stop_reason() -> str:
    """Return why what is still open has to stop."""
    given = workflow.cancellation_reason()
    return LEFT_BEHIND if given is None else cancel_reason(given)
