"""`make demo`: the whole stack, two scenes watched live, and what to try next."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from urllib.parse import quote

import httpx
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from deploy.local_stack import LocalStack, local_stack, run_until
from examples.research_desk.timeline import WIDTH, Timeline
from turnkeeper.errors import TurnkeeperError
from turnkeeper.http_answers import Run, Turn
from turnkeeper.http_client import HttpClient
from turnkeeper.messages import TextPart, UIMessage
from turnkeeper.settings import Settings
from turnkeeper.watch_tree import printable

AGENT, NAME = "Assistant", "demo"
COMPARISON = "Compare pydantic and attrs"
IMPORT = "Import the records into demo.db"
MEANWHILE = "Research rich"

LAST_FRAMES_PATIENCE = timedelta(seconds=3)
"""How long the timeline waits for the rest of a turn that has ended: what shows live may be lost, the turn is not."""

IMPORT_PATIENCE = timedelta(minutes=5)
"""How long the import may take; its budget is the same."""

POLL_SECONDS = 0.2


class DemoFailed(Exception):
    """The demo did not come to what it is to show."""


@asynccontextmanager
async def shown(client: HttpClient, timeline: Timeline) -> AsyncIterator[None]:
    """Print what happens while the body runs."""

    async def show() -> None:
        async with aclosing(client.events(AGENT, NAME)) as events:
            async for _, frame in events:
                timeline.show(frame)

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def finish(client: HttpClient, turn: Turn, timeline: Timeline) -> Turn:
    """Wait until a turn has ended, and until the timeline has shown it.

    Raises:
        DemoFailed: the turn failed.
    """
    ended = await client.wait(AGENT, NAME, turn.turn_id)
    with suppress(TimeoutError):
        await asyncio.wait_for(timeline.has_shown_the_end_of(turn), LAST_FRAMES_PATIENCE.total_seconds())
    if ended.status != "completed":
        raise DemoFailed(f"turn {ended.turn_id} failed: {ended.error or ended.status}")
    return ended


async def compare(client: HttpClient, console: Console) -> Sequence[str]:
    """Show two researchers at work under one call; returns the workflow ids of what took part."""
    turn = await ask(client, console, COMPARISON)
    timeline = Timeline(console, AGENT, turn)
    async with shown(client, timeline):
        turn = await finish(client, turn, timeline)
    print_answer(console, turn.message)
    runs = await runs_of(client, turn)
    return [turn.workflow_id, *(run.workflow_id for run in runs)]


async def work_in_the_background(client: HttpClient, console: Console) -> Sequence[str]:
    """Show an import that goes on while another question is answered; returns the workflow ids of what took part.

    Raises:
        DemoFailed: a turn failed, or the end of the import was not told.
    """
    turn = await ask(client, console, IMPORT)
    timeline = Timeline(console, AGENT, turn)
    async with shown(client, timeline):
        turn = await finish(client, turn, timeline)
        (run,) = await runs_of(client, turn)
        console.print(f"\n[bold]You:[/bold] {MEANWHILE}\n")
        await finish(client, await client.submit(AGENT, NAME, MEANWHILE), timeline)
        notice = await turn_about(client, run)
        reaction = await finish(client, notice, timeline)
    messages = await client.messages(AGENT, NAME)
    if not any(message.id == f"detached-ms:{run.run_id}:schema-ready" for message in messages):
        raise DemoFailed("the conversation did not hear of the milestone schema-ready")
    print_answer(console, reaction.message)
    return [run.workflow_id, reaction.workflow_id]


async def ask(client: HttpClient, console: Console, question: str) -> Turn:
    """Submit a question."""
    turn = await client.submit(AGENT, NAME, question)
    console.print(f"[bold]You:[/bold] {question}\n")
    return turn


async def turn_about(client: HttpClient, run: Run) -> Turn:
    """Return the turn that the model takes on the end of a detached run, as soon as there is one.

    Raises:
        DemoFailed: there is none in time.
    """
    try:
        async with asyncio.timeout(IMPORT_PATIENCE.total_seconds()):
            while True:
                for turn in await client.turns(AGENT, NAME):
                    if (turn.message_id or "").startswith(f"detached-finish:{run.run_id}:"):
                        return turn
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise DemoFailed(f"nobody told of the end of run {run.run_id}") from error


async def runs_of(client: HttpClient, turn: Turn) -> list[Run]:
    """Return the runs that were dispatched since a turn began, in the order in which they are to be shown."""
    runs = await client.runs(AGENT, NAME)
    begun = [run for run in runs if turn.started_at is not None and run.started_at >= turn.started_at]
    return sorted(begun, key=lambda run: run.display_order)


async def run_demo(stack: LocalStack, console: Console) -> None:
    """Play the two scenes, and print what to look at.

    Raises:
        DemoFailed: it did not come to what it is to show.
    """
    model = os.environ.get("TURNKEEPER_MODEL")
    console.print(f"Model: {model or 'the offline model, a set of rules (set TURNKEEPER_MODEL for a real one)'}")
    async with HttpClient(stack.api_url) as client:
        console.rule("Two sub-agents under one tool call")
        workflows = [*await compare(client, console)]
        console.rule("Work in the background")
        workflows += await work_in_the_background(client, console)
    console.print("In the Temporal UI:")
    for workflow_id in workflows:
        console.print(f"  {ui_link(stack, workflow_id)}", soft_wrap=True)
    print_next_steps(console, stack)


def ui_link(stack: LocalStack, workflow_id: str) -> str:
    """Return the address of a workflow in the Temporal UI."""
    return f"{stack.temporal_ui_url}/namespaces/default/workflows/{quote(workflow_id, safe='')}"


def print_next_steps(console: Console, stack: LocalStack) -> None:
    """Print commands to try while the stack is up."""
    instance = f"{stack.api_url}/agents/{AGENT}/{NAME}"
    console.print("\nTry next:")
    for line in (
        f".venv/bin/turnkeeper-watch {AGENT}/{NAME} --url {stack.api_url}",
        f"curl -s '{instance}/turns?wait=true' -H 'content-type: application/json' "
        '-d \'{"message": "Research temporal workflows"}\'',
        f"curl -s {instance}/runs",
        f"curl -sN {instance}/events",
        f"{stack.api_url}/docs",
    ):
        console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
    console.print()


def print_answer(console: Console, message: UIMessage | None) -> None:
    """Print what the assistant wrote."""
    parts = message.parts if message else ()
    text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
    console.print(Panel(Markdown(printable(text)), title=AGENT, border_style="green"))


async def main() -> int:
    """Run the demo; with DEMO_ONCE=1 stop after it. Returns the exit status."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH + 20)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console.print("Starting Temporal, a worker and the API ...")
    try:
        async with local_stack(Settings()) as stack:
            await run_demo(stack, console)
            if os.environ.get("DEMO_ONCE") == "1":
                return 0
            console.print("Everything stays up until Ctrl-C.")
            return await run_until(stack, stop)
    except DemoFailed as failed:
        console.print(Panel(Text(printable(str(failed))), title="The demo failed", border_style="red"))
    except (TurnkeeperError, httpx.HTTPError) as error:
        console.print(f"demo: {error}", style="red")
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
