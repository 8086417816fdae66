"""The example's agents, searches and offline model, without Temporal."""

import asyncio
import json
import sqlite3
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from unbacked_runtime import UnbackedRuntime

from examples.research_desk import Assistant, Importer, Planner, Researcher
from examples.research_desk.distributions import InstalledDistribution, RecordRow, installed_distributions
from examples.research_desk.offline_model import OfflineModel
from examples.research_desk.prose import MAX_PARAGRAPH, paragraphs, sentences
from examples.research_desk.searches import find_distributions, find_passages
from turnkeeper.agents import Agent
from turnkeeper.errors import Unavailable
from turnkeeper.messages import UIMessage
from turnkeeper.models import CustomModelReply, CustomModelToolCall
from turnkeeper.progress import ReportOutcome
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import AgentToolResult, AgentToolRunHandle, Display, compact_json, input_text
from turnkeeper.runtime import ToolCall
from turnkeeper.tools import AgentTool, FunctionTool
from workflows.deliveries import completion_text

Message = dict[str, Any]


class InlineRuntime(UnbackedRuntime):
    """Carries runs out on the spot: each is a conversation of its own."""

    instance = "default/Assistant/demo"
    turn_id = "1"
    tool_call: ToolCall | None = None
    messages: tuple[UIMessage, ...] = ()

    def __init__(self, broken: Mapping[str, AgentToolResult | Unavailable] | None = None) -> None:
        """Let the runs for the queries in `broken` end otherwise."""
        self._broken = broken or {}
        self.dispatched: list[tuple[JsonValue, int, Display | None]] = []
        self.reports: list[dict[str, Any]] = []

    async def report_progress(self, **report: Any) -> ReportOutcome:
        """Take a report."""
        self.reports.append(report)
        return "emitted"

    async def run_agent_tool(
        self,
        agent: type[Agent] | str,
        value: JsonValue,
        *,
        run_id: str | None = None,
        input_preview: JsonValue = None,
        display_order: int = 0,
        display: Display | None = None,
    ) -> AgentToolResult:
        """Dispatch a run and wait for its end."""
        assert not isinstance(agent, str)
        self.dispatched.append((value, display_order, display))
        broken = self._broken.get(str(value["query"]) if isinstance(value, dict) and "query" in value else "")
        if isinstance(broken, Unavailable):
            raise broken
        if broken is not None:
            return broken
        summary = await converse(agent(self), input_text(value))
        return AgentToolResult(run_id="r", agent_type=agent.agent_type, status="completed", summary=summary)


async def converse(agent: Agent, prompt: str) -> str:
    """Return the answer to a prompt, after the tool calls that the offline model makes on the way."""
    messages: list[Message] = [{"role": "system", "content": agent.instructions}, {"role": "user", "content": prompt}]
    reply = await reply_to(messages, *agent.tools)
    for call in reply.tool_calls:
        result = await carry_out(agent, call)
        messages += called(call.name, call.arguments, result if isinstance(result, str) else compact_json(result))
    if reply.tool_calls:
        reply = await reply_to(messages, *agent.tools)
    assert not reply.tool_calls
    return reply.text or ""


async def carry_out(agent: Agent, call: CustomModelToolCall) -> JsonValue:
    """Return the result of a tool call."""
    tool = agent.tools[call.name]
    if isinstance(tool, AgentTool):
        assert not isinstance(tool.agent, str)
        result = await agent.run_agent_tool(tool.agent, input=tool.parse_input(call.arguments), display=tool.display)
        if tool.detached is False:
            return result.summary
        handle = AgentToolRunHandle(run_id="r", agent_type=result.agent_type, status="running")
        return handle.model_dump(mode="json")
    assert isinstance(tool, FunctionTool)
    try:
        return tool.dump_result(await getattr(agent, tool.method_name)(**tool.parse_arguments(call.arguments)))
    except ValueError as error:
        return f"ValueError: {error}"


async def reply_to(messages: list[Message], *tools: str) -> CustomModelReply:
    """Return what the offline model answers when the named tools are offered."""
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    return await OfflineModel().complete("rules", messages, offered)


async def call_for(prompt: str, *tools: str) -> tuple[str, dict[str, JsonValue]] | None:
    """Return the tool call that the offline model makes for a prompt."""
    reply = await reply_to([{"role": "user", "content": prompt}], *tools)
    return (reply.tool_calls[0].name, reply.tool_calls[0].arguments) if reply.tool_calls else None


async def answer_to(tool: str, arguments: dict[str, JsonValue], result: str) -> str:
    """Return what the offline model makes of one tool result."""
    messages: list[Message] = [{"role": "user", "content": "asked"}, *called(tool, arguments, result)]
    reply = await reply_to(messages, tool)
    assert not reply.tool_calls
    return reply.text or ""


def called(tool: str, arguments: dict[str, JsonValue], result: str) -> list[Message]:
    """Return the messages of a tool call and its result."""
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": compact_json(arguments)}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def failed_run(error: str) -> AgentToolResult:
    """Return how a run ended that failed."""
    return AgentToolResult(run_id="r", agent_type="Researcher", status="error", error=error)


def described(name: str, summary: str, *texts: str) -> InstalledDistribution:
    """Return a distribution that is not installed."""
    return InstalledDistribution(name=name, version="1.0", summary=summary, paragraphs=texts)


def test_the_registry_loads_the_four_agents_and_the_offline_model() -> None:
    """What a worker is told in its settings is the package's name."""
    registry = AgentRegistry.load(["examples.research_desk"])
    assert registry.agent_types == ["Assistant", "Importer", "Planner", "Researcher"]
    assert list(registry.custom_models) == ["offline"]
    assert registry.profile("Assistant").max_concurrent_agent_tools == 4


def test_the_assistant_offers_three_agents_and_a_comparison() -> None:
    """Section 5: research and plan with their least lengths, compare, and the import."""
    tools = Assistant.tools
    assert sorted(tools) == ["compare", "import_records", "plan", "research", "research_background"]
    assert {name: tool.agent_type for name, tool in tools.items() if isinstance(tool, AgentTool)} == {
        "research": "Researcher",
        "plan": "Planner",
        "import_records": "Importer",
        "research_background": "Researcher",
    }
    assert '"minLength": 3' in json.dumps(tools["research"].parameters)
    assert '"minLength": 5' in json.dumps(tools["plan"].parameters)
    assert json.dumps(tools["compare"].parameters).count('"minLength": 3') == 2


@pytest.mark.parametrize(
    ("prompt", "call"),
    [
        ("Research pydantic", ("research", {"query": "pydantic"})),
        ("please research durable execution.", ("research", {"query": "durable execution"})),
        ("Compare httpx and aiohttp", ("compare", {"left": "httpx", "right": "aiohttp"})),
        ("Compare httpx with aiohttp!", ("compare", {"left": "httpx", "right": "aiohttp"})),
        ("compare httpx vs. aiohttp", ("compare", {"left": "httpx", "right": "aiohttp"})),
        ("Plan a command line tool", ("plan", {"goal": "a command line tool"})),
        ("Research rich in the background.", ("research_background", {"query": "rich"})),
        ("Import everything", ("import_records", {})),
        ("Import the records into files.db, please", ("import_records", {"database": "files.db"})),
        ("Import into ../files.db", ("import_records", {"database": "../files.db"})),
    ],
)
async def test_a_prompt_becomes_the_tool_call_that_it_asks_for(
    prompt: str, call: tuple[str, dict[str, JsonValue]]
) -> None:
    """Each phrase that the offline model understands has one rule."""
    assert await call_for(prompt, *Assistant.tools) == call


@pytest.mark.parametrize(
    ("agent", "value", "call"),
    [
        (Researcher, {"query": "pydantic"}, ("search", {"query": "pydantic"})),
        (Researcher, "what is pydantic", ("search", {"query": "what is pydantic"})),
        (Planner, {"goal": "a web service"}, ("inspect_distributions", {"goal": "a web service"})),
        (Importer, {"database": "files.db"}, ("load_records", {"database": "files.db"})),
        (Importer, "again, into other.db", ("load_records", {"database": "other.db"})),
        (Importer, "again", ("load_records", {})),
    ],
)
async def test_a_run_calls_its_tool_with_its_input(
    agent: type[Agent], value: JsonValue, call: tuple[str, dict[str, JsonValue]]
) -> None:
    """IN-01: the first message is the input's JSON; a follow-up question is plain text."""
    assert await call_for(input_text(value), *agent.tools) == call


async def test_a_rule_without_its_tool_is_not_followed() -> None:
    """A model may call only what it is offered."""
    assert await call_for("Research pydantic", "plan") is None


@pytest.mark.parametrize("prompt", ["Hello", "Compare httpx", ""])
async def test_anything_else_gets_to_know_what_is_understood(prompt: str) -> None:
    """The offline model says that it is one, and what it takes."""
    reply = await reply_to([{"role": "user", "content": prompt}], *Assistant.tools)
    assert not reply.tool_calls
    assert reply.text is not None
    assert reply.text.startswith("[offline model]")
    assert all(word in reply.text for word in ("Research", "Compare", "Plan", "Import", "TURNKEEPER_MODEL"))


async def test_an_earlier_turns_results_do_not_answer_a_new_prompt() -> None:
    """Only the results since the last user message count."""
    messages: list[Message] = [
        {"role": "user", "content": "Research pydantic"},
        *called("research", {"query": "pydantic"}, "[offline model] Data validation."),
        {"role": "assistant", "content": "[offline model] The Researcher reports: Data validation."},
        {"role": "user", "content": [{"type": "text", "text": "Research httpx"}, {"type": "file", "file": {}}]},
    ]
    reply = await reply_to(messages, *Assistant.tools)
    assert reply.tool_calls == (CustomModelToolCall(name="research", arguments={"query": "httpx"}),)


async def test_passages_are_quoted_with_their_distributions() -> None:
    """The answer is the sentences that fit best, not the whole passages."""
    found = [
        {
            "distribution": "alpha",
            "version": "1.2",
            "text": "It is fast. It is small. Alpha retries a call. Retries back off.",
        },
        {"distribution": "beta", "version": "3", "text": "Retries for everything."},
    ]
    answer = await answer_to("search", {"query": "retries"}, json.dumps(found))
    assert answer.startswith("[offline model]")
    assert "- **alpha 1.2**: Alpha retries a call. Retries back off." in answer
    assert "- **beta 3**: Retries for everything." in answer
    assert "It is fast." not in answer


async def test_nothing_found_is_said() -> None:
    """No passages and no candidates are answers too."""
    assert 'says anything about "zzz"' in await answer_to("search", {"query": "zzz"}, "[]")
    assert 'fits the goal "zzzzz"' in await answer_to("inspect_distributions", {"goal": "zzzzz"}, "[]")


async def test_a_plan_is_numbered_and_names_distributions() -> None:
    """Each candidate has its step."""
    found = [
        {"distribution": "alpha", "version": "1", "summary": "Retries."},
        {"distribution": "beta", "version": "2", "summary": ""},
    ]
    answer = await answer_to("inspect_distributions", {"goal": "retry calls"}, json.dumps(found))
    assert "1. Begin with **alpha 1**: Retries." in answer
    assert "2. See what **beta 2** can add: it has no summary." in answer
    assert "4. " in answer


async def test_an_imports_counts_are_told() -> None:
    """The answer names the file and what it holds."""
    counts = '{"distributions": 12, "rows": 3456, "changed": 2}'
    assert await answer_to("load_records", {"database": "files.db"}, counts) == (
        "[offline model] .data/imports/files.db now holds the 3,456 RECORD rows of 12 distributions; "
        "2 of the files are missing or not what was installed."
    )


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (
            AgentToolResult(
                run_id="2-0-0", agent_type="Importer", status="completed", summary="[offline model] All of it."
            ),
            "[offline model] Your background work, run 2-0-0, finished. The Importer reports: All of it.",
        ),
        (
            AgentToolResult(run_id="r", agent_type="Importer", status="error", error="no disk"),
            "[offline model] Your background work, run r, failed: no disk.",
        ),
        (
            AgentToolResult(run_id="r", agent_type="Importer", status="interrupted", reason="budget-exceeded"),
            "[offline model] Your background work, run r, ran out of time.",
        ),
    ],
)
async def test_nt_06_the_message_about_background_work_is_passed_on(result: AgentToolResult, answer: str) -> None:
    """NT-06, NT-07: by rule, as the framework words it."""
    assert (await reply_to([{"role": "user", "content": completion_text(result)}], *Assistant.tools)).text == answer


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    """By its hash, as RECORD writes it; what has none cannot be told."""
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    digest = "sha256=" + urlsafe_b64encode(sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    row = RecordRow("d", "module.py", digest, 6, file)
    assert row.is_intact() is True
    assert replace(row, hash="").is_intact() is None
    file.write_text("x = 2\n")
    assert row.is_intact() is False
    file.unlink()
    assert row.is_intact() is False


async def test_a_comparison_has_both_sides_and_one_may_have_failed() -> None:
    """AW-09: one failing side does not hide the other."""
    found = [
        {"topic": "httpx", "summary": "[offline model] A client.", "error": None},
        {"topic": "aiohttp", "summary": None, "error": "The model refused."},
    ]
    answer = await answer_to("compare", {"left": "httpx", "right": "aiohttp"}, json.dumps(found))
    assert "## httpx\n\nA client." in answer
    assert "## aiohttp\n\nThe Researcher failed: The model refused." in answer
    assert answer.count("[offline model]") == 1


@pytest.mark.parametrize(
    ("tool", "result", "said"),
    [
        ("search", "OSError: disk full", "The tool search failed: OSError: disk full"),
        ("load_records", "ValueError: '/x' is not a plain file name.", "failed: ValueError: '/x' is not a plain"),
        ("compare", "The call was interrupted and may have taken effect.", "The tool compare failed: The call was"),
        (
            "research",
            '{"ok":false,"status":"error","error":"No such model.","retryable":false}',
            "The Researcher failed: No such model. (error)",
        ),
        (
            "plan",
            '{"ok":false,"status":"interrupted","error":"Too slow.","retryable":true,"reason":"no-progress"}',
            "The Planner failed: Too slow. (interrupted, no-progress) Asking again may help.",
        ),
        ("import_records", "The arguments of import_records are not valid.", "The Importer failed: The arguments of"),
        ("research", "", "The Researcher failed: it gave no result."),
    ],
)
async def test_a_failure_is_said_plainly(tool: str, result: str, said: str) -> None:
    """RF-02: neither an error's text nor a failure object passes for an answer."""
    answer = await answer_to(tool, {}, result)
    assert answer.startswith("[offline model]")
    assert said in answer
    assert "reports:" not in answer


@pytest.mark.parametrize("name", ["pydantic", "httpx", "typing-extensions", "temporalio", "pytest-asyncio"])
async def test_the_name_of_a_distribution_finds_that_one_first(name: str) -> None:
    """However often others mention it."""
    passages = await Researcher(InlineRuntime()).search(name)
    assert passages[0].distribution.replace("_", "-") == name
    assert passages[0].version == version(name)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("temporal workflow", "temporalio"),
        ("terminal colors and progress bars", "rich"),
        ("settings management", "pydantic-settings"),
    ],
)
async def test_a_question_finds_the_distribution_that_answers_it(query: str, expected: str) -> None:
    """The query need not name the distribution."""
    assert expected in {passage.distribution for passage in await Researcher(InlineRuntime()).search(query)}


async def test_a_search_gives_few_short_passages_and_the_same_ones_again() -> None:
    """What a model reads is bounded, and a repeated call has the same result."""
    researcher = Researcher(InlineRuntime())
    passages = await researcher.search("http client with connection pooling")
    assert 1 < len(passages) <= 5
    assert all(len(passage.text) <= MAX_PARAGRAPH for passage in passages)
    assert passages == await researcher.search("http client with connection pooling")


async def test_nonsense_finds_nothing() -> None:
    """A passage without any of the query's words is no answer."""
    assert await Researcher(InlineRuntime()).search("xyzzyplugh") == []
    assert await Planner(InlineRuntime()).inspect_distributions("xyzzyplugh") == []


def test_an_exact_name_beats_any_number_of_mentions() -> None:
    """Alpha's description does not even mention itself."""
    others = [described(f"other{number}", "Alpha alpha alpha") for number in range(9)]
    found = find_passages("alpha", [*others, described("Alpha", "Something else", "It does something else.")])
    assert [passage.distribution for passage in found[:2]] == ["Alpha", "Alpha"]
    assert found[2].distribution == "other0"


def test_searching_nothing_finds_nothing() -> None:
    """A machine without distributions, or with ones that have no description, is no error."""
    assert find_passages("alpha", []) == []
    assert find_passages("alpha", [described("beta", "")]) == []
    assert find_distributions("alpha", []) == []


def test_every_installed_distribution_is_listed_once() -> None:
    """The names are sorted and have versions."""
    names = [distribution.name for distribution in installed_distributions()]
    assert len(names) == len(set(names)) > 20
    assert {"pydantic", "temporalio", "turnkeeper"} <= set(names)


def test_prose_is_what_remains_of_markdown() -> None:
    """Badges, headings, tables, code, change logs and bare addresses go; links keep their text."""
    description = """
# Alpha

[![build](https://x/b.svg)](https://x)

**Alpha** retries [your calls](https://x/calls) with a `backoff` that you choose.

| a | b |
| - | - |

```python
print("Alpha is a fine thing to have around, is it not.")
```

- It also counts every call that was ever tried.
- Fixed a bug in the counter of calls by @somebody in the end.

See https://x/docs for the whole documentation of this thing.
"""
    assert paragraphs(description) == [
        "Alpha retries your calls with a backoff that you choose.",
        "It also counts every call that was ever tried.",
    ]


def test_prose_is_what_remains_of_restructuredtext() -> None:
    """Directives, underlined headings and indented code go; roles and links keep their text."""
    description = """
Alpha
=====

.. image:: https://x/b.svg
   :target: https://x

Use it with this, and that, and the other thing, like this::

    alpha.retry(this, that, the, other, thing, now)

Alpha retries your ``calls`` by :func:`alpha.retry` for as long as you
want it to, with a `backoff <https://x/backoff>`_.
"""
    assert paragraphs(description) == [
        "Alpha retries your calls by alpha.retry for as long as you want it to, with a backoff."
    ]


def test_a_long_paragraph_is_cut_at_the_end_of_a_sentence() -> None:
    """A passage reads as prose to its end."""
    sentence = "Alpha retries your calls for as long as you want it to."
    (cut,) = paragraphs(" ".join([sentence] * 40))
    assert len(cut) <= MAX_PARAGRAPH
    assert set(sentences(cut)) == {sentence}


@pytest.mark.parametrize(
    "name", ["../records.db", "a/b.db", "a\\b.db", "/etc/passwd", "..", ".hidden", "", "a\0b", "x" * 65, "a.db\n"]
)
async def test_a_database_outside_the_folder_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to give instead, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"Give one without folders, such as 'records\.db'"):
        await Importer(InlineRuntime()).load_records(name)
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


async def test_importing_twice_gives_the_same_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool is declared idempotent: the second import replaces the first."""
    monkeypatch.chdir(tmp_path)
    runtime = InlineRuntime()
    first = await Importer(runtime).load_records("files.db")
    milestones = [report["milestone"] for report in runtime.reports if report["milestone"]]
    second = await Importer(InlineRuntime()).load_records("files.db")
    assert first == second
    assert first.distributions > 20
    assert milestones == ["schema-ready", "rows-written"]
    with closing(sqlite3.connect(tmp_path / ".data/imports/files.db")) as connection:
        rows = connection.execute("SELECT count(*) FROM records").fetchone()[0]
        (path, digest, size, intact) = connection.execute(
            "SELECT path, hash, size, intact FROM records"
            " WHERE distribution = 'pydantic' AND path = 'pydantic/__init__.py'"
        ).fetchone()
    assert rows == first.rows
    assert (path, digest[:7]) == ("pydantic/__init__.py", "sha256=")
    assert size > 0
    assert intact == 1


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not ours is not overwritten."""
    monkeypatch.chdir(tmp_path)
    other = tmp_path / ".data/imports/notes.txt"
    other.parent.mkdir(parents=True)
    other.write_text("These are my notes, and they are longer than a header of SQLite, so that it looks at them. " * 9)
    before = other.read_text()
    with pytest.raises(sqlite3.DatabaseError):
        await Importer(InlineRuntime()).load_records("notes.txt")
    assert other.read_text() == before


async def test_a_comparison_dispatches_two_researchers_in_order() -> None:
    """AW-09: two runs under one call, with orders 0 and 1."""
    runtime = InlineRuntime()
    findings = await Assistant(runtime).compare("httpx", "aiohttp")
    display = Display(name="Researcher")
    assert runtime.dispatched == [({"query": "httpx"}, 0, display), ({"query": "aiohttp"}, 1, display)]
    assert [finding.topic for finding in findings] == ["httpx", "aiohttp"]
    assert all(finding.summary and finding.error is None for finding in findings)


async def test_one_failing_side_of_a_comparison_leaves_the_other() -> None:
    """AW-09: a run that fails and a run that cannot be dispatched are errors of their side only."""
    runtime = InlineRuntime({"bad": failed_run("No such model."), "away": Unavailable("nobody answered")})
    failed, good = await Assistant(runtime).compare("bad", "httpx")
    assert (failed.summary, failed.error) == (None, "No such model.")
    assert good.summary is not None
    (_, away) = await Assistant(runtime).compare("httpx", "away")
    assert (away.summary, away.error) == (None, "nobody answered")


async def test_a_whole_conversation_reads_as_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the prompt through the sub-agents' own tools to the text that the user reads."""
    monkeypatch.chdir(tmp_path)
    assistant = Assistant(InlineRuntime())
    research = await converse(assistant, "Research pydantic")
    assert f"**pydantic {version('pydantic')}**" in research
    comparison = await converse(assistant, "Compare httpx and aiohttp")
    assert "## httpx" in comparison
    assert f"**aiohttp {version('aiohttp')}**" in comparison
    assert "1. Begin with **" in await converse(assistant, "Plan a command line tool")
    assert "The Importer is at work in the background, as run r." in await converse(assistant, "Import into files.db")
    importer = Importer(InlineRuntime())
    assert "files.db now holds the " in await converse(importer, '{"database": "files.db"}')
    assert "load_records failed: ValueError: '../files.db' is not" in await converse(
        importer, '{"database": "../files.db"}'
    )
    assert all(text.count("[offline model]") == 1 for text in (research, comparison))
