"""The offline model's answers: extracts from what the tools gave, under plain headings."""

import re
from collections.abc import Callable, Sequence

from pydantic import TypeAdapter, ValidationError

from examples.research_desk.agents import Finding
from examples.research_desk.conversation import ToolOutcome
from examples.research_desk.prose import sentences
from examples.research_desk.ranking import terms_of
from examples.research_desk.record_database import DEFAULT_DATABASE, FOLDER, ImportCounts
from examples.research_desk.searches import Candidate, Passage
from turnkeeper.runs import AgentToolFailure, AgentToolRunHandle

MARK = "[offline model]"
"""What every text of the offline model begins with."""

_SENTENCES_EACH = 2
"""How many sentences of a passage are quoted."""

_PASSAGES = TypeAdapter(list[Passage])
_CANDIDATES = TypeAdapter(list[Candidate])
_FINDINGS = TypeAdapter(list[Finding])

_REPORTERS = {
    "research": "The Researcher",
    "research_background": "The Researcher",
    "plan": "The Planner",
    "import_records": "The Importer",
}

_NOTICE = re.compile(r'Background task "(\w+)" \(run ([^)]+)\) (.+)', re.DOTALL)
"""What the framework's message about the end of background work looks like."""


class _NotAReport(ValueError):
    """A sub-agent's tool result is not the text of an offline model."""


def answer(outcomes: Sequence[ToolOutcome]) -> str:
    """Return an answer from tool results; what failed is said."""
    return f"{MARK} " + "\n\n".join(_section(outcome) for outcome in outcomes)


def answer_to_notice(prompt: str) -> str | None:
    """Return what to say when background work has ended, or None if that is not what a prompt tells."""
    notice = _NOTICE.fullmatch(prompt)
    if notice is None:
        return None
    agent, run_id, told = notice.groups()
    ending, _, report = told.partition("\n\n")
    said = f"{MARK} Your background work, run {run_id}, {ending.rstrip(':.')}."
    return f"{said} The {agent} reports: {_unmarked(report)}" if report else said


def _section(outcome: ToolOutcome) -> str:
    write = _WRITERS.get(outcome.tool, _write_report)
    try:
        return write(outcome)
    except (ValidationError, _NotAReport):
        return f"{_REPORTERS.get(outcome.tool, f'The tool {outcome.tool}')} failed: {_failure_text(outcome.text)}"


def _write_passages(outcome: ToolOutcome) -> str:
    query = str(outcome.arguments.get("query", ""))
    quotes: dict[str, list[str]] = {}
    for passage in _PASSAGES.validate_json(outcome.text):
        source = f"{passage.distribution} {passage.version}"
        quotes.setdefault(source, []).extend(_best_sentences(query, passage.text))
    if not quotes:
        return f'No description of a distribution installed here says anything about "{query}".'
    lines = [f"- **{source}**: {' '.join(dict.fromkeys(quoted))}" for source, quoted in quotes.items()]
    return f'What the distributions installed here say about "{query}":\n\n' + "\n".join(lines)


def _best_sentences(query: str, text: str) -> list[str]:
    """Return the sentences that share most words with the query, in their order."""
    asked = set(terms_of(query))
    every = sentences(text)
    best = sorted(range(len(every)), key=lambda place: (-len(asked.intersection(terms_of(every[place]))), place))
    return [every[place] for place in sorted(best[:_SENTENCES_EACH])]


def _write_plan(outcome: ToolOutcome) -> str:
    goal = outcome.arguments.get("goal", "")
    candidates = _CANDIDATES.validate_json(outcome.text)
    if not candidates:
        return f'No distribution installed here fits the goal "{goal}", so there is nothing to build a plan on.'
    names = [f"**{each.distribution} {each.version}**" for each in candidates]
    summaries = [each.summary.rstrip(".") or "it has no summary" for each in candidates]
    steps = [
        f"Begin with {names[0]}: {summaries[0]}.",
        *(f"See what {name} can add: {summary}." for name, summary in zip(names[1:], summaries[1:], strict=True)),
        f"Do one small case of the goal with {candidates[0].distribution}, and write a test of it.",
        "Pin the versions that you keep; those above are the installed ones.",
    ]
    return f'A plan for "{goal}":\n\n' + "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def _write_counts(outcome: ToolOutcome) -> str:
    counts = ImportCounts.model_validate_json(outcome.text)
    database = FOLDER / str(outcome.arguments.get("database", DEFAULT_DATABASE))
    return (
        f"{database} now holds the {counts.rows:,} RECORD rows of {counts.distributions:,} distributions; "
        f"{counts.changed:,} of the files are missing or not what was installed."
    )


def _write_comparison(outcome: ToolOutcome) -> str:
    return "\n\n".join(
        (
            "The two topics side by side, each as its Researcher reports.",
            *(f"## {finding.topic}\n\n{_finding_text(finding)}" for finding in _FINDINGS.validate_json(outcome.text)),
        )
    )


def _finding_text(finding: Finding) -> str:
    if finding.error is not None:
        return f"The Researcher failed: {finding.error}"
    return _unmarked(finding.summary or "") or "The Researcher ended without saying anything."


def _write_dispatch(outcome: ToolOutcome) -> str:
    handle = AgentToolRunHandle.model_validate_json(outcome.text)
    if handle.status == "error":
        raise _NotAReport
    return f"The {handle.agent_type} is at work in the background, as run {handle.run_id}. Ask me more meanwhile."


def _write_report(outcome: ToolOutcome) -> str:
    # All agents here have one model, so an answer has the mark, and what has none is the text of an error.
    if not outcome.text.startswith(MARK):
        raise _NotAReport
    return f"{_REPORTERS.get(outcome.tool, outcome.tool)} reports: {_unmarked(outcome.text)}"


def _unmarked(text: str) -> str:
    return text.removeprefix(MARK).strip()


def _failure_text(text: str) -> str:
    try:
        failure = AgentToolFailure.model_validate_json(text)
    except ValidationError:
        return text or "it gave no result."
    why = f"{failure.status}, {failure.reason}" if failure.reason else failure.status
    return f"{failure.error} ({why}){' Asking again may help.' if failure.retryable else ''}"


_WRITERS: dict[str, Callable[[ToolOutcome], str]] = {
    "search": _write_passages,
    "inspect_distributions": _write_plan,
    "load_records": _write_counts,
    "import_records": _write_dispatch,
    "research_background": _write_dispatch,
    "compare": _write_comparison,
}
