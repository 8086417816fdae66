"""Every time-out and retry policy of the workflows, once, with its reason."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, TypedSearchAttributes, WorkflowIDReusePolicy

from turnkeeper.dispatches import AgentProfile
from turnkeeper.steps import FunctionToolDispatch

HEARTBEAT_TIMEOUT = timedelta(seconds=20)
"""How soon a dead worker is noticed; `activities.heartbeats` says how soon a cancel is."""

MODEL_STEP_TIMEOUT = timedelta(minutes=10)
"""One attempt of a model step; reasoning models take minutes."""

HOOK_TIMEOUT = timedelta(minutes=5)
READ_TIMEOUT = timedelta(minutes=1)

PROGRESS_HOOK_TIMEOUT = timedelta(minutes=1)
"""A call of `on_progress`, its wait for a worker included."""

PUBLISH_TIMEOUT = timedelta(seconds=3)
"""The activity itself gives a log that does not answer up after a second."""

WEBHOOK_TIMEOUT = timedelta(seconds=30)
"""One attempt at a webhook, which the activity itself gives up sooner."""

ATTACH_TIMEOUT = timedelta(days=30)
"""Following a run that another execution started lasts as long as the run, within the namespace's retention."""

_MODEL_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=30),
    # Attempts also go to lost workers: enough for a provider's bad minute and two deploys, and then an end.
    maximum_attempts=6,
)
_HOOK_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10), maximum_attempts=4
)
_READ_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=30), maximum_attempts=20
)
_ATTACH_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=30),
    # Each deploy costs an attempt; a run may outlive many.
    maximum_attempts=1_000,
)


def model_step(profile: AgentProfile, step: int) -> workflow.ActivityConfig:
    """Return the options of one `call_model` activity."""
    return workflow.ActivityConfig(
        task_queue=profile.task_queue,
        start_to_close_timeout=MODEL_STEP_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_MODEL_RETRIES,
        # A cancelled turn ends at once; the activity learns of it through its heartbeat and closes the connection.
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=f"model {profile.model or profile.agent_type}, step {step}",
    )


def tool_call(profile: AgentProfile, tool_name: str, dispatch: FunctionToolDispatch) -> workflow.ActivityConfig:
    """Return the options of one `call_tool` activity."""
    return workflow.ActivityConfig(
        task_queue=profile.task_queue,
        start_to_close_timeout=dispatch.timeout,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=RetryPolicy(maximum_attempts=dispatch.attempts),
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=f"tool {tool_name}",
    )


def hook_call(profile: AgentProfile, hook: str) -> workflow.ActivityConfig:
    """Return the options of one call of an author's hook."""
    return workflow.ActivityConfig(
        task_queue=profile.task_queue,
        start_to_close_timeout=HOOK_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_HOOK_RETRIES,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=f"hook {hook}",
    )


def progress_hook(profile: AgentProfile, hook: str) -> workflow.ActivityConfig:
    """Return the options of `on_progress`: the next report will do, so it is soon given up, worker or not."""
    config = hook_call(profile, hook)
    config["schedule_to_close_timeout"] = PROGRESS_HOOK_TIMEOUT
    config["retry_policy"] = RetryPolicy(maximum_attempts=2)
    return config


def run_attachment(run_id: str) -> workflow.ActivityConfig:
    """Return the options of the activity that follows a run which this workflow did not start."""
    return workflow.ActivityConfig(
        start_to_close_timeout=ATTACH_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_ATTACH_RETRIES,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=f"follow run {run_id}",
    )


def publishing() -> workflow.ActivityConfig:
    """Return the options of telling the live log something; a log that does not take it is soon given up."""
    return workflow.ActivityConfig(
        start_to_close_timeout=PUBLISH_TIMEOUT,
        # A worker that was lost is made up for; a log that does not answer does not fail the activity.
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=3),
        summary="tell the live log",
    )


def publishing_own_course() -> workflow.LocalActivityConfig:
    """Return the options of the same as part of a workflow task, which must stay short."""
    return workflow.LocalActivityConfig(
        start_to_close_timeout=PUBLISH_TIMEOUT, retry_policy=RetryPolicy(maximum_attempts=1)
    )


def reconciliation() -> workflow.ActivityConfig:
    """Return the options of looking up runs that go on; a failure waits for the next time."""
    return workflow.ActivityConfig(
        start_to_close_timeout=HOOK_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=RetryPolicy(maximum_attempts=3),
        summary="look up runs",
    )


def webhook_attempt(run_id: str) -> workflow.ActivityConfig:
    """Return the options of one attempt to post a run's end; the session decides on further ones."""
    return workflow.ActivityConfig(
        start_to_close_timeout=WEBHOOK_TIMEOUT,
        # A worker that was lost may have posted it: the receiver knows the repeat by its id.
        retry_policy=RetryPolicy(maximum_attempts=3),
        summary=f"webhook of run {run_id}",
    )


def detached_dispatch(run_id: str) -> workflow.ActivityConfig:
    """Return the options of having the session start a detached run, which the same run id makes safe to try again."""
    return workflow.ActivityConfig(
        start_to_close_timeout=HOOK_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_READ_RETRIES,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=f"dispatch run {run_id}",
    )


def transcript_read(turn_id: str) -> workflow.ActivityConfig:
    """Return the options of the activity that saves what a stopped turn had written."""
    return workflow.ActivityConfig(
        start_to_close_timeout=READ_TIMEOUT, retry_policy=_READ_RETRIES, summary=f"read stopped turn {turn_id}"
    )


def awaited_child(
    workflow_id: str, attributes: TypedSearchAttributes, summary: str, memo: Mapping[str, str] | None = None
) -> workflow.ChildWorkflowConfig:
    """Return the options of a child that its parent waits for: it is cancelled with its parent."""
    return workflow.ChildWorkflowConfig(
        id=workflow_id,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        search_attributes=attributes,
        static_summary=summary,
        memo=memo,
    )


def abandoned_child(
    workflow_id: str, attributes: TypedSearchAttributes, summary: str, memo: Mapping[str, str]
) -> workflow.ChildWorkflowConfig:
    """Return the options of a child that outlives its parent and its parent's continue-as-new (field case 7)."""
    config = awaited_child(workflow_id, attributes, summary, memo)
    config["parent_close_policy"] = workflow.ParentClosePolicy.ABANDON
    return config


FAILURE_TYPES: Sequence[type[BaseException]] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""Exceptions that fail a workflow besides our own: a bug ends it instead of retrying its task for ever (field case 9).

Not `Exception`: a non-determinism error must wait for the rollback of the release that caused it.
"""
