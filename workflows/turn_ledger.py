"""What a session remembers of its turns and of the submissions that became them."""

from collections.abc import Iterable
from datetime import datetime

from turnkeeper.errors import Conflict, NotFound
from turnkeeper.turns import KnownSubmission, TurnInfo, TurnStatus

REMEMBERED_TURNS = 200
"""Turns that are listed; older ones are still in Temporal under their ids."""

REMEMBERED_SUBMISSIONS = 1_000
"""Submission ids that are recognised when they come again."""


class TurnLedger:
    """Turns by id, oldest first; bounded, so that a session's state does not grow with its age."""

    def __init__(self, turns: Iterable[TurnInfo], known: Iterable[KnownSubmission], submitted: int) -> None:
        """Begin with what an earlier execution remembered."""
        self._turns = {turn.turn_id: turn for turn in turns}
        self._known = {submission.submission_id: submission for submission in known}
        self.submitted = submitted
        """How many turns were ever submitted; the last turn's id."""

    @property
    def latest(self) -> tuple[TurnInfo, ...]:
        """The remembered turns."""
        return tuple(self._turns.values())

    @property
    def known(self) -> tuple[KnownSubmission, ...]:
        """The remembered submissions."""
        return tuple(self._known.values())

    @property
    def active_turn_id(self) -> str | None:
        """The turn that is going on, if one is."""
        return next((turn.turn_id for turn in self._turns.values() if turn.status == "running"), None)

    def lookup(self, turn_id: str) -> TurnInfo | None:
        """Return a turn, or None if it is unknown or forgotten."""
        return self._turns.get(turn_id)

    def get(self, turn_id: str) -> TurnInfo:
        """Return a turn.

        Raises:
            NotFound: it is unknown or forgotten.
        """
        turn = self._turns.get(turn_id)
        if turn is None:
            raise NotFound(f"this instance has no turn {turn_id!r} among its latest {REMEMBERED_TURNS}")
        return turn

    def check(self, submission_id: str, digest: str) -> None:
        """Refuse a submission id that was used for another message.

        Raises:
            Conflict: it was.
        """
        known = self._known.get(submission_id)
        if known is not None and known.digest != digest:
            raise Conflict(f"the submission id {submission_id!r} was used for another message (turn {known.turn_id})")

    def find(self, submission_id: str) -> TurnInfo | None:
        """Return the turn that a submission became, or None if it is new."""
        known = self._known.get(submission_id)
        return self._turns.get(known.turn_id) if known else None

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
        self._turns[turn.turn_id] = turn
        self._known[submission_id] = KnownSubmission(submission_id=submission_id, turn_id=turn.turn_id, digest=digest)
        self._forget_oldest()
        return turn

    def start(self, turn_id: str, now: datetime) -> None:
        """Note that a turn begins."""
        self._update(turn_id, status="running", started_at=now)

    def end(self, turn_id: str, status: TurnStatus, error: str | None, now: datetime) -> TurnInfo:
        """Note how a turn ended."""
        return self._update(turn_id, status=status, error=error, completed_at=now)

    def _update(self, turn_id: str, **changes: object) -> TurnInfo:
        self._turns[turn_id] = self._turns[turn_id].model_copy(update=changes)
        return self._turns[turn_id]

    def _forget_oldest(self) -> None:
        ended = [turn_id for turn_id, turn in self._turns.items() if turn.completed_at is not None]
        for turn_id in ended[: max(0, len(self._turns) - REMEMBERED_TURNS)]:
            del self._turns[turn_id]
        for submission_id in list(self._known)[: max(0, len(self._known) - REMEMBERED_SUBMISSIONS)]:
            del self._known[submission_id]
