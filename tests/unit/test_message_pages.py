"""The messages that a workflow holds, and the pages in which it hands them out."""

import pytest

from turnkeeper.messages import UIMessage, user_message
from turnkeeper.turns import MessagesPage
from workflows.message_pages import PAGE_BYTES, MessageLog


def _messages(count: int, text: str = "hi") -> list[UIMessage]:
    return [user_message(f"m{number}", text) for number in range(count)]


def _read_all(log: MessageLog, open_message: UIMessage | None = None) -> tuple[list[UIMessage], list[MessagesPage]]:
    """Read as clients do: page by page, until as many messages came as there are."""
    messages: list[UIMessage] = []
    pages = [log.page(0, open_message)]
    messages.extend(pages[0].messages)
    while len(messages) < pages[-1].total:
        pages.append(log.page(len(messages), open_message))
        assert pages[-1].messages
        messages.extend(pages[-1].messages)
    return messages, pages


def test_few_messages_are_one_page() -> None:
    """In order, with their number and the revision."""
    messages = _messages(3)
    log = MessageLog(messages)
    assert log.page(0, revision=2) == MessagesPage(messages=tuple(messages), total=3, revision=2)
    assert log.page(2).messages == (messages[2],)


def test_an_empty_log_has_an_empty_page() -> None:
    """Nothing is an answer too."""
    assert MessageLog().page(0) == MessagesPage(messages=(), total=0)


@pytest.mark.parametrize("after", [3, 4, 100])
def test_a_reader_that_has_everything_gets_nothing(after: int) -> None:
    """Also one that claims to have more."""
    assert MessageLog(_messages(3)).page(after) == MessagesPage(messages=(), total=3)


def test_many_messages_are_several_pages_without_gaps() -> None:
    """Every message comes once, in order; every page but the last is well filled."""
    messages = _messages(40, "x" * 20_000)
    read, pages = _read_all(MessageLog(messages))
    assert read == messages
    assert [len(page.messages) for page in pages] == [10, 10, 10, 10]


@pytest.mark.parametrize("letter", ["x", "字"])
def test_a_page_stays_under_its_limit_in_every_alphabet(letter: str) -> None:
    """The limit is in bytes, because what it keeps clear of is."""
    _, pages = _read_all(MessageLog(_messages(40, letter * 20_000)))
    assert max(len(page.model_dump_json().encode()) for page in pages) <= PAGE_BYTES + 1024


def test_a_message_larger_than_a_page_has_a_page_of_its_own() -> None:
    """Nothing is too large to be read."""
    messages = [*_messages(1), user_message("large", "x" * (PAGE_BYTES + 1)), user_message("last", "hi")]
    read, pages = _read_all(MessageLog(messages))
    assert read == messages
    assert [len(page.messages) for page in pages] == [1, 1, 1]


def test_the_open_message_comes_last_and_is_counted() -> None:
    """A reader sees the step that is being worked on."""
    messages, open_message = _messages(2), user_message("open", "...")
    page = MessageLog(messages).page(0, open_message)
    assert (page.messages, page.total) == ((*messages, open_message), 3)
    assert MessageLog().page(0, open_message).messages == (open_message,)


def test_the_open_message_comes_on_the_last_page_only() -> None:
    """It is never taken for a message in the middle."""
    messages, open_message = _messages(11, "x" * 20_000), user_message("open", "...")
    read, pages = _read_all(MessageLog(messages), open_message)
    assert read == [*messages, open_message]
    assert [page.total for page in pages] == [12, 12]


def test_a_reader_that_has_the_open_message_gets_nothing() -> None:
    """It does not come twice."""
    assert MessageLog(_messages(2)).page(3, user_message("open", "...")).messages == ()


def test_messages_are_added_at_the_end_and_removed_all_at_once() -> None:
    """A log grows until it is cleared."""
    log = MessageLog(_messages(2))
    log.append(user_message("new", "hi"))
    assert (len(log), log.messages[-1].id) == (3, "new")
    log.clear()
    assert (len(log), log.messages, log.page(0).total) == (0, (), 0)
