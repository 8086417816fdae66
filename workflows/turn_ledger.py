"""What a session remembers of its turns and of the submissions that became them."""

from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b

from turnkeeper.errors import Conflict, NotFound
from turnkeeper.messages import UIMessage
from turnkeeper.turns import TurnInfo, TurnRecord, TurnStatus

REMEMBERED_TURNS = 500
"""Turns that are listed, and whose submissions are recognised when they come again; older ones are in Temporal only."""


class TurnLedger:
    """Turns by id, oldest first; bounded, so that a session's state does not grow with its age."""

    def __init__(self, records: Iterable[TurnRecord], submitted: int) -> None:
        """Begin with what an earlier execution remembered."""
        self._records = {record.info.turn_id: record for record in records}
        self._by_submission = {record.info.submission_id: record.info.turn_id for record in self._records.values()}
        self.submitted = submitted
        """How many turns were ever submitted; the last turn's id."""

    @property
    def records(self) -> tuple[TurnRecord, ...]:
        """What a continue-as-new carries."""
        return tuple(self._records.values())

    @property
    def latest(self) -> tuple[TurnInfo, ...]:
        """The remembered turns."""
        return tuple(record.info for record in self._records.values())

    @property
    def active_turn_id(self) -> str | None:
        """The turn that is going on, if one is."""
        return next((turn.turn_id for turn in self.latest if turn.status == "running"), None)

    def lookup(self, turn_id: str) -> TurnInfo | None:
        """Return a turn, or None if it is unknown or forgotten."""
        record = self._records.get(turn_id)
        return record.info if record else None

    def get(self, turn_id: str) -> TurnInfo:
        """Return a turn.

        Raises:
            NotFound: it is unknown or forgotten.
        """
        turn = self.lookup(turn_id)
        if turn is None:
            raise NotFound(f"this instance has no turn {turn_id!r} among its latest {REMEMBERED_TURNS}")
        return turn

    def check(self, submission_id: str, digest: str) -> None:
        """Refuse a submission id that was used for another message.

        Raises:
            Conflict: it was.
        """
        turn_id = self._by_submission.get(submission_id)
        if turn_id is not None and self._records[turn_id].digest != digest:
            raise Conflict(f"the submission id {submission_id!r} was used for another message (turn {turn_id})")

    def find(self, submission_id: str) -> TurnInfo | None:
        """Return the turn that a submission became, or None if it is new."""
        turn_id = self._by_submission.get(submission_id)
        return self._records[turn_id].info if turn_id is not None else None

    def add(self, submission_id: str, digest: str, message_id: str, now: datetime) -> TurnInfo:
        """Give a new submission the next turn id."""
        self.submitted += 1
        turn = TurnInfo(
            turn_id=str(self.submitted),
            submission_id=submission_id,
            message_id=message_id,
            status="queued",
            submitted_at=now,
        )
        self._records[turn.turn_id] = TurnRecord(info=turn, digest=digest)
        self._by_submission[submission_id] = turn.turn_id
        self._forget_oldest()
        return turn

    def start(self, turn_id: str, now: datetime) -> None:
        """Note that a turn begins."""
        self._update(turn_id, status="running", started_at=now)

    def end(self, turn_id: str, status: TurnStatus, error: str | None, now: datetime) -> TurnInfo:
        """Note how a turn ended."""
        return self._update(turn_id, status=status, error=error, completed_at=now)

    def _update(self, turn_id: str, **changes: object) -> TurnInfo:
        record = self._records[turn_id]
        info = record.info.model_copy(update=changes)
        self._records[turn_id] = record.model_copy(update={"info": info})
        return info

    def _forget_oldest(self) -> None:
        ended = [turn for turn in self.latest if turn.completed_at is not None]
        for turn in ended[: max(0, len(self._records) - REMEMBERED_TURNS)]:
            del self._records[turn.turn_id]
            del self._by_submission[turn.submission_id]


def message_digest(message: UIMessage) -> str:
    """Return a fingerprint of what a message says; its id may differ between two tries."""
    content = message.model_copy(update={"id": ""}).model_dump_json()
    return blake2b(content.encode(), digest_size=16).hexdigest()
