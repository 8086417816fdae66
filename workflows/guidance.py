"""What people say into a turn or run that goes on: a message before its next step, or to wrap up."""

from turnkeeper.messages import STEERING, DataPart, UIMessage
from turnkeeper.turns import GuidanceState, SteerInput, WrapUpInput

WRAP_UP_ID = "wrap-up"
WRAP_UP_TEXT = "Finish now: give your answer with what you have, and call no more tools."


class Guidance:
    """What was said and not yet put before the model."""

    def __init__(self, state: GuidanceState | None, message_id: str) -> None:
        """Begin, or go on after a continue-as-new.

        Args:
            state: what was before.
            message_id: the id of the assistant message that the loop writes.
        """
        known = state or GuidanceState()
        self._message_id = message_id
        self._waiting = list(known.waiting)
        self._seen = list(known.seen)
        self.is_wrapping_up = known.is_wrapping_up

    @property
    def state(self) -> GuidanceState:
        """What a continue-as-new carries."""
        return GuidanceState(waiting=tuple(self._waiting), seen=tuple(self._seen), is_wrapping_up=self.is_wrapping_up)

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be put before the model."""
        return bool(self._waiting)

    def steer(self, said: SteerInput) -> None:
        """Take a message; the same id again is the same message."""
        if said.message_id not in self._seen:
            self._seen.append(said.message_id)
            self._waiting.append(said)

    def wrap_up(self, asked: WrapUpInput) -> None:
        """Have the next step be the last one."""
        if self.is_wrapping_up:
            return
        self.is_wrapping_up = True
        reason = f" The reason: {asked.reason}." if asked.reason else ""
        self.steer(SteerInput(message_id=WRAP_UP_ID, text=f"{WRAP_UP_TEXT}{reason}"))

    def take(self) -> UIMessage | None:
        """Return what was said since the last time, as a piece of the assistant's message, or None."""
        if not self._waiting:
            return None
        parts = tuple(DataPart(type=STEERING, id=said.message_id, data={"text": said.text}) for said in self._waiting)
        self._waiting.clear()
        return UIMessage(id=self._message_id, role="assistant", parts=parts)
