"""Many followers, one poll."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest
from event_stores import LOG, OTHER_LOG, OTHER_SOURCE, WatchedLog, new_entries, new_entry
from event_stores import EventStore as Store

from turnkeeper.event_log.entries import PAGE, Entry, EventLog
from turnkeeper.event_log.feed import EventFeed, FellBehind

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
A_DAY_LATER = LONG_AGO + timedelta(days=1)


class Follower:
    """Follows a log in the background."""

    def __init__(self, feed: EventFeed, log: str, after: int) -> None:
        """Begin to follow."""
        self.ids: list[int] = []
        self._more = asyncio.Condition()
        self._task = asyncio.create_task(self._follow(feed, log, after))

    async def has(self, newest: int) -> None:
        """Wait until it has seen an id; fails when that takes too long or the feed failed."""
        async with asyncio.timeout(20), self._more:
            await self._more.wait_for(lambda: self._task.done() or (self.ids and self.ids[-1] >= newest))
        if self._task.done():
            await self._task

    async def leave(self) -> None:
        """Follow no more."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self, feed: EventFeed, log: str, after: int) -> None:
        try:
            async with aclosing(feed.follow(log, after)) as pages:
                async for page in pages:
                    self.ids += [entry.id for entry in page]
                    await self._tell()
        finally:
            await self._tell()

    async def _tell(self) -> None:
        async with self._more:
            self._more.notify_all()


class Follow(Protocol):
    """Begins to follow; ends with the test."""

    def __call__(self, log: str = LOG, after: int = 0) -> Follower: ...


@pytest.fixture
def watched(log: EventLog) -> WatchedLog:
    """The log that the feed follows."""
    return WatchedLog(log)


@pytest.fixture
async def feed(watched: WatchedLog) -> AsyncIterator[EventFeed]:
    """The feed."""
    feed = EventFeed(watched)
    yield feed
    await feed.close()


@pytest.fixture
async def follow(feed: EventFeed) -> AsyncIterator[Follow]:
    """A way to follow the feed."""
    followers: list[Follower] = []

    def begin(log: str = LOG, after: int = 0) -> Follower:
        followers.append(Follower(feed, log, after))
        return followers[-1]

    yield begin
    for follower in followers:
        await follower.leave()


async def test_followers_who_join_at_any_moment_see_every_entry_once_and_in_order(
    feed: EventFeed, follow: Follow, other: EventLog
) -> None:
    """50 followers during 500 appends by another process, from the beginning or from where they had been."""
    chance = random.Random(7)
    moments = sorted(chance.randrange(500) for _ in range(50))
    followers: list[tuple[int, Follower]] = []
    for number in range(1, 501):
        while moments and moments[0] < number:
            moments.pop(0)
            after = chance.choice([0, 0, chance.randrange(number)])
            followers.append((after, follow(after=after)))
        await other.append([new_entry(number)])
    for after, follower in followers:
        await follower.has(500)
        assert follower.ids == list(range(after + 1, 501))


async def test_there_is_one_poll_however_many_follow(follow: Follow, watched: WatchedLog, other: EventLog) -> None:
    """300 readers of one log ask the log as often as one does."""
    followers = [follow() for _ in range(300)]
    for number in range(1, 12):
        await other.append([new_entry(number)])
        for follower in followers:
            await follower.has(number)
        if number == 1:  # They have caught up, each by itself.
            watched.calls.clear()
    assert watched.calls["wait"] <= 2 * 10
    assert watched.calls["read"] == watched.calls["bounds"] == 0


async def test_a_follower_that_fell_behind_is_told_and_holds_up_nobody(
    feed: EventFeed, follow: Follow, watched: WatchedLog, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been live; it resumes after its last id."""
    monkeypatch.setattr("turnkeeper.event_log.feed.BUFFERED_ENTRIES", 50)
    quick = follow()
    await watched.called("wait", 1)
    async with aclosing(feed.follow(LOG, 0)) as slow:
        await other.append(new_entries(1))
        assert [entry.id for entry in await anext(slow)] == [1]
        for first in range(2, 202, 10):
            await other.append(new_entries(10, first=first))
            await quick.has(first + 9)
        with pytest.raises(FellBehind):
            await anext(slow)
    assert quick.ids == list(range(1, 202))
    resumed = follow(after=1)
    await resumed.has(201)
    assert resumed.ids == list(range(2, 202))


async def test_a_follower_that_keeps_within_the_buffer_is_not_cut_off(
    feed: EventFeed, follow: Follow, watched: WatchedLog, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets what it missed together."""
    monkeypatch.setattr("turnkeeper.event_log.feed.BUFFERED_ENTRIES", 50)
    quick = follow()
    await watched.called("wait", 1)
    async with aclosing(feed.follow(LOG, 0)) as slow:
        await other.append(new_entries(1))
        await anext(slow)
        for number in range(2, 52):
            await other.append([new_entry(number)])
        await quick.has(51)
        assert [entry.id for entry in await anext(slow)] == list(range(2, 52))


async def test_a_follower_is_not_cut_off_while_it_catches_up(
    feed: EventFeed, follow: Follow, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of several pages, to which more than the buffer holds is added at each page that it reads."""
    monkeypatch.setattr("turnkeeper.event_log.feed.BUFFERED_ENTRIES", 50)
    last = 3 * PAGE
    await other.append(new_entries(last))
    live = follow(after=last)
    ids: list[int] = []
    async with aclosing(feed.follow(LOG, 0)) as pages:
        async for page in pages:
            ids += [entry.id for entry in page]
            if last < 6 * PAGE:
                await other.append(new_entries(PAGE // 2, first=last + 1))
                last += PAGE // 2
                await live.has(last)
            if ids[-1] == last:
                break
    assert ids == list(range(1, last + 1))
    assert live.ids == list(range(3 * PAGE + 1, last + 1))


async def test_a_follower_goes_on_where_a_trimmed_log_does(feed: EventFeed, follow: Follow, other: EventLog) -> None:
    """It begins with the oldest entry there is; of an emptied log, with the next one."""
    await other.append([new_entry(number, at=LONG_AGO) for number in range(1, 11)])
    await other.append(new_entries(5, first=11))
    await other.append([new_entry("other", OTHER_SOURCE, at=LONG_AGO)])
    await other.trim(A_DAY_LATER)
    followers = [follow(), follow(after=5), follow(after=12), follow(OTHER_LOG)]
    for follower in followers[:3]:
        await follower.has(15)
    await other.append([*new_entries(1, first=16), new_entry("another", OTHER_SOURCE)])
    for follower in followers[:3]:
        await follower.has(16)
    await followers[3].has(2)
    assert [follower.ids for follower in followers] == [
        [11, 12, 13, 14, 15, 16],
        [11, 12, 13, 14, 15, 16],
        [13, 14, 15, 16],
        [2],
    ]


async def test_entries_that_were_trimmed_between_two_polls_make_no_others_come_twice(
    follow: Follow, watched: WatchedLog, other: EventLog
) -> None:
    """The buffer has a hole then."""
    follower = follow()
    await watched.called("wait", 1)
    await other.append([new_entry(number, at=LONG_AGO) for number in (1, 2, 3)])
    await follower.has(3)
    await watched.called("wait", 2)
    watched.close_gate("wait")
    await other.append([new_entry(number, at=LONG_AGO) for number in (4, 5)])
    await watched.arrived("wait")
    # The poll that was under way has found 4 and 5, and no poll will find the next three.
    await other.append([new_entry(number, at=LONG_AGO) for number in (6, 7, 8)])
    await other.trim(A_DAY_LATER)
    await other.append([new_entry(9), new_entry(10)])
    watched.open_gate("wait")
    await follower.has(10)
    assert follower.ids == [1, 2, 3, 4, 5, 9, 10]
    late = follow(after=4)
    await late.has(10)
    assert late.ids == [5, 9, 10]


async def test_two_logs_are_followed_at_once_and_do_not_mix(feed: EventFeed, follow: Follow, other: EventLog) -> None:
    """By one poll; a log that is joined later is found by it too."""
    first = follow()
    await other.append(new_entries(3))
    await first.has(3)
    second = follow(OTHER_LOG)
    await other.append([*new_entries(2, OTHER_SOURCE), *new_entries(2, first=4)])
    await second.has(2)
    await first.has(5)
    await other.append(new_entries(1, OTHER_SOURCE, first=3))
    await second.has(3)
    assert (first.ids, second.ids) == ([1, 2, 3, 4, 5], [1, 2, 3])


async def test_a_log_that_nobody_follows_any_more_is_not_polled(
    follow: Follow, watched: WatchedLog, other: EventLog
) -> None:
    """Its tail goes with the last of its followers."""
    followers = [follow(), follow(), follow(OTHER_LOG)]
    for number in (1, 2):  # The first may be read by each itself, the second is found by the poll.
        await other.append([new_entry(number), new_entry(number, OTHER_SOURCE)])
        for follower in followers:
            await follower.has(number)
    assert set(watched.positions) == {LOG, OTHER_LOG}
    await followers[0].leave()
    await other.append([*new_entries(1, first=3), *new_entries(1, OTHER_SOURCE, first=3)])
    await followers[1].has(3)
    await followers[2].has(3)
    assert set(watched.positions) == {LOG, OTHER_LOG}
    await followers[1].leave()
    await other.append(new_entries(1, OTHER_SOURCE, first=4))
    await followers[2].has(4)
    again = follow("default/Desk/third")
    for number in (1, 2):
        await other.append([new_entry(number, "default/Desk/third/turns/1")])
        await again.has(number)
    assert set(watched.positions) == {OTHER_LOG, "default/Desk/third"}


async def test_the_poll_ends_with_the_last_follower_and_begins_with_the_next(
    follow: Follow, watched: WatchedLog, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose readers are gone asks the log nothing."""
    monkeypatch.setattr("turnkeeper.event_log.feed.WAIT_PATIENCE", timedelta(milliseconds=20))
    before = asyncio.all_tasks()
    follower = follow()
    await other.append(new_entries(1))
    await follower.has(1)
    await follower.leave()
    async with asyncio.timeout(5):
        await asyncio.wait(asyncio.all_tasks() - before)
    asked = watched.calls["wait"]
    again = follow()
    await again.has(1)
    await other.append([new_entry(2)])
    await again.has(2)
    assert again.ids == [1, 2]
    assert watched.calls["wait"] > asked


async def test_what_a_poll_finds_is_not_given_to_a_follower_who_has_not_begun(
    follow: Follow, watched: WatchedLog, other: EventLog
) -> None:
    """The last follower leaves and another joins while a poll is under way: the other one misses nothing."""
    await other.append(new_entries(3))
    earlier = follow(after=2)
    await earlier.has(3)
    watched.close_gate("wait answer")
    await other.append(new_entries(2, first=4))
    await watched.arrived("wait answer")
    await earlier.leave()
    watched.close_gate("bounds")
    later = follow()
    await watched.arrived("bounds")
    watched.open_gate("wait answer")
    await other.append(new_entries(1, first=6))
    await asyncio.wait([asyncio.create_task(later.has(1))], timeout=0.1)
    watched.open_gate("bounds")
    await later.has(6)
    assert later.ids == [1, 2, 3, 4, 5, 6]


async def test_followers_go_on_when_a_log_that_failed_is_back(
    store: Store, follow: Follow, watched: WatchedLog, other: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see nothing meanwhile, and no error."""
    monkeypatch.setattr("turnkeeper.event_log.feed.RETRY_PAUSE", timedelta(milliseconds=20))
    monkeypatch.setattr("turnkeeper.event_log.feed.WAIT_PATIENCE", timedelta(milliseconds=20))
    follower = follow()
    await other.append(new_entries(1))
    await follower.has(1)
    with monkeypatch.context() as patch:
        patch.setattr("turnkeeper.event_log.redis.SERVER_PATIENCE", timedelta(milliseconds=100))
        store.pause()
        polls = watched.calls["wait"]
        await watched.called("wait", polls + 3)
        store.resume()
    await other.append(new_entries(1, first=2))
    await follower.has(2)
    assert follower.ids == [1, 2]


async def test_a_closed_feed_leaves_nothing_running(watched: WatchedLog) -> None:
    """Also when a poll is under way: the log can be closed next."""
    before = asyncio.all_tasks()
    feed = EventFeed(watched)
    follower = Follower(feed, LOG, 0)
    watched.close_gate("wait")
    await watched.arrived("wait")
    await follower.leave()
    await feed.close()
    assert asyncio.all_tasks() - before == set()


async def test_a_page_holds_whole_entries(feed: EventFeed, follow: Follow, other: EventLog) -> None:
    """What is followed is what is read."""
    await other.append(new_entries(2))
    pages: list[Entry] = []
    async with aclosing(feed.follow(LOG, 0)) as following:
        pages += await anext(following)
        await other.append(new_entries(1, first=3))
        pages += await anext(following)
    assert pages == await other.read(LOG)
