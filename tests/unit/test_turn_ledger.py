"""What a session remembers of its turns, and of the submissions that became them."""

from datetime import UTC, datetime, timedelta

import pytest

from turnkeeper.errors import Conflict, NotFound
from turnkeeper.turns import TurnInfo, TurnRecord
from workflows.turn_ledger import REMEMBERED_TURNS, TurnLedger

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def _ledger(turns: int = 0, *, ended: bool = True) -> TurnLedger:
    ledger = TurnLedger((), 0)
    for number in range(1, turns + 1):
        turn = ledger.add(f"s{number}", f"d{number}", f"m{number}", NOW)
        if ended:
            ledger.end(turn.turn_id, "completed", None, NOW)
    return ledger


def test_a_new_submission_becomes_the_next_turn() -> None:
    """Turn ids count from 1, and never start over."""
    ledger = _ledger(1)
    turn = ledger.add("s", "d", "m", NOW)
    assert turn == TurnInfo(turn_id="2", submission_id="s", message_id="m", status="queued", submitted_at=NOW)
    assert ledger.submitted == 2
    assert ledger.get("2") == ledger.lookup("2") == ledger.latest[-1] == turn


def test_a_turn_starts_and_ends() -> None:
    """Its times and its error are kept."""
    ledger = _ledger(2, ended=False)
    assert ledger.active_turn_id is None
    ledger.start("1", NOW)
    assert ledger.active_turn_id == "1"
    ended = ledger.end("1", "error", "boom", LATER)
    assert (ended.status, ended.error, ended.started_at, ended.completed_at) == ("error", "boom", NOW, LATER)
    assert ledger.get("1") == ended
    assert ledger.active_turn_id is None


def test_a_queued_turn_may_end_without_having_started() -> None:
    """A turn that is cancelled while it waits."""
    ledger = _ledger(1, ended=False)
    ended = ledger.end("1", "aborted", "cancelled", LATER)
    assert (ended.status, ended.started_at) == ("aborted", None)


def test_a_submission_that_comes_again_is_the_same_turn() -> None:
    """A client that was not answered sends it again, with the same id."""
    ledger = _ledger(2)
    ledger.check("s1", "d1")
    assert ledger.find("s1") == ledger.get("1")
    assert ledger.find("new") is None


def test_a_submission_id_that_was_used_for_another_message_is_a_conflict() -> None:
    """The text names the submission and its turn."""
    ledger = _ledger(1)
    with pytest.raises(Conflict, match=r"'s1' was used for another message \(turn 1\)"):
        ledger.check("s1", "other")
    ledger.check("new", "other")


def test_an_unknown_turn_is_not_found() -> None:
    """The text names the turn."""
    with pytest.raises(NotFound, match="'7'"):
        _ledger(1).get("7")
    assert _ledger(1).lookup("7") is None


def test_the_oldest_ended_turns_are_forgotten() -> None:
    """A session's state does not grow with its age."""
    ledger = _ledger(REMEMBERED_TURNS + 3)
    assert ledger.lookup("3") is None
    assert [turn.turn_id for turn in ledger.latest] == [str(number) for number in range(4, REMEMBERED_TURNS + 4)]
    assert len(ledger.records) == REMEMBERED_TURNS


def test_a_turn_that_has_not_ended_is_never_forgotten() -> None:
    """However many wait."""
    ledger = _ledger(REMEMBERED_TURNS + 3, ended=False)
    assert len(ledger.latest) == REMEMBERED_TURNS + 3


def test_a_submission_is_recognised_as_long_as_its_turn_is_remembered() -> None:
    """It never becomes a second turn while its first one can still be asked for, and is then forgotten with it."""
    ledger = _ledger(REMEMBERED_TURNS + 5)
    assert ledger.find("s6") == ledger.get("6")
    with pytest.raises(Conflict, match="turn 6"):
        ledger.check("s6", "other")
    assert ledger.find("s5") is None
    ledger.check("s5", "other")


def test_a_submission_that_was_forgotten_may_come_again_as_a_new_turn() -> None:
    """It is then remembered like any other, and recognised with its new message."""
    ledger = _ledger(REMEMBERED_TURNS + 5)
    turn = ledger.add("s5", "other", "m", NOW)
    assert ledger.find("s5") == turn
    ledger.check("s5", "other")
    with pytest.raises(Conflict, match=f"turn {turn.turn_id}"):
        ledger.check("s5", "d5")


def test_a_submission_that_waits_is_recognised_however_many_wait() -> None:
    """A turn that has not ended is never forgotten, nor is its submission."""
    ledger = _ledger(REMEMBERED_TURNS + 3, ended=False)
    assert ledger.find("s1") == ledger.get("1")


def test_a_ledger_goes_on_after_a_continue_as_new() -> None:
    """Its records and the count are its whole state."""
    before = _ledger(3)
    before.start(before.add("s4", "d4", "m4", NOW).turn_id, LATER)
    carried = [TurnRecord.model_validate_json(record.model_dump_json()) for record in before.records]
    after = TurnLedger(carried, before.submitted)
    assert (after.records, after.latest, after.active_turn_id) == (before.records, before.latest, "4")
    assert after.find("s2") == before.get("2")
    with pytest.raises(Conflict, match="turn 2"):
        after.check("s2", "other")
    assert after.add("s", "d", "m", NOW).turn_id == "5"
