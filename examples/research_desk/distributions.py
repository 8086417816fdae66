"""The real input of the example: what the Python distributions installed on this machine say of themselves."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from examples.research_desk.prose import paragraphs


@dataclass(frozen=True)
class InstalledDistribution:
    """A distribution's own words."""

    name: str
    version: str
    summary: str
    paragraphs: tuple[str, ...]
    """The prose of its long description."""


@dataclass(frozen=True)
class RecordRow:
    """One file that a distribution installed, as its RECORD lists it."""

    distribution: str
    path: str
    hash: str
    size: int | None


def canonical_name(name: str) -> str:
    """Return a name as the package index compares it: `Typing_Extensions` is `typing-extensions`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def installed_distributions() -> list[InstalledDistribution]:
    """Return every installed distribution, by name."""
    return [_described(distribution) for distribution in _unique_distributions()]


def record_rows() -> Iterator[RecordRow]:
    """Yield the RECORD rows of every installed distribution, by name."""
    for distribution in _unique_distributions():
        name = distribution.metadata.json["name"]
        # Not `distribution.files`, which leaves out on newer Pythons what is no longer on the disk.
        for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            path, digest, size = (*row, "", "", "")[:3]
            if path:
                yield RecordRow(str(name), path, digest, int(size) if size.isdecimal() else None)


def _unique_distributions() -> list[metadata.Distribution]:
    """Return the distributions that an import would find: the first of a name on the path."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata.json.get("name")
        # What an interrupted uninstall leaves behind has no name.
        if isinstance(name, str):
            found.setdefault(canonical_name(name), distribution)
    return [found[name] for name in sorted(found)]


def _described(distribution: metadata.Distribution) -> InstalledDistribution:
    fields = distribution.metadata.json
    summary = str(fields.get("summary", "")).strip()
    return InstalledDistribution(
        name=str(fields["name"]),
        version=distribution.version,
        summary="" if summary == "UNKNOWN" else summary,
        paragraphs=tuple(paragraphs(str(fields.get("description", "")))),
    )
