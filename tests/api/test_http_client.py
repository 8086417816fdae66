"""The HTTP client against the real API, through connections that break, and against feeds that say odd things."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from types import TracebackType
from typing import Self
from uuid import uuid4

import httpx
import pytest
from desk import eventually
from desk_agents import calls, gate
from desk_script import start_afresh
from model_server import ModelServer
from served import served
from temporalio.client import Client

from api.app import create_app
from turnkeeper.dev_server import free_port
from turnkeeper.errors import Conflict, InvalidRequest, NotFound, RequestError, TooLarge, TurnkeeperError, Unavailable
from turnkeeper.frames import AgentToolEventFrame, Frame, ResyncFrame, TurnEventFrame
from turnkeeper.http_client import HttpClient
from turnkeeper.messages import user_message
from turnkeeper.registry import AgentRegistry
from turnkeeper.run_views import apply_frame
from turnkeeper.settings import Settings
from turnkeeper.watch_state import WatchState

COMPARE = 'call compare {"left": "say left", "right": "say right"}'

Cursors = list[tuple[str | None, Frame]]


@pytest.fixture
def name() -> str:
    """An instance name that nobody else uses."""
    return uuid4().hex[:12]


@pytest.fixture
async def url(
    temporal: Client, registry: AgentRegistry, settings: Settings, running_worker: None, model_server: ModelServer
) -> AsyncIterator[str]:
    """The address of the API."""
    start_afresh(model_server)
    async with served(create_app(settings, temporal, registry)) as address:
        yield address


@pytest.fixture
async def client(url: str) -> AsyncIterator[HttpClient]:
    """A client of the API."""
    async with HttpClient(url) as found:
        yield found


def is_turn_end(frame: Frame) -> bool:
    """Tell whether a frame is a turn's end."""
    return isinstance(frame, TurnEventFrame) and frame.event.kind in ("finished", "error", "aborted")


async def read(
    client: HttpClient,
    name: str,
    *,
    until: Callable[[Frame], bool] = is_turn_end,
    agent: str = "Assistant",
    run: str | None = None,
    after: str | None = None,
) -> Cursors:
    """Return what a feed gives, with the cursors, until a frame that `until` is true of, or its end."""
    found: Cursors = []
    async with aclosing(client.events(agent, name, run=run, after=after)) as events:
        async for cursor, frame in events:
            found.append((cursor, frame))
            if until(frame):
                break
    return found


def without_replay(found: Cursors) -> Cursors:
    """Return frames without the mark that they were there before their reader."""
    return [(cursor, frame.model_copy(update={"replay": None})) for cursor, frame in found]


async def noted(text: str) -> bool:
    """Tell whether a tool has begun."""
    return text in calls


async def test_a_turn_is_submitted_waited_for_and_read(client: HttpClient, name: str) -> None:
    """Issue B, item 7: what a program outside needs, nested runs included."""
    turn = await client.submit(
        "Assistant", name, 'call delegate {"query": "call research {\\"query\\": \\"say deep\\"}"}'
    )
    ended = await client.wait("Assistant", name, turn.turn_id)
    assert (ended.status, ended.message is not None) == ("completed", True)
    assert (await client.turn("Assistant", name, "1")).message == ended.message
    assert [found.status for found in await client.turns("Assistant", name)] == ["completed"]
    assert (await client.messages("Assistant", name))[-1] == ended.message
    (outer,) = await client.runs("Assistant", name)
    (inner,) = await client.runs("Assistant", name, run=outer.run_id)
    path = f"{outer.run_id}/runs/{inner.run_id}"
    assert (await client.run("Assistant", name, path)).summary == "deep"
    assert (await client.messages("Assistant", name, run=path))[-1].text == "deep"
    assert "Assistant" in await client.agent_types()


async def test_an_idempotency_key_makes_a_repeat_the_same_turn(client: HttpClient, name: str) -> None:
    """Design 7: also for a message in parts; another message under the key is a conflict."""
    message = user_message("mine", "say one")
    turns = [await client.submit("Echo", name, message, idempotency_key="k") for _ in range(2)]
    assert [turn.turn_id for turn in turns] == ["1", "1"]
    with pytest.raises(Conflict):
        await client.submit("Echo", name, "say two", idempotency_key="k")
    await client.wait("Echo", name, "1")
    assert (await client.messages("Echo", name))[0] == message


async def test_turns_and_runs_are_cancelled_with_a_reason(client: HttpClient, name: str) -> None:
    """CX-02, CX-12."""
    turn = await client.submit(
        "Assistant", name, f'call research {{"query": "call wait {{\\"name\\": \\"{name}\\"}}"}}'
    )
    await eventually(lambda: noted(f"wait {name}"), bool)
    (run,) = await client.runs("Assistant", name)
    await client.cancel_run("Assistant", name, run.run_id, "enough")
    ended = await client.wait("Assistant", name, turn.turn_id)
    assert [found.status for found in await client.runs("Assistant", name)] == ["aborted"]
    assert ended.status == "completed"
    other = await client.submit(
        "Assistant", name, f'call research {{"query": "call wait {{\\"name\\": \\"x{name}\\"}}"}}'
    )
    await eventually(lambda: noted(f"wait x{name}"), bool)
    await client.cancel_turn("Assistant", name, other.turn_id, "no longer needed")
    assert (await client.wait("Assistant", name, other.turn_id)).error == "no longer needed"


async def test_refusals_are_the_errors_of_the_package(client: HttpClient, name: str) -> None:
    """House rule 8: named for what the caller can do."""
    with pytest.raises(NotFound, match="no such thing here"):
        await client.submit("Nobody", name, "hello")
    with pytest.raises(InvalidRequest, match="message"):
        await client.submit("Echo", name, "  ")
    with pytest.raises(TooLarge):
        await client.submit("Echo", name, "x" * 300_000)
    with pytest.raises(NotFound, match="no such thing here"):
        await client.turns("Echo", name)
    for agent, instance, run in (("Ec/ho", name, None), ("Echo", "..", None), ("Echo", name, "a/b"), ("", name, "a")):
        with pytest.raises(NotFound, match="there can be no"):
            await client.messages(agent, instance, run)


async def test_the_events_of_unknown_agents_and_runs_are_refused_at_once(client: HttpClient, name: str) -> None:
    """Design 7: 404, and no new attempts."""
    for agent, run in (("Nobody", None), ("Assistant", "nope"), ("Assistant", "a/b")):
        with pytest.raises(NotFound):
            await read(client, name, agent=agent, run=run)


async def test_an_api_that_is_not_there_is_unavailable(name: str) -> None:
    """House rule 8; a feed is given up after the client's patience."""
    async with HttpClient(f"http://127.0.0.1:{free_port()}", reconnect_patience=timedelta()) as client:
        with pytest.raises(Unavailable, match="does not answer"):
            await client.turns("Echo", name)
        with pytest.raises(Unavailable, match="out of reach"):
            await read(client, name)
    with pytest.raises(InvalidRequest, match="no address"):
        HttpClient("http://127.0.0.1:port")


async def test_a_client_that_is_cut_off_at_every_event_gets_the_whole(client: HttpClient, name: str) -> None:
    """Issue B: nothing doubled, nothing missing, and the views are the same; cut in the middle of the next event."""
    await client.submit("Assistant", name, COMPARE)
    whole = await read(client, name)
    port = httpx.URL(client.url).port
    assert port is not None
    async with CuttingProxy(port) as proxy, HttpClient(proxy.url) as unlucky:
        found = await read(unlucky, name)
    assert proxy.connections == len(whole)
    assert without_replay(found) == without_replay(whole)
    ids = [int(cursor or 0) for cursor, _ in whole]
    assert ids == sorted(set(ids))
    assert view_of(found) == view_of(whole)
    assert {run.summary for run in view_of(found).runs_by_id.values()} == {"left", "right"}


def view_of(found: Cursors) -> WatchState:
    """Return what frames add up to."""
    state = WatchState()
    for _, frame in found:
        state = apply_frame(state, frame)
    return state


async def test_a_restart_of_the_api_loses_and_doubles_nothing(
    temporal: Client,
    registry: AgentRegistry,
    settings: Settings,
    running_worker: None,
    model_server: ModelServer,
    name: str,
) -> None:
    """Issue B: in the middle of a turn; what happens while the API is away comes too."""
    start_afresh(model_server)
    port = free_port()
    found: Cursors = []
    async with HttpClient(f"http://127.0.0.1:{port}") as client:
        async with served(create_app(settings, temporal, registry), port):
            turn = await client.submit("Clerk", name, f'call wait {{"name": "{name}"}}')
            await eventually(lambda: noted(f"wait {name}"), bool)
            reading = asyncio.create_task(collect(client, name, found))
            await eventually(lambda: length_of(found), lambda length: length > 2)
        gate(name).set()
        async with served(create_app(settings, temporal, registry), port):
            await reading
            await client.wait("Clerk", name, turn.turn_id)
            whole = await read(client, name, agent="Clerk")
    assert without_replay(found) == without_replay(whole)


async def collect(client: HttpClient, name: str, found: Cursors) -> None:
    """Put the events of a Clerk's turn into `found` as they come."""
    async with aclosing(client.events("Clerk", name)) as events:
        async for cursor, frame in events:
            found.append((cursor, frame))
            if is_turn_end(frame):
                return


async def length_of(found: Cursors) -> int:
    """Return how many there are."""
    return len(found)


async def test_the_events_of_a_run_end_with_it_and_do_not_come_again(client: HttpClient, name: str) -> None:
    """Issue B, item 5: filtered by run; 204 when there is nothing more."""
    await client.submit("Assistant", name, COMPARE)
    await client.wait("Assistant", name, "1")
    run = (await client.runs("Assistant", name))[0].run_id
    found = await read(client, name, run=run, until=lambda _: False)
    events = [frame.event for _, frame in found if isinstance(frame, AgentToolEventFrame)]
    assert {event.run_id for event in events} == {run}
    assert (events[0].kind, events[-1].kind) == ("started", "finished")
    assert await read(client, name, run=run, after=found[-1][0], until=lambda _: False) == []
    middle = await read(client, name, run=run, after=found[2][0], until=lambda _: False)
    assert [cursor for cursor, _ in middle] == [cursor for cursor, _ in found[3:]]


async def test_a_cursor_that_nobody_gave_brings_a_resync_and_the_whole(client: HttpClient, name: str) -> None:
    """Issue B, item 5."""
    await client.submit("Echo", name, "say hello")
    await client.wait("Echo", name, "1")
    found = await read(client, name, agent="Echo", after="999999")
    assert found[0] == (None, ResyncFrame(reason="unknown"))
    assert without_replay(found[1:]) == without_replay(await read(client, name, agent="Echo"))


def event(text: str, id: int | None = None, end: str = "\n") -> str:
    """Return an event whose data is a turn's beginning."""
    frame = '{"type": "turn-event", "source": "t/A/n/turns/1", "sequence": 0, "at": "2026-01-01T00:00:00Z",'
    lines = [f"data: {frame}", f'data: "event": {{"kind": "finished", "turnId": "{text}"}}}}']
    return end.join([*([] if id is None else [f"id: {id}"]), *lines, "", ""])


def texts_of(found: Cursors) -> list[tuple[str | None, str]]:
    """Return the cursors and texts of such events."""
    return [(cursor, frame.event.turn_id) for cursor, frame in found if isinstance(frame, TurnEventFrame)]


async def read_scripted(*answers: str) -> "tuple[Cursors, ScriptedFeed]":
    """Return what a client makes of a feed that answers its connections so, and then no more."""
    async with ScriptedFeed(answers) as feed, asyncio.timeout(20), HttpClient(feed.url) as client:
        return await read(client, "n", until=lambda _: False), feed


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
async def test_an_event_may_have_any_line_ends_and_several_data_lines(end: str) -> None:
    """The event stream format: also comments, unknown fields, and events without data."""
    stream = f": ping{end}{end}nonsense{end}{event('a', 1, end)}: ping{end}{end}id: 7{end}{end}{event('b', None, end)}"
    found, feed = await read_scripted(stream)
    assert texts_of(found) == [("1", "a"), ("7", "b")]
    assert feed.last_ids == [None, "7"]


async def test_an_event_that_is_cut_off_counts_for_nothing() -> None:
    """The event stream format: neither its data nor its id, because its end is missing."""
    cut = event("b", 2).removesuffix("\n")
    found, feed = await read_scripted(event("a", 1) + cut, event("b", 2))
    assert texts_of(found) == [("1", "a"), ("2", "b")]
    assert feed.last_ids == [None, "1", "2"]


async def test_an_id_without_a_value_begins_anew() -> None:
    """The event stream format: an empty id is no id to resume from."""
    found, feed = await read_scripted(event("a", 1) + "id\n" + event("b"))
    assert texts_of(found) == [("1", "a"), (None, "b")]
    assert feed.last_ids == [None, None]


async def test_frames_of_a_later_release_are_passed_over() -> None:
    """CR-17: and the cursor moves on."""
    found, feed = await read_scripted('id: 4\ndata: {"type": "unheard-of"}\n\nid: 5\ndata: no JSON\n\n')
    assert found == []
    assert feed.last_ids == [None, "5"]


async def test_a_reader_that_was_too_slow_resumes_at_once() -> None:
    """Issue B, item 5: without the pause that the feed asked for."""
    too_slow = 'data: {"type": "resync", "reason": "too-slow"}\n\n'
    found, feed = await read_scripted(f"retry: 3600000\n{event('a', 1)}{too_slow}")
    assert [cursor for cursor, _ in found] == ["1", "1"]
    assert feed.last_ids == [None, "1"]


async def test_a_reader_that_is_resynced_does_not_send_its_old_cursor_again() -> None:
    """Issue B, item 5: what follows begins anew, and is cut off before its first id."""
    found, feed = await read_scripted(event("a", 1), 'data: {"type": "resync", "reason": "too-old"}\n\n')
    assert [cursor for cursor, _ in found] == ["1", None]
    assert feed.last_ids == [None, "1", None]


async def test_the_feed_says_how_long_to_wait_before_the_next_connection() -> None:
    """The event stream format: `retry:`."""
    clock = asyncio.get_running_loop().time
    began = clock()
    await read_scripted("retry: 400\n" + event("a", 1))
    assert clock() - began >= 0.4


async def test_an_api_that_is_starting_is_asked_again() -> None:
    """Field: a proxy answers 503 while the API restarts."""
    found, feed = await read_scripted("503", "502", event("a", 1))
    assert texts_of(found) == [("1", "a")]
    assert len(feed.last_ids) == 4


async def test_what_is_no_feed_is_an_error_at_once() -> None:
    """House rule 8: another server at that address."""
    for answer, error in (("html", TurnkeeperError), ("500", TurnkeeperError), ("403", RequestError)):
        with pytest.raises(error, match="answer"):
            await read_scripted(answer)


async def test_another_server_is_told_apart_from_the_api() -> None:
    """House rule 8: for the other requests too."""
    async with ScriptedFeed(["html"]) as feed, HttpClient(feed.url) as client:
        with pytest.raises(TurnkeeperError, match="does not answer as Turnkeeper's API does"):
            await client.turns("A", "n")


class _Listener:
    """Listens on a port of its own."""

    def __init__(self) -> None:
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop all connections."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # asyncio would log its own streams' tasks that end so.
            with suppress(ConnectionError, EOFError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class CuttingProxy(_Listener):
    """Passes connections on, and cuts each after one event and the first bytes of the next."""

    def __init__(self, port: int) -> None:
        """Pass on to a port of this machine."""
        super().__init__()
        self.connections = 0
        self._port = port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream, up = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            up.write(await reader.readuntil(b"\r\n\r\n"))
            writer.write(await upstream.readuntil(b"\n\n"))
            with suppress(TimeoutError, asyncio.IncompleteReadError):
                # If there is a next one, it is cut off in its middle.
                writer.write(await asyncio.wait_for(upstream.readexactly(100), 0.05))
            await writer.drain()
        finally:
            up.close()


class ScriptedFeed(_Listener):
    """Answers each connection with the next of some answers, and with 204 when there are no more."""

    def __init__(self, answers: Sequence[str]) -> None:
        """Answer with event streams, with statuses, or with `html`."""
        super().__init__()
        self.last_ids: list[str | None] = []
        """The `Last-Event-ID` of each request."""
        self._answers = list(answers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        sent = [line.partition(": ")[2] for line in request.splitlines() if line.startswith("last-event-id")]
        self.last_ids.append(sent[0] if sent else None)
        answer = self._answers.pop(0) if self._answers else "204"
        status, kind, body = 200, "text/event-stream", answer
        if answer.isdigit():
            status, kind, body = int(answer), "text/plain", ""
        elif answer == "html":
            kind = "text/html"
        writer.write(f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()


async def test_the_http_client_has_both_strengths(client: HttpClient, name: str) -> None:
    """Issue D: over HTTP and in Python; what does not go on is a `Conflict`."""
    query = f"call wait {json.dumps({'name': name})}"
    turn = await client.submit("Assistant", name, f"call research {json.dumps({'query': query})}")
    await eventually(lambda: _noted(f"wait {name}"), bool)
    await client.steer_run("Assistant", name, "1-0-0", "say short", "k")
    await client.steer_turn("Assistant", name, turn.turn_id, "say it all")
    await client.wrap_up_run("Assistant", name, "1-0-0")
    gate(name).set()
    ended = await client.wait("Assistant", name, turn.turn_id)
    assert (ended.status, ended.message.text if ended.message else "") == ("completed", "it all")
    for strength in (
        client.steer_turn("Assistant", name, turn.turn_id, "say more"),
        client.wrap_up_turn("Assistant", name, turn.turn_id),
    ):
        with pytest.raises(Conflict):
            await strength


async def _noted(text: str) -> bool:
    return text in calls
