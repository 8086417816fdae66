"""The activities that call an author's hooks, and check what agent tools declare."""

import inspect
from typing import Any, get_type_hints

from pydantic import JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError
from temporalio import activity

from activities.agent_objects import AgentObjects
from activities.failures import agents_known_here, final_failure
from activities.heartbeats import beating
from activities.transcripts import TranscriptReader
from turnkeeper import names
from turnkeeper.detached import callback_problem
from turnkeeper.errors import NotFound
from turnkeeper.json_values import clean_json
from turnkeeper.profiles import HOOKS
from turnkeeper.runs import shorten_error
from turnkeeper.steps import CallHookInput, CheckOutputInput, HookResult, ToolResult
from turnkeeper.tools import AgentTool
from turnkeeper.workflow_requests import WorkflowRequests

HOOK_FAILED = "HookFailed"


class HookActivities:
    """Runs the overridable methods of agents."""

    def __init__(self, agents: AgentObjects, transcripts: TranscriptReader, requests: WorkflowRequests) -> None:
        """Run the hooks of the agents that `agents` makes."""
        self._agents = agents
        self._requests = requests
        self._transcripts = transcripts

    @activity.defn(name=names.CALL_HOOK)
    async def call_hook(self, call: CallHookInput) -> HookResult:
        """Call one hook with arguments of the types that it declares.

        An exception of the author's is retried: hooks are for side effects, which may succeed the next time.
        """
        if not call.is_callback and call.hook not in HOOKS:
            raise final_failure(f"{call.hook!r} is not a hook", HOOK_FAILED)
        async with beating():
            if call.only_before is not None and await self._exists(call.only_before):
                return HookResult()
            messages = await self._transcripts.read(call.transcript)
            lent = self._agents.lend(call.agent_type, call.source, call.idempotency_key, messages=messages)
            async with lent as agent:
                if call.is_callback and (problem := callback_problem(type(agent), call.hook)) is not None:
                    # After a deploy: the delivery stays open until the name is back (DV-10 as decided).
                    raise final_failure(f"the callback {call.hook!r} cannot be called: {problem}", HOOK_FAILED)
                method = getattr(agent, call.hook)
                value = await method(*_typed(method, call.arguments))
        try:
            return HookResult(value=clean_json(TypeAdapter(Any).dump_python(value, mode="json")))
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            raise final_failure(
                f"{call.agent_type}.{call.hook} returned what is not JSON: {error}", HOOK_FAILED
            ) from error

    async def _exists(self, workflow_id: str) -> bool:
        try:
            await self._requests.describe(workflow_id)
        except NotFound:
            return False
        return True

    @activity.defn(name=names.CHECK_OUTPUT)
    async def check_output(self, check: CheckOutputInput) -> ToolResult:
        """Return a run's output as the parent's agent tool declares it, or say why it does not fit (RF-08 to RF-10)."""
        with agents_known_here():
            tool = self._agents.registry.get(check.agent_type).tools.get(check.tool_name)
        if not isinstance(tool, AgentTool) or tool.output_type is None:
            return ToolResult(output=check.output)
        try:
            valid = tool.output_type.validate_python(check.output)
            return ToolResult(output=clean_json(tool.output_type.dump_python(valid, mode="json")))
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            text = f"The sub-agent's output is not what {check.tool_name} declares: {error}"
            return ToolResult(error=shorten_error(text))


def _typed(method: Any, arguments: tuple[JsonValue, ...]) -> list[Any]:
    """Return JSON arguments as the types of the method's parameters; a parameter without a type takes JSON."""
    hints = get_type_hints(method)
    parameters = list(inspect.signature(method).parameters)
    return [
        TypeAdapter(hints.get(name, Any)).validate_python(argument)
        for name, argument in zip(parameters, arguments, strict=False)
    ]
