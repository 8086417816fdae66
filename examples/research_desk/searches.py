"""Searches over the installed distributions: passages for a query, distributions for a goal."""

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel

from examples.research_desk.distributions import InstalledDistribution
from examples.research_desk.ranking import name_share, score_texts

MAX_FOUND = 5
MAX_PASSAGES_EACH = 3
"""How many passages of one distribution a search gives, so that others are heard too."""

_WORTH_QUOTING = 0.35
"""The share of the best score below which a find is not worth a reader's time."""


class Passage(BaseModel, frozen=True):
    """A piece of a distribution's description."""

    distribution: str
    version: str
    text: str


class Candidate(BaseModel, frozen=True):
    """A distribution that may serve a goal."""

    distribution: str
    version: str
    summary: str


def find_passages(query: str, distributions: Sequence[InstalledDistribution]) -> list[Passage]:
    """Return the passages that answer a query best; those of a distribution that it names come first."""
    passages: list[Passage] = []
    leads: list[float] = []
    for each in distributions:
        for place, text in enumerate(_texts_of(each)):
            passages.append(Passage(distribution=each.name, version=each.version, text=text))
            leads.append(1 + 1 / (1 + place))
    scores = score_texts(query, [f"{passage.distribution} {passage.text}" for passage in passages])
    # What a description says first says best what the thing is.
    led = [score * lead for score, lead in zip(scores, leads, strict=True)]
    found: list[Passage] = []
    taken: Counter[str] = Counter()
    for place in _best_first(query, led, [passage.distribution for passage in passages]):
        passage = passages[place]
        if taken[passage.distribution] < MAX_PASSAGES_EACH and len(found) < MAX_FOUND:
            taken[passage.distribution] += 1
            found.append(passage)
    return found


def find_distributions(goal: str, distributions: Sequence[InstalledDistribution]) -> list[Candidate]:
    """Return the distributions whose summaries and descriptions fit a goal best."""
    by_summary = score_texts(goal, [f"{each.name} {each.summary}" for each in distributions])
    by_description = score_texts(goal, [" ".join(each.paragraphs) for each in distributions])
    scores = [sum(pair) for pair in zip(by_summary, by_description, strict=True)]
    best = _best_first(goal, scores, [each.name for each in distributions])[:MAX_FOUND]
    return [
        Candidate(distribution=each.name, version=each.version, summary=each.summary)
        for each in (distributions[place] for place in best)
    ]


def _texts_of(distribution: InstalledDistribution) -> list[str]:
    """Return what can be quoted: the summary, as a sentence, and the paragraphs."""
    summary = distribution.summary.rstrip(".")
    return [*([f"{summary}."] if summary else []), *distribution.paragraphs]


def _best_first(query: str, scores: Sequence[float], names: Sequence[str]) -> list[int]:
    """Return the places of what is worth quoting, best first; a distribution that the query names wins."""
    most = max(scores, default=0.0)
    # More than any text can score by its words.
    ranked = [score + (most + 1) * name_share(query, name) for score, name in zip(scores, names, strict=True)]
    worth = [place for place, score in enumerate(ranked) if score > 0 and score >= most * _WORTH_QUOTING]
    return sorted(worth, key=lambda place: (-ranked[place], place))
