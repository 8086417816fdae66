"""The SQLite files that RECORD rows are imported into."""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from pydantic import BaseModel

from examples.research_desk.distributions import RecordRow

FOLDER = Path(".data/imports")
DEFAULT_DATABASE = "records.db"

_PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_LOCK_SECONDS = 60.0


COLUMNS = {"distribution": "TEXT", "path": "TEXT", "hash": "TEXT", "size": "INTEGER", "intact": "INTEGER"}
"""The table `records`; `intact` is null where there is nothing to compare a file with."""

_TABLE = f"TABLE records ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})"


class ImportCounts(BaseModel, frozen=True):
    """What a database holds."""

    distributions: int
    rows: int
    changed: int
    """Files that are missing or not what was installed."""


def database_path(name: str) -> Path:
    """Return where the database of a name is.

    Raises:
        ValueError: the name is not a plain file name.
    """
    if not _PLAIN_FILE_NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} is not a plain file name. Give one without folders, such as {DEFAULT_DATABASE!r}: up to 64 "
            f"of A-Z a-z 0-9 . _ -, not beginning with a dot. The file is put into {FOLDER}."
        )
    return FOLDER / name


def prepare_database(path: Path) -> None:
    """Make sure that a database has its table; one that is already there keeps its rows.

    Raises:
        sqlite3.Error: the file is not a database, or cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as connection, connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchone() is None:
            connection.execute(f"CREATE {_TABLE}")


def replace_records(path: Path, rows: Iterable[tuple[RecordRow, bool | None]]) -> ImportCounts:
    """Make the rows, each with whether its file is intact, the content of a database, and return what it holds then.

    Everything happens in one transaction: a reader sees the old content or the new, and so does whoever tries again
    after a crash.

    Raises:
        sqlite3.Error: the file is not a database, or cannot be written.
    """
    with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)) as connection, connection:
        # Taken before anything is read, so that an attempt which was believed lost and its successor take turns.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DROP TABLE IF EXISTS records")
        connection.execute(f"CREATE {_TABLE}")
        connection.executemany(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?)",
            ((row.distribution, row.path, row.hash, row.size, intact) for row, intact in rows),
        )
        distributions, count, changed = connection.execute(
            "SELECT count(DISTINCT distribution), count(*), count(*) FILTER (WHERE NOT intact) FROM records"
        ).fetchone()
    return ImportCounts(distributions=distributions, rows=count, changed=changed)
