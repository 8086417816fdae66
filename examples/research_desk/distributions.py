"""The real input of the example: what the Python distributions installed on this machine say of themselves."""

import base64
import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

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
    file: Path
    """Where it should be."""

    def is_intact(self) -> bool | None:
        """Tell whether the file is still what was installed; None when RECORD has no hash of it.

        RECORD writes a hash as `sha256=` and URL-safe base64 without padding (PEP 376, PEP 427).
        """
        algorithm, _, expected = self.hash.partition("=")
        if not expected or algorithm not in hashlib.algorithms_guaranteed:
            return None
        try:
            with self.file.open("rb") as content:
                digest = hashlib.file_digest(content, algorithm).digest()
        except OSError:
            return False
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == expected


def canonical_name(name: str) -> str:
    """Return a name as the package index compares it: `Typing_Extensions` is `typing-extensions`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def installed_distributions() -> list[InstalledDistribution]:
    """Return every installed distribution, by name."""
    return [_described(distribution) for distribution in _unique_distributions()]


def record_rows() -> dict[str, list[RecordRow]]:
    """Return the RECORD rows of every installed distribution, by its name."""
    return {str(each.metadata.json["name"]): list(_rows_of(each)) for each in _unique_distributions()}


def _rows_of(distribution: metadata.Distribution) -> Iterator[RecordRow]:
    name = str(distribution.metadata.json["name"])
    # Not `distribution.files`, which leaves out on newer Pythons what is no longer on the disk.
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        path, digest, size = (*row, "", "", "")[:3]
        if path:
            file = Path(str(distribution.locate_file(path)))
            yield RecordRow(name, path, digest, int(size) if size.isdecimal() else None, file)


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
