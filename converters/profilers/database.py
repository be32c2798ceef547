"""Reading an untrusted SQLite file: read only, plain tables only, with limits.

The idea: SQL inside a file (views, triggers, virtual tables, computed columns) is never run: an
authorizer allows only reading, and tables are read column by column.

    with Database(Path("report.sqlite")) as data:
        for start, end in data.rows("CUPTI_ACTIVITY_KIND_KERNEL", ("start", "end")):
            ...
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flint.errors import FlintError
from flint.observed.rows import MAX_ROWS

#: The most bytes of one value, and of a statement that the file was made with.
_MAX_VALUE, _MAX_SQL = 1 << 20, 1 << 18
#: The fewest bytes of a row in the file: its position, its length, its number, its columns.
_LEAST_ROW = 4
#: The most bytes per byte of the file, if its text has two bytes per letter there.
_MOST_BYTES = 2
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA})
_INTEGERS = (int, type(None))
_MAGIC = b"SQLite format 3\0"


def is_database(path: Path) -> bool:
    """Whether a file is SQLite, by how it begins."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _may(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


class Database:
    """The tables of a file; closed when the block ends."""

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            FlintError: it is not an SQLite file, or is damaged.
        """
        self.path = path
        self._size = path.stat().st_size
        try:
            where = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(where, uri=True)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_SQL)
            self._connection.text_factory = bytes
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.set_authorizer(_may)
            found = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
            ).fetchmany(10_000)
        except sqlite3.Error as error:
            raise FlintError(f"{path}: not a readable SQLite file ({error})") from error
        self.tables = {text(name) for (name,) in found}

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, None for missing columns; no rows if the table is missing.

        Texts are bytes.

        Raises:
            FlintError: the file is damaged, or the table has more rows than a trace may have.
        """
        if table not in self.tables:
            return
        try:
            there = {
                text(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{table}")')
            }
            listed = ", ".join(f'"{name}"' if name in there else "NULL" for name in columns)
            cursor = self._connection.execute(f'SELECT {listed} FROM "{table}"')
            taken = 0
            for number, row in enumerate(cursor):
                if number >= MAX_ROWS:
                    raise FlintError(f"{self.path}: more than {MAX_ROWS:,} rows in {table}")
                taken += _LEAST_ROW + sum([len(item) for item in row if isinstance(item, bytes)])
                if taken > _MOST_BYTES * self._size:
                    raise FlintError(
                        f"{self.path}: damaged table {table} (it yields more data than the file "
                        "contains: its pages are reused)"
                    )
                yield row
        except (sqlite3.Error, OverflowError) as error:
            raise FlintError(f"{self.path}: damaged table {table} ({error})") from error

    def numbers(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """``rows`` in which all columns are integers or None; others are left out."""
        for row in self.rows(table, columns):
            if all(isinstance(value, _INTEGERS) for value in row):
                yield row


def text(value: object) -> str:
    """A text of a row."""
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
