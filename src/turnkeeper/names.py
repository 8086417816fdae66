"""Workflow ids, task queues and registered names: the only code that formats or parses them.

A workflow id is the path of its resource, so an id copied from the Temporal UI can be pasted behind the API's address:

    {tenant}/{agent}/{name}                       an instance's session
    {tenant}/{agent}/{name}/turns/{turn_id}       one of its turns
    {tenant}/{agent}/{name}/runs/{run_id}         an agent-tool run that it dispatched, itself an instance
"""

import re
from hashlib import blake2b

from turnkeeper.wire import NAME_PATTERN

DEFAULT_TENANT = "default"
DEFAULT_TASK_QUEUE = "turnkeeper"

AGENT_SESSION = "AgentSession"
AGENT_TURN = "AgentTurn"
AGENT_TOOL_RUN = "AgentToolRun"

SUBMIT = "submit"
CANCEL_TURN = "cancel_turn"
DISPATCH_RUN = "dispatch_run"
CANCEL_RUN = "cancel_run"
CLEAR_RUNS = "clear_runs"
CLEAR_MESSAGES = "clear_messages"
SET_STATE = "set_state"
STEER = "steer"

REPORT = "report"
WRAP_UP = "wrap_up"
RUN_REPORTED = "run_reported"
RUN_FINISHED = "run_finished"

SNAPSHOT = "snapshot"
MESSAGES = "messages"
TURN = "turn"
RUNS = "runs"
INSPECT = "inspect"
STATE = "state"

CALL_MODEL = "call_model"
CALL_TOOL = "call_tool"
CALL_HOOK = "call_hook"
CHECK_OUTPUT = "check_output"
ATTACH_RUN = "attach_run"
READ_STOPPED_TURN = "read_stopped_turn"
PUBLISH = "publish"
INSPECT_RUNS = "inspect_runs"
DISPATCH_DETACHED = "dispatch_detached"
POST_WEBHOOK = "post_webhook"
DISPATCH_FOR_AUTHOR = "dispatch_for_author"
CANCEL_FOR_AUTHOR = "cancel_for_author"

TENANT_ATTRIBUTE = "TurnkeeperTenant"
AGENT_ATTRIBUTE = "TurnkeeperAgent"
INSTANCE_ATTRIBUTE = "TurnkeeperInstance"
RUN_ID_ATTRIBUTE = "TurnkeeperRunId"
PARENT_RUN_ID_ATTRIBUTE = "TurnkeeperParentRunId"
OUTCOME_ATTRIBUTE = "TurnkeeperOutcome"

RUN_TURN = "0"
"""The turn id of a run's own turn: a run is turn 0 of the instance that it is."""

TOOL_NAME_PATTERN = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
"""What every provider accepts as a tool's name (field case 14)."""

_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Tell whether `text` can be an instance name or an id."""
    return _NAME.fullmatch(text) is not None


def session_workflow_id(tenant: str, agent_type: str, name: str) -> str:
    """Return the workflow id of an instance's session."""
    return f"{tenant}/{agent_type}/{name}"


def turn_workflow_id(instance: str, turn_id: str) -> str:
    """Return the workflow id of one turn of `instance`."""
    return f"{instance}/turns/{turn_id}"


def run_workflow_id(instance: str, run_id: str) -> str:
    """Return the workflow id of an agent-tool run that `instance` dispatched."""
    return f"{instance}/runs/{run_id}"


def model_run_id(turn_id: str, step: int, position: int) -> str:
    """Return the run id of a model-chosen agent tool call: the same at every attempt (DI-20)."""
    return f"{turn_id}-{step}-{position}"


def assistant_message_id(turn_id: str) -> str:
    """Return the id of the assistant message that a turn writes."""
    return f"turn-{turn_id}"


def generated_run_id(idempotency_key: str, work: str, ordinal: int) -> str:
    """Return the 12-character run id of a dispatch that names none (DI-01).

    It is derived from the tool or hook call and the work, so that a call which is tried again after a crash meets its
    first run again instead of starting the work a second time.

    Args:
        idempotency_key: the call's.
        work: what tells the dispatches of one call apart: the agent and its input.
        ordinal: counts dispatches of the very same work.
    """
    return blake2b(f"{idempotency_key}\n{work}\n{ordinal}".encode(), digest_size=6).hexdigest()


def tenant_of(workflow_id: str) -> str:
    """Return the tenant that a workflow id belongs to."""
    return workflow_id.split("/", 1)[0]


def agent_and_name_of(session_id: str) -> tuple[str, str]:
    """Return the agent type and the instance name in a session's workflow id."""
    _, agent_type, name = session_id.split("/")
    return agent_type, name


def root_instance(workflow_id: str) -> str:
    """Return the root instance that a session, turn or run belongs to, which is its session's workflow id."""
    return "/".join(workflow_id.split("/", 3)[:3])


def run_path_of(workflow_id: str) -> str | None:
    """Return the path of a run below its root instance, such as `a/runs/b`, or None if it is not a run."""
    path = workflow_id.removeprefix(f"{root_instance(workflow_id)}/runs/")
    return path if path != workflow_id and parse_run_path(path) is not None else None


def run_id_of(workflow_id: str) -> str | None:
    """Return the id of the innermost run on a workflow id's path, or None outside a run."""
    segments = workflow_id.split("/")[3:]
    ids = [value for kind, value in zip(segments[::2], segments[1::2], strict=False) if kind == "runs"]
    return ids[-1] if ids else None


def parse_run_path(path: str) -> list[str] | None:
    """Return the run ids in `a/runs/b/runs/c`, outermost first, or None when `path` is not such a path."""
    segments = path.split("/")
    if len(segments) % 2 == 0 or any(segment != "runs" for segment in segments[1::2]):
        return None
    run_ids = segments[::2]
    return run_ids if all(is_name(run_id) for run_id in run_ids) else None
