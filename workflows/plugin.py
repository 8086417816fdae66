"""The one Temporal plugin that every client, worker and replayer of Turnkeeper uses."""

import dataclasses
from pathlib import Path

from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from turnkeeper.errors import TurnkeeperError
from turnkeeper.payloads import data_converter
from workflows.agent_tool_run import AgentToolRun
from workflows.options import FAILURE_TYPES
from workflows.session import AgentSession
from workflows.turn import AgentTurn

PASSED_THROUGH = ("activities", "docstring_parser", "pydantic", "pydantic_core", "turnkeeper", "workflows")
"""Modules that the sandbox does not import anew for each workflow.

All of them are pure on import. Passing ours through costs 5 ms of CPU a workflow instead of 15.
"""

WORKFLOWS = (AgentSession, AgentTurn, AgentToolRun)


class TurnkeeperPlugin(SimplePlugin):
    """Brings the data converter, the workflows, the sandbox's pass-through and the failure types."""

    def __init__(self, payloads_dir: Path) -> None:
        """Configure a client, worker or replayer.

        Args:
            payloads_dir: where large payloads are kept; the same for all processes of a deployment.
        """
        super().__init__(
            "turnkeeper",
            data_converter=data_converter(payloads_dir),
            workflows=WORKFLOWS,
            workflow_runner=_pass_through,
            workflow_failure_exception_types=[TurnkeeperError, *FAILURE_TYPES],
        )


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        restrictions = runner.restrictions.with_passthrough_modules(*PASSED_THROUGH)
        return dataclasses.replace(runner, restrictions=restrictions)
    raise ValueError("the workflow sandbox must stay on")
