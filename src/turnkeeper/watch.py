"""Shows an instance live: its turns, and under them its tree of runs (`turnkeeper-watch Assistant/demo`).

It reads the HTTP API and nothing else. Without a terminal it prints the tree when it ends.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta

try:
    from rich.console import Console
    from rich.live import Live
    from rich.tree import Tree
except ModuleNotFoundError as error:
    raise SystemExit("turnkeeper-watch needs rich: pip install 'turnkeeper[app]'") from error

from turnkeeper.errors import NotFound, TurnkeeperError, Unavailable
from turnkeeper.frames import SnapshotFrame
from turnkeeper.http_client import HttpClient
from turnkeeper.names import is_name, parse_run_path
from turnkeeper.run_views import apply_frame
from turnkeeper.runs import END_STATUSES, AgentToolRunInfo
from turnkeeper.turns import TURN_END_STATUSES, TurnInfo
from turnkeeper.watch_state import WatchState
from turnkeeper.watch_tree import instance_tree

DEFAULT_URL = "http://127.0.0.1:8000"
WIDTH = 120
"""Without a terminal, which would have a width of its own."""

CHECK_INTERVAL = timedelta(milliseconds=250)
"""How often `--once` asks whether anything goes on."""

LAST_FRAMES_PATIENCE = timedelta(seconds=3)
"""How long `--once` waits, when nothing goes on any more, for frames that tell of it; a live log may lose some."""


@dataclass(frozen=True)
class Target:
    """What is watched."""

    agent: str
    name: str
    run: str | None = None
    """The path of a run, if not everything."""

    @property
    def title(self) -> str:
        """Its path."""
        return f"{self.agent}/{self.name}{'' if self.run is None else f'/runs/{self.run}'}"


class Watch:
    """Keeps up with a target."""

    def __init__(self, client: HttpClient, target: Target) -> None:
        """Watch `target` through `client`."""
        self._client = client
        self._target = target
        self._state = WatchState()

    def tree(self) -> Tree:
        """Return how it looks now."""
        return instance_tree(self._target.title, self._state, self._target.run)

    async def check(self) -> None:
        """Find out at once what could never be watched.

        Raises:
            NotFound: there is no such agent type or run.
            Unavailable: the API does not answer.
        """
        known = await self._client.agent_types()
        if self._target.agent not in known:
            raise NotFound(f"{self._client.url} serves no agent {self._target.agent!r}, but {', '.join(sorted(known))}")
        if self._target.run is None:
            return
        try:
            # No worker is needed to watch, so that none answers is no reason to give up.
            with suppress(Unavailable):
                await self._client.run(self._target.agent, self._target.name, self._target.run)
        except NotFound as error:
            raise NotFound(f"there is no run {self._target.title}") from error

    async def follow(self, *, once: bool) -> None:
        """Keep up until the end of the run that is watched, or with `once` until nothing goes on.

        Raises:
            NotFound: with `once`, there is no such instance.
            Unavailable: the API was out of reach for too long.
        """
        tasks = [asyncio.create_task(self._read())]
        if once:
            tasks.append(asyncio.create_task(self._until_idle()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        target = self._target
        async with aclosing(self._client.events(target.agent, target.name, run=target.run)) as events:
            async for _, frame in events:
                self._state = apply_frame(self._state, frame)

    async def _until_idle(self) -> None:
        """Wait until nothing goes on by Temporal, and the frames have told of it, or will not."""
        clock = asyncio.get_running_loop().time
        idle_since: float | None = None
        while True:
            snapshot = await self._snapshot()
            if snapshot is None or _goes_on(snapshot):
                idle_since = None
            else:
                idle_since = clock() if idle_since is None else idle_since
                complete = apply_frame(self._state, snapshot)
                if complete is self._state or clock() - idle_since > LAST_FRAMES_PATIENCE.total_seconds():
                    self._state = complete
                    return
            await asyncio.sleep(CHECK_INTERVAL.total_seconds())

    async def _snapshot(self) -> SnapshotFrame | None:
        """Return how the target stands by Temporal, or None while nobody can say."""
        agent, name, run = self._target.agent, self._target.name, self._target.run
        try:
            if run is not None:
                return SnapshotFrame(turns=(), runs=(await self._run_info(run),))
            turns = await self._client.turns(agent, name)
            rows: list[AgentToolRunInfo] = [*await self._client.runs(agent, name)]
            for view in self._state.open_runs:
                if view.parent_id is not None:
                    rows.append(await self._run_info(view.run_id))
        except Unavailable:
            return None
        except NotFound as error:
            raise NotFound(f"there is no instance {self._target.title} yet") from error
        return SnapshotFrame(turns=tuple(TurnInfo.model_validate(dict(turn)) for turn in turns), runs=tuple(rows))

    async def _run_info(self, path: str) -> AgentToolRunInfo:
        info = await self._client.run(self._target.agent, self._target.name, path)
        return info.model_copy(update={"run_id": path})


def _goes_on(snapshot: SnapshotFrame) -> bool:
    return any(turn.status not in TURN_END_STATUSES for turn in snapshot.turns) or any(
        run.status not in END_STATUSES for run in snapshot.runs
    )


async def watch(url: str, target: Target, *, once: bool, console: Console) -> None:
    """Show a target on a console.

    Raises:
        TurnkeeperError: it cannot be watched.
    """
    async with HttpClient(url) as client:
        watched = Watch(client, target)
        await watched.check()
        if console.is_terminal:
            with Live(get_renderable=watched.tree, console=console, refresh_per_second=8):
                await watched.follow(once=once)
            return
        try:
            await watched.follow(once=once)
        except asyncio.CancelledError:
            console.print(watched.tree())  # Ctrl-C is how a watch without `once` ends.
            raise
        console.print(watched.tree())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _read_arguments(arguments)
    agent, name = options.instance
    target = Target(agent, name, options.run)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        asyncio.run(watch(options.url, target, once=options.once, console=console))
    except TurnkeeperError as error:
        print(f"turnkeeper-watch: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="turnkeeper-watch", description="Show an agent instance live: its turns and its tree of runs."
    )
    parser.add_argument("instance", type=_instance, metavar="AGENT/NAME", help="for example Assistant/demo")
    parser.add_argument("--url", default=DEFAULT_URL, help="the address of the API (default: %(default)s)")
    parser.add_argument("--run", type=_run_path, metavar="PATH", help="only this run, for example a or a/runs/b")
    parser.add_argument("--once", action="store_true", help="end when nothing goes on")
    return parser.parse_args(arguments)


def _instance(text: str) -> tuple[str, str]:
    agent, _, name = text.partition("/")
    if not is_name(agent) or not is_name(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form AGENT/NAME")
    return agent, name


def _run_path(text: str) -> str:
    if parse_run_path(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no path of runs")
    return text


if __name__ == "__main__":
    sys.exit(main())
