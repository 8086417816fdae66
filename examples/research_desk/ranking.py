"""Which texts answer a query best: Okapi BM25, with word endings cut off."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from examples.research_desk.distributions import canonical_name

_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
_ENDINGS = re.compile(r"(?:ations?|ating|ated?|ates|ings?|ions?|ers?|ors?|ed|es|s|e)$")
_SMALL_WORDS = """
a about an and any are as at be by can compare do does for from how i in into is it its me my no not of on or our please
should so some tell that the their them there this to use used using want was we what when where which who why will with
you your
"""
_STOP_WORDS = frozenset(_SMALL_WORDS.split())


def terms_of(text: str) -> list[str]:
    """Return the words of `text` that carry meaning, without their endings."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [_stem(word) for word in words if word not in _STOP_WORDS]


def score_texts(query: str, texts: Sequence[str]) -> list[float]:
    """Return how well each text answers the query; 0 for one that has none of its words."""
    counts = [Counter(terms_of(text)) for text in texts]
    lengths = [count.total() for count in counts]
    mean_length = sum(lengths) / len(lengths) if any(lengths) else 1.0
    weights = {term: _rarity(term, counts) for term in sorted(set(terms_of(query)))}
    return [
        sum(weight * _saturated(count[term], length / mean_length) for term, weight in weights.items())
        for count, length in zip(counts, lengths, strict=True)
    ]


def name_share(query: str, name: str) -> float:
    """Return which share of a query is the name of a distribution: 1 when it asks for nothing else, else less, or 0."""
    asked = [word for word in canonical_name(query).split("-") if word not in _STOP_WORDS]
    words = canonical_name(name).split("-")
    places = range(len(asked) - len(words) + 1)
    return len(words) / len(asked) if any(asked[at : at + len(words)] == words for at in places) else 0.0


def _stem(word: str) -> str:
    stem = _ENDINGS.sub("", word)
    return stem if len(stem) >= 4 else word.removesuffix("s") if len(word) > 3 else word


def _rarity(term: str, counts: Sequence[Counter[str]]) -> float:
    holders = sum(1 for count in counts if term in count)
    return math.log(1 + (len(counts) - holders + 0.5) / (holders + 0.5))


def _saturated(occurrences: int, relative_length: float) -> float:
    damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative_length)
    return occurrences * (_SATURATION + 1) / (occurrences + damping)
