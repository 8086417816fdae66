"""Where a conversation is cut, and when a summary counts."""

import pytest
from model_server import problem_of

from activities.compaction import SMALLEST_EXCERPT, SUMMARY_OPENING, compact, shown
from activities.provider_messages import ProviderMessage, provider_messages
from turnkeeper.messages import ReasoningPart, StepStartPart, TextPart, ToolPart, UIMessage, user_message
from turnkeeper.turns import Compaction

LONG = "word " * 400


def step(number: int, text: str = "") -> UIMessage:
    """Return a model step with reasoning, a call and its result."""
    call = ToolPart(
        type="tool-look", tool_call_id=f"c{number}", state="output-available", input={"n": number}, output=LONG
    )
    parts = (StepStartPart(), ReasoningPart(text="hm"), TextPart(text=text), call)
    return UIMessage(id="turn-1", role="assistant", parts=parts)


class Model:
    """Summarises; finds excerpts over a length too long."""

    def __init__(self, summary: str = "in short", longest: int = 1_000_000) -> None:
        self.summary = summary
        self.longest = longest
        self.asked: list[str] = []

    async def summarise(self, messages: list[ProviderMessage]) -> str | None:
        """Answer."""
        self.asked.append(messages[-1]["content"])
        return self.summary if len(messages[-1]["content"]) <= self.longest else None


async def test_what_comes_before_the_last_question_gives_way_to_a_summary() -> None:
    """Issue D 4: the newest message and what follows it stay as they are."""
    messages = [user_message("1", LONG), step(0, "found it"), user_message("2", "and now?"), step(1)]
    model = Model()
    made = await compact(messages, None, model.summarise)
    assert made == Compaction(summary="in short", replaces=2)
    assert shown(messages, made)[1:] == messages[2:]
    assert shown(messages, made)[0].text == f"{SUMMARY_OPENING}\n\nin short"
    assert "found it" in model.asked[0]
    assert problem_of({"messages": provider_messages("", shown(messages, made))}) is None


async def test_a_long_turn_is_cut_between_its_steps() -> None:
    """Issue D 4: a call, its result and its reasoning are never parted."""
    messages = [user_message("1", "look"), *(step(number) for number in range(5))]
    made = await compact(messages, None, Model().summarise)
    assert made == Compaction(summary="in short", replaces=5)
    assert shown(messages, made)[1:] == [messages[-1]]
    assert problem_of({"messages": provider_messages("", shown(messages, made))}) is None


async def test_a_summary_is_summarised_with_what_came_after_it() -> None:
    """Issue D 4: a second compaction loses nothing of the first."""
    messages = [user_message("1", LONG), step(0), user_message("2", "b"), step(1), user_message("3", "c")]
    model = Model("shorter")
    made = await compact(messages, Compaction(summary="the first summary", replaces=2), model.summarise)
    assert made == Compaction(summary="shorter", replaces=4)
    assert "the first summary" in model.asked[0]


@pytest.mark.parametrize(
    "messages",
    [[], [user_message("1", LONG)], [user_message("1", "short"), UIMessage(id="m", role="assistant")]],
    ids=["nothing", "one message", "nothing long"],
)
async def test_what_cannot_be_shortened_is_not(messages: list[UIMessage]) -> None:
    """Field case 18: a compaction only counts if it shrank something."""
    assert await compact(messages, None, Model("a summary that is longer than what it stands for").summarise) is None


async def test_an_empty_summary_does_not_count() -> None:
    """Field case 18: the model has to say something."""
    assert await compact([user_message("1", LONG), user_message("2", "b")], None, Model(" ").summarise) is None


async def test_an_excerpt_that_is_too_long_itself_is_halved_until_it_is_not() -> None:
    """Issue D 4: bounded attempts, of which each has half of what the one before had."""
    messages = [*(user_message(str(number), LONG) for number in range(20)), user_message("last", "b")]
    model = Model(longest=10_000)
    assert await compact(messages, None, model.summarise) == Compaction(summary="in short", replaces=20)
    assert [len(text) for text in model.asked] == sorted((len(text) for text in model.asked), reverse=True)
    hopeless = Model(longest=SMALLEST_EXCERPT // 4)
    assert await compact(messages, None, hopeless.summarise) is None
    assert len(hopeless.asked) < 10
