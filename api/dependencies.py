"""What the routes need, from the application's state."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Path, Request

from api.event_reader import EventReader
from turnkeeper.client import TurnkeeperClient
from turnkeeper.errors import NotFound
from turnkeeper.names import parse_run_path
from turnkeeper.run_client import RunPath
from turnkeeper.wire import NAME_PATTERN

PathName = Annotated[str, Path(pattern=NAME_PATTERN)]


def get_client(request: Request) -> TurnkeeperClient:
    """Return the application's client."""
    client: TurnkeeperClient = request.app.state.client
    return client


def get_events(request: Request) -> EventReader:
    """Return the application's reader of the live log."""
    events: EventReader = request.app.state.events
    return events


EventsDependency = Annotated[EventReader, Depends(get_events)]
ClientDependency = Annotated[TurnkeeperClient, Depends(get_client)]


@dataclass(frozen=True)
class Instance:
    """The agent instance that a request's path names."""

    client: TurnkeeperClient
    agent: str
    name: str

    @property
    def session_id(self) -> str:
        """The workflow id of its session."""
        return self.client.session_id(self.agent, self.name)

    @property
    def url(self) -> str:
        """Its path in this API."""
        return f"/agents/{self.agent}/{self.name}"


def get_instance(client: ClientDependency, agent: PathName, name: PathName) -> Instance:
    """Return the instance, which need not exist yet.

    Raises:
        NotFound: the agent type is not registered.
    """
    client.registry.get(agent)
    return Instance(client, agent, name)


InstanceDependency = Annotated[Instance, Depends(get_instance)]


def get_run_path(run_path: str) -> RunPath:
    """Return the run ids in `a/runs/b`.

    Raises:
        NotFound: the path is not one of runs.
    """
    parsed = parse_run_path(run_path)
    if parsed is None:
        raise NotFound(f"{run_path!r} is no path of runs")
    return tuple(parsed)


RunPathDependency = Annotated[RunPath, Depends(get_run_path)]

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", pattern=NAME_PATTERN, description="The same key again is the same submission."),
]
