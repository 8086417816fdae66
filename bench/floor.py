"""The floor: the least that a hand-written Temporal workflow needs for a turn of the same shape.

A session workflow takes an update, runs a child workflow with one activity, and answers.
"""

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def answer(question: str) -> str:
    """Stand for a model call."""
    return f"an answer to {question}"


@workflow.defn
class FloorTurn:
    """One turn."""

    @workflow.run
    async def run(self, question: str) -> str:
        """Call the model."""
        return await workflow.execute_activity(answer, question, start_to_close_timeout=timedelta(seconds=10))


@workflow.defn
class Floor:
    """One session."""

    @workflow.run
    async def run(self) -> None:
        """Wait for ever."""
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def turn(self, question: str) -> str:
        """Take a turn."""
        return await workflow.execute_child_workflow(FloorTurn.run, question)


@workflow.defn
class Signalled:
    """Runs a local activity for each signal."""

    def __init__(self) -> None:
        """Begin without a signal."""
        self._waiting = 0

    @workflow.run
    async def run(self) -> None:
        """Take signals for ever."""
        while True:
            await workflow.wait_condition(lambda: self._waiting > 0)
            self._waiting -= 1
            await workflow.execute_local_activity("arrived", start_to_close_timeout=timedelta(seconds=5))

    @workflow.signal
    def ping(self) -> None:
        """Note a signal."""
        self._waiting += 1
