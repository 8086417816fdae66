"""Detached runs: what their dispatcher asks for, and what of it travels."""

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from turnkeeper.dispatches import DetachedOptions
from turnkeeper.errors import InvalidRequest
from turnkeeper.webhooks import check_webhook_url
from turnkeeper.wire import WireModel

if TYPE_CHECKING:
    from turnkeeper.agents import Agent

DEFAULT_MAX_BUDGET = timedelta(hours=24)
"""How long a detached run may take, unless its dispatcher or the dispatcher's class says otherwise (BU-01)."""

DEFAULT_NO_PROGRESS_BUDGET = timedelta(hours=1)
"""How long a detached run that has reported once may be silent (BU-02)."""

NOTIFY_SOURCE = "detached-agent-tool"
"""`metadata.source` of notices, unless their dispatcher names another (NT-04)."""

OnFinish = Callable[..., Awaitable[None]] | str


class Milestones(BaseModel, frozen=True):
    """Which milestones of a detached run the conversation hears of (OM-02)."""

    names: tuple[str, ...]
    mode: Literal["narrate", "react"] = "narrate"
    """Whether the assistant just says so, or the model takes a turn on it."""


class Detached(BaseModel):
    """How a run that nobody awaits is watched, and who is told of its end (DD-04)."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    on_finish: Any = None
    """A method of the dispatching agent, `async def (self, run: AgentToolRunInfo, result: AgentToolResult)`, or its
    name."""
    max_budget: timedelta | None = None
    """How long the run may take; the class's `detached_max_budget` if not given."""
    no_progress_budget: timedelta | float | None = None
    """How long it may be silent after its first report; 0 or infinity for no such budget (BU-05)."""
    notify: bool | str = False
    """Whether the end becomes a message to the dispatching agent, which takes a turn on it; a text is its source."""
    on_milestones: Milestones | Sequence[str] = ()
    """Milestones of which the conversation hears, once each."""
    webhook: str | None = None
    """An http(s) URL to which the end is posted as well, signed (docs/webhooks.md)."""

    @field_validator("max_budget", "no_progress_budget")
    @classmethod
    def _not_negative(cls, value: timedelta | float | None) -> timedelta | float | None:
        """Refuse what is no budget (BU-11 as decided)."""
        if value is not None and _seconds(value) < 0:
            raise ValueError("a budget cannot be negative")
        return value

    @field_validator("max_budget")
    @classmethod
    def _not_zero(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not value:
            raise ValueError("0 means no budget only for no_progress_budget; give a max_budget above 0")
        return value


class DetachedRequest(WireModel):
    """A `Detached` on its way to a process that has the dispatching agent's class."""

    on_finish: str | None = None
    max_budget: timedelta | None = None
    no_progress_seconds: float | None = None
    """0 for no such budget; None for the class's."""
    notify: bool | str = False
    milestones: Milestones = Milestones(names=())
    webhook: str | None = None

    @classmethod
    def of(cls, asked: Detached) -> "DetachedRequest":
        """Return what travels."""
        silence = asked.no_progress_budget
        window = None if silence is None else _window(silence)
        return cls(
            on_finish=None if asked.on_finish is None else _name_of(asked.on_finish),
            max_budget=asked.max_budget,
            no_progress_seconds=None if silence is None else window.total_seconds() if window else 0,
            notify=asked.notify,
            milestones=_milestones(asked.on_milestones),
            webhook=asked.webhook,
        )

    @property
    def detached(self) -> Detached:
        """What was asked for."""
        return Detached(
            on_finish=self.on_finish,
            max_budget=self.max_budget,
            no_progress_budget=self.no_progress_seconds,
            notify=self.notify,
            on_milestones=self.milestones,
            webhook=self.webhook,
        )


def options_of(agent: "type[Agent]", detached: Detached | Literal[True]) -> DetachedOptions:
    """Return what travels of a detached dispatch by an agent.

    Raises:
        InvalidRequest: `on_finish` is not a method that the agent's class declares (DD-03), or nothing may
            be posted to the webhook.
    """
    asked = Detached() if detached is True else detached
    callback = None if asked.on_finish is None else callback_name(agent, asked.on_finish)
    milestones = _milestones(asked.on_milestones)
    silence = agent.detached_no_progress_budget if asked.no_progress_budget is None else asked.no_progress_budget
    return DetachedOptions(
        on_finish=callback,
        max_budget=asked.max_budget or agent.detached_max_budget,
        no_progress_budget=_window(silence),
        notify_source=asked.notify if isinstance(asked.notify, str) else NOTIFY_SOURCE if asked.notify else None,
        milestones=milestones.names,
        milestone_mode=milestones.mode,
        webhook=None if asked.webhook is None else check_webhook_url(asked.webhook),
    )


def callback_name(agent: "type[Agent]", callback: OnFinish) -> str:
    """Return the name of a callback, once it is sure that it can be called by name later.

    Raises:
        InvalidRequest: it is not a public method that the author's classes declare.
    """
    name = _name_of(callback)
    problem = callback_problem(agent, name)
    if problem is not None:
        raise InvalidRequest(f"on_finish={name!r}: {problem}")
    return name


def callback_problem(agent: "type[Agent]", name: str) -> str | None:
    """Return why a name is no callback of an agent, or None if it is one."""
    from turnkeeper.agents import Agent, ChatAgent

    if name.startswith("_"):
        return "a callback's name does not begin with an underscore"
    if any(name in base.__dict__ for base in (Agent, ChatAgent)):
        return "that is a method of the framework's; name one of your own"
    declared = inspect.getattr_static(agent, name, None)
    if declared is None:
        return f"{agent.__name__} has no such method"
    if not inspect.iscoroutinefunction(declared):
        return f"{agent.__name__}.{name} is not an `async def` method"
    return None


def reattach_timeout(value: timedelta | float) -> timedelta | None:
    """Return how long a joined run may be silent; here 0 means not to wait, and infinity to wait for ever (RC-10)."""
    seconds = _seconds(value)
    return timedelta(seconds=max(seconds, 0)) if math.isfinite(seconds) else None


def _name_of(callback: OnFinish) -> str:
    return callback if isinstance(callback, str) else getattr(callback, "__name__", "")


def _milestones(asked: Milestones | Sequence[str]) -> Milestones:
    return asked if isinstance(asked, Milestones) else Milestones(names=tuple(asked))


def _seconds(value: timedelta | float) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def _window(value: timedelta | float) -> timedelta | None:
    seconds = _seconds(value)
    return timedelta(seconds=seconds) if seconds > 0 and math.isfinite(seconds) else None
