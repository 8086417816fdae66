"""An author's hooks are called as they are declared, and outputs are checked against what agent tools declare."""

from typing import Any

import pytest
from desk import Desk
from pydantic import JsonValue
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.agent_objects import AgentObjects
from activities.hook_calls import HookActivities
from activities.progress_reports import ProgressReporter
from activities.transcripts import TranscriptReader
from turnkeeper.agents import Agent
from turnkeeper.client import TurnkeeperClient
from turnkeeper.event_log.writer import EventWriter
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import MAX_ERROR_BYTES
from turnkeeper.runtime import AgentToolInputRequest
from turnkeeper.steps import CallHookInput, CheckOutputInput, HookResult, StepSource, ToolResult
from turnkeeper.tools import agent_tool
from turnkeeper.turns import TranscriptRef


class Scribe(Agent):
    """Has hooks that need their arguments' types, or the conversation."""

    async def format_agent_tool_input(self, input: JsonValue, request: AgentToolInputRequest) -> UIMessage:
        """Say which run it is."""
        return user_message(request.run_id, str(input))

    async def get_agent_tool_output(self, run_id: str) -> Any:
        """Give what is no JSON."""
        return 10**5_000 if run_id == "huge" else object()

    async def get_agent_tool_summary(self, run_id: str, output: JsonValue) -> str:
        """Quote the conversation."""
        return " / ".join([run_id, str(output), *(message.text for message in self.messages)])


class Editor(Agent):
    """Declares what a scribe's output is."""

    lines = agent_tool(Scribe, description="Write.", input=UIMessage, output=list[int])
    rates = agent_tool(Scribe, description="Write.", input=UIMessage, output=list[float])
    prose = agent_tool(Scribe, description="Write.", input=UIMessage)


@pytest.fixture
def hooks(temporal: Client, event_writer: EventWriter) -> HookActivities:
    """The activities, on a real client."""
    registry = AgentRegistry([Editor])
    client = TurnkeeperClient(temporal, registry)
    reporter = ProgressReporter(event_writer, client.requests)
    agents = AgentObjects(client, registry, reporter)
    return HookActivities(agents, TranscriptReader(client.requests), client.requests)


async def _call(
    hooks: HookActivities, hook: str, arguments: tuple[JsonValue, ...] = (), transcript: tuple[TranscriptRef, ...] = ()
) -> JsonValue:
    source = StepSource(workflow_id="t/Scribe/n/runs/r", instance="t/Scribe/n/runs/r", turn_id="r")
    call = CallHookInput(
        agent_type="Scribe", source=source, hook=hook, idempotency_key="k", arguments=arguments, transcript=transcript
    )
    result: HookResult = await ActivityEnvironment().run(hooks.call_hook, call)
    return result.value


async def _check(hooks: HookActivities, tool_name: str, output: JsonValue) -> ToolResult:
    check = CheckOutputInput(agent_type="Editor", tool_name=tool_name, output=output)
    result: ToolResult = await ActivityEnvironment().run(hooks.check_output, check)
    return result


async def test_in_03_a_hook_gets_arguments_of_the_types_that_it_declares(hooks: HookActivities) -> None:
    """IN-03: what crossed the edge as JSON arrives as objects, and what it returns crosses as JSON."""
    request: JsonValue = {"runId": "r", "agentType": "Scribe"}
    value = await _call(hooks, "format_agent_tool_input", ({"a": None}, request))
    assert value == user_message("r", "{'a': None}").model_dump(mode="json")


async def test_rf_14_a_hook_that_looks_back_sees_the_conversation(hooks: HookActivities, desk: Desk) -> None:
    """RF-14, RF-19: the messages that the call refers to, and none where it refers to none."""
    await desk.ask("Echo", "hello")
    described = await desk.temporal.get_workflow_handle(desk.session_id("Echo")).describe()
    assert described.run_id
    ref = TranscriptRef(workflow_id=desk.session_id("Echo"), first_temporal_run_id=described.run_id, length=2)
    summary = await _call(hooks, "get_agent_tool_summary", ("r", None), (ref,))
    assert summary == "r / None / hello / you said: hello"
    assert await _call(hooks, "get_agent_tool_summary", ("r", 1)) == "r / 1"


async def test_field_33_a_hook_that_returns_what_is_no_json_fails_for_good(hooks: HookActivities) -> None:
    """Field case 33: no endless retry; the text names the hook."""
    with pytest.raises(ApplicationError, match=r"Scribe\.get_agent_tool_output returned what is not JSON") as raised:
        await _call(hooks, "get_agent_tool_output", ("r",))
    assert raised.value.non_retryable


async def test_only_hooks_can_be_called(hooks: HookActivities) -> None:
    """A history names the method; nothing else of the author's is reachable that way."""
    with pytest.raises(ApplicationError, match="'run_agent_tool' is not a hook") as raised:
        await _call(hooks, "run_agent_tool")
    assert raised.value.non_retryable


async def test_rf_08_an_output_that_fits_is_passed_on_as_declared(hooks: HookActivities) -> None:
    """RF-07, RF-08: validated where a type is declared, untouched where none is, or where the tool is gone."""
    assert await _check(hooks, "lines", [1, "2"]) == ToolResult(output=[1, 2])
    assert await _check(hooks, "prose", [1, "2"]) == ToolResult(output=[1, "2"])
    assert await _check(hooks, "gone", None) == ToolResult(output=None)


@pytest.mark.parametrize("output", [None, {}, ["x"]])
async def test_rf_09_an_output_that_does_not_fit_is_an_error_that_names_the_tool(
    hooks: HookActivities, output: JsonValue
) -> None:
    """RF-09, RF-10: the parent's model reads it."""
    result = await _check(hooks, "lines", output)
    assert result.output is None
    assert (result.error or "").startswith("The sub-agent's output is not what lines declares: ")


async def test_rf_10_an_output_with_many_mistakes_is_a_short_error(hooks: HookActivities) -> None:
    """RF-10: an error about a huge output is not huge itself."""
    result = await _check(hooks, "lines", ["x"] * 5_000)
    assert result.error
    assert len(result.error.encode()) <= MAX_ERROR_BYTES


async def test_field_33_a_number_that_json_lacks_is_an_error_where_the_declared_type_makes_one(
    hooks: HookActivities,
) -> None:
    """Field case 33: the text `nan` is a number to pydantic, and would reach the model as null."""
    result = await _check(hooks, "rates", ["nan"])
    assert (result.output, bool(result.error)) == (None, True)


async def test_field_33_a_hook_that_returns_a_huge_integer_fails_for_good(hooks: HookActivities) -> None:
    """Field case 33: what is written into a history must be read again."""
    with pytest.raises(ApplicationError, match="returned what is not JSON"):
        await _call(hooks, "get_agent_tool_output", ("huge",))
