"""`make demo`: the whole stack, one compare turn watched live, and what to try next."""

import asyncio
import os
import signal
import sys
import time
from typing import Any
from urllib.parse import quote

import httpx
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from deploy.local_stack import LocalStack, local_stack, run_until
from turnkeeper.errors import TurnkeeperError
from turnkeeper.settings import Settings

INSTANCE = "/agents/Assistant/demo"
QUESTION = "Compare pydantic and attrs"
END_STATUSES = ("completed", "error", "aborted")
WIDTH = 100

Json = dict[str, Any]


class Timeline:
    """Prints each fact about a turn once, with the seconds since the turn was submitted."""

    def __init__(self, console: Console) -> None:
        """Print to `console`, counting from now."""
        self._console = console
        self._began = time.monotonic()
        self._told: set[str] = set()

    def tell(self, who: str, what: str, *, key: str, depth: int = 0, style: str = "") -> None:
        """Print a fact, unless one was printed under the same key."""
        if key in self._told:
            return
        self._told.add(key)
        line = Text(f"{time.monotonic() - self._began:6.2f} s  ", style="dim")
        line.append("   " * depth)
        line.append(f"{who}  ", style="bold cyan" if depth == 0 else "bold magenta")
        line.append(what.replace("\n", " "), style=style)
        line.truncate(WIDTH, overflow="ellipsis")
        self._console.print(line)

    def tell_calls(self, who: str, message: Json, *, key: str, depth: int = 0) -> None:
        """Print the tool calls of a message."""
        for name, part in _tool_parts(message):
            arguments = ", ".join(f"{field}={value!r}" for field, value in (part["input"] or {}).items())
            self.tell(who, f"calls {name}({arguments})", key=f"{key}/{part['toolCallId']}/call", depth=depth)

    def tell_results(self, who: str, message: Json, *, key: str, depth: int = 0) -> None:
        """Print how the tool calls of a message ended."""
        for name, part in _tool_parts(message):
            end = f"{key}/{part['toolCallId']}/end"
            if part["state"] == "output-error":
                self.tell(who, f"{name} failed: {part['errorText']}", key=end, depth=depth, style="red")
            elif part["state"] == "output-available":
                self.tell(who, f"{name} answered", key=end, depth=depth, style="green")


def _tool_parts(message: Json) -> list[tuple[str, Json]]:
    parts = [part for part in message["parts"] if part["type"].startswith("tool-")]
    return [(part["type"].removeprefix("tool-"), part) for part in parts]


async def watch(api: httpx.AsyncClient, turn: Json, timeline: Timeline) -> Json:
    """Print a turn and its runs as they go on; returns the turn when it has ended."""
    while True:
        current: Json = (await api.get(turn["url"])).json()
        message = current.get("message") or {"parts": []}
        has_ended = current["status"] in END_STATUSES
        if not has_ended:
            timeline.tell("Assistant", f"turn {current['turnId']} is {current['status']}", key=current["status"])
        timeline.tell_calls("Assistant", message, key="turn")
        for run in await runs_of(api, current):
            await watch_run(api, run, timeline)
        timeline.tell_results("Assistant", message, key="turn")
        if has_ended:
            timeline.tell("Assistant", f"turn {current['turnId']} is {current['status']}", key=current["status"])
            return current
        await asyncio.sleep(0.1)


async def watch_run(api: httpx.AsyncClient, run: Json, timeline: Timeline) -> None:
    """Print what is new about one run."""
    run_id = run["runId"]
    who = f"{run.get('display', {}).get('name') or run['agentType']} {run['displayOrder'] + 1}"
    timeline.tell(who, f"starts on {run.get('inputPreview', '')}", key=run_id, depth=1)
    answer = await api.get(f"{run['url']}/messages")
    for message in answer.json() if answer.status_code == httpx.codes.OK else []:
        timeline.tell_calls(who, message, key=run_id, depth=1)
        timeline.tell_results(who, message, key=run_id, depth=1)
    if run["status"] in (*END_STATUSES, "interrupted"):
        said = run.get("summary") or run.get("error") or ""
        style = "green" if run["status"] == "completed" else "red"
        timeline.tell(who, f"{run['status']}: {said}", key=f"{run_id}/end", depth=1, style=style)


async def runs_of(api: httpx.AsyncClient, turn: Json) -> list[Json]:
    """Return the runs that a turn dispatched, in the order in which they are to be shown."""
    runs: list[Json] = (await api.get(f"{INSTANCE}/runs")).json()
    begun = turn.get("startedAt", "")
    return sorted((run for run in runs if run["startedAt"] >= begun), key=lambda run: int(run["displayOrder"]))


def ui_link(stack: LocalStack, workflow_id: str) -> str:
    """Return the address of a workflow in the Temporal UI."""
    return f"{stack.temporal_ui_url}/namespaces/default/workflows/{quote(workflow_id, safe='')}"


async def run_demo(stack: LocalStack, console: Console) -> bool:
    """Submit the question, watch its turn and print what came of it; returns whether it was answered."""
    model = os.environ.get("TURNKEEPER_MODEL")
    console.print(f"Model: {model or 'the offline model, a set of rules (set TURNKEEPER_MODEL for a real one)'}\n")
    async with httpx.AsyncClient(base_url=stack.api_url, timeout=30) as api:
        answer = await api.post(f"{INSTANCE}/turns", json={"message": QUESTION})
        answer.raise_for_status()
        console.print(f"[bold]You:[/bold] {QUESTION}\n")
        turn = await watch(api, answer.json(), Timeline(console))
        runs = await runs_of(api, turn)
    print_answer(console, turn)
    console.print("In the Temporal UI:")
    console.print(f"  the turn  {ui_link(stack, turn['workflowId'])}", soft_wrap=True)
    for run in runs:
        console.print(f"  a run     {ui_link(stack, run['workflowId'])}", soft_wrap=True)
    console.print("\nTry next:")
    console.print(
        f"  curl -s '{stack.api_url}{INSTANCE}/turns?wait=true' -H 'content-type: application/json' "
        '-d \'{"message": "Research temporal workflows"}\'',
        soft_wrap=True,
    )
    console.print(f"  {stack.api_url}/docs\n", soft_wrap=True)
    return bool(turn["status"] == "completed")


def print_answer(console: Console, turn: Json) -> None:
    """Print the text of a turn's last step, or why there is none."""
    parts = (turn.get("message") or {"parts": []})["parts"]
    text = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    if turn["status"] == "completed":
        console.print(Panel(Markdown(text), title="Assistant", border_style="green"))
    else:
        console.print(Panel(turn.get("error") or turn["status"], title="The turn failed", border_style="red"))


async def main() -> int:
    """Run the demo; with DEMO_ONCE=1 stop after the turn. Returns the exit status."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH + 20)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console.print("Starting Temporal, a worker and the API ...")
    try:
        async with local_stack(Settings()) as stack:
            answered = await run_demo(stack, console)
            if os.environ.get("DEMO_ONCE") == "1" or not answered:
                return 0 if answered else 1
            console.print("Everything stays up until Ctrl-C.")
            return await run_until(stack, stop)
    except (TurnkeeperError, httpx.HTTPError) as error:
        console.print(f"demo: {error}", style="red")
        return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
