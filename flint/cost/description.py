"""Descriptions: TOML tables whose entries are taken by name and checked.

The idea: code that reads a description takes every entry by name and states its type; an entry that
is missing without a default, of the wrong type or unknown is an error that names it. Figures may
come with their source, ``[figure, "where it is from"]``, and are kept as written.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from flint.cost.units import parse
from flint.errors import UsageError
from flint.host.readable import why_unreadable

#: Used in place of a figure if there is none: ``f8 = ["none", "a source"]``.
NONE: Final = "none"
#: The largest whole number: ranks and sizes are counted in 64 bits.
_MOST: Final = 10**9
#: The largest description, in bytes.
_MAX_BYTES: Final = 1 << 20
#: The most dots in one line.
_MAX_DOTS = 1000
#: Contents of pipes, by path.
_came: dict[Path, str] = {}


class Unfit(Exception):
    """A description that lacks something; the message says what."""


class Stated(NamedTuple):
    """A figure as a description gives it: its entry, the figure as text, and its source."""

    entry: str
    figure: str
    source: str


def read_text(path: Path) -> str:
    """The text of a description; for a pipe, which can be read only once, the text of the first
    read.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        UsageError: it is too long.
    """
    if path in _came:
        return _came[path]
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
        once = not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{path}: too large for a system description")
    text = content.decode("utf-8")
    if once:
        _came[path] = text
    return text


def read_table(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: it cannot be read or is not TOML.
    """
    try:
        text = read_text(path)
        # Time and memory for a key of n parts grow with n^2.
        if max((line.count(".") for line in text.splitlines()), default=0) > _MAX_DOTS:
            raise UsageError(f"{path}: not a description: a line has more than {_MAX_DOTS} dots")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {why_unreadable(error)}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


class Description:
    """One table.

    Attributes:
        where: prefix of an entry's name in messages.
    """

    def __init__(self, content: Any, where: str, stated: list[Stated]) -> None:
        if not isinstance(content, dict):
            raise Unfit(f"{where or 'the file'} must be a table")
        self._content: dict[str, Any] = dict(content)
        self._stated = stated
        self.where = f"{where}." if where else ""

    def entries(self) -> tuple[str, ...]:
        """The entries that have not been taken."""
        return tuple(self._content)

    def take(self, key: str) -> Any:
        """An entry as written."""
        if key not in self._content:
            raise Unfit(f"{self.where}{key} is missing")
        return self._content.pop(key)

    def table(self, key: str) -> Description:
        """An entry that is a table."""
        return Description(self.take(key), f"{self.where}{key}", self._stated)

    def text(self, key: str) -> str:
        """An entry that is a text."""
        value = self.take(key)
        if not isinstance(value, str) or not value:
            raise Unfit(f"{self.where}{key} must be a string, not {value!r}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """An entry that is one of some words."""
        if default is not None and key not in self._content:
            return default
        value = self.take(key)
        if value not in choices:
            raise Unfit(f"{self.where}{key} must be one of {', '.join(choices)}")
        return str(value)

    def figure(self, key: str) -> Any:
        """A figure without its source, which is kept."""
        value, source = self.take(key), ""
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
            value, source = value
        self._stated.append(Stated(f"{self.where}{key}", str(value), source))
        return value

    def quantity(self, key: str, measures: str, *, zero: bool = False) -> float:
        """A figure with a unit, above 0."""
        value = self.figure(key)
        try:
            number = parse(value, measures)
        except ValueError as error:
            raise Unfit(f"{self.where}{key}: {error}") from None
        self._check(key, number, zero)
        return number

    def possible(self, key: str, measures: str) -> float | None:
        """A figure with a unit, above 0; None if the description says that there is none."""
        value = self._content.get(key)
        if value == NONE or (isinstance(value, list) and value[:1] == [NONE]):
            self.figure(key)
            return None
        return self.quantity(key, measures)

    def count(self, key: str, default: int | None = None, *, zero: bool = False) -> int:
        """A whole number."""
        if default is not None and key not in self._content:
            return default
        value = self.figure(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unfit(f"{self.where}{key} must be a whole number, not {value!r}")
        self._check(key, value, zero)
        if value > _MOST:
            raise Unfit(f"{self.where}{key} must be at most {_MOST}")
        return value

    def share(self, key: str, default: float | None = None) -> float:
        """A number above 0, at most 1."""
        return self._number(key, default, "above 0 and at most 1", lambda value: 0 < value <= 1)

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0."""
        return self._number(key, default, "above 0", lambda value: 0 < value < 1e9)

    def tables(self, key: str) -> list[Description]:
        """An entry that is a list of tables; empty if it is missing."""
        listed = self._content.pop(key, [])
        if not isinstance(listed, list):
            raise Unfit(f"{self.where}{key} must be a list of tables: [[{self.where}{key}]]")
        return [
            Description(item, f"{self.where}{key}[{number}]", self._stated)
            for number, item in enumerate(listed)
        ]

    def factor(self, key: str, default: float | None = None) -> float:
        """A number of at least 1."""
        return self._number(key, default, "of at least 1", lambda value: 1 <= value < 1e9)

    def done(self) -> None:
        """Refuse entries that were not taken."""
        if self._content:
            raise Unfit(f"{self.where}{next(iter(self._content))} is unknown")

    def _number(
        self, key: str, default: float | None, words: str, fits: Callable[[float], bool]
    ) -> float:
        if default is not None and key not in self._content:
            return default
        value = self.figure(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
            raise Unfit(f"{self.where}{key} must be a number {words}, not {value!r}")
        return float(value)

    def _check(self, key: str, number: float, zero: bool) -> None:
        if number == float("inf"):
            raise Unfit(f"{self.where}{key} is too large")
        if not (number > 0 or (zero and number == 0)):
            raise Unfit(f"{self.where}{key} must be {'at least' if zero else 'above'} 0")
