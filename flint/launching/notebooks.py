"""Notebooks as programs: the code of their cells, in order.

The idea: a notebook's file has one line of code in each of its own lines, so that the program is a
text with the same line numbers: ``notebook.ipynb:120`` is where that line stands in the file.  What
only IPython understands is left out, and noted.

    code_of(Path("train.ipynb").read_bytes(), "train.ipynb")    # b"...import jax..."
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from flint.errors import UsageError
from flint.launching.notes import noted

SUFFIX = ".ipynb"
#: Magics of a cell that run its code as it is.
_PLAIN = frozenset(("time", "timeit", "capture", "prun"))
_CELL = re.compile(r"\s*%%(\w+)")
#: A line for IPython or a shell: the spaces before it, and what comes after.
_LINE = re.compile(r"(\s*)([%!?].*|[\w.]+\?+)$")
#: Characters of a line that a warning shows.
_MOST_SHOWN = 60


def code_of(data: bytes, path: str) -> bytes:
    """The program of a notebook.

    Raises:
        UsageError: it is none.
    """
    try:
        cells = json.loads(data)["cells"]
        sources = [_lines(cell) for cell in cells if cell["cell_type"] == "code"]
        text = data.decode()
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not a notebook ({error})") from None
    lines: list[str] = []
    places = _Places(text)
    for source in sources:
        for line, number in zip(_plain(source, path), map(places.of, source), strict=True):
            lines += [""] * (number - 1 - len(lines))
            lines.append(line)
    return "\n".join([*lines, ""]).encode()


def names() -> Mapping[str, Callable[..., None]]:
    """What IPython adds to a program's names: it shows nothing, and there is no shell."""
    return dict.fromkeys(("display", "get_ipython"), lambda *_, **__: None)


def _lines(cell: Any) -> list[str]:
    source = cell["source"]
    return ("".join(source) if isinstance(source, list) else str(source)).splitlines()


class _Places:
    """Where the lines of code stand in the file, from its begin to its end."""

    def __init__(self, text: str) -> None:
        self._file = text.splitlines()
        self._at = 0

    def of(self, line: str) -> int:
        """The line of the file, from 1; the next one if the file has its own form."""
        for number in range(self._at, len(self._file)):
            if _quoted(self._file[number]) == line:
                self._at = number + 1
                return self._at
        self._at += 1
        return self._at


def _quoted(line: str) -> str | None:
    """The text of a line of the file with one string."""
    stripped = line.strip().removesuffix(",")
    if not stripped.startswith('"'):
        return None
    try:
        text = json.loads(stripped)
    except ValueError:
        return None
    return text.removesuffix("\n") if isinstance(text, str) else None


def _plain(source: list[str], path: str) -> list[str]:
    """A cell's code without what is not Python."""
    lines = list(source)
    while (at := _wrong_line(lines)) is not None:
        found = _LINE.match(lines[at])
        if found is None:
            break  # an error, which Python reports when it gets there
        magic = _CELL.match(lines[at])
        if magic and magic[1] not in _PLAIN:
            noted[f"{path}: a cell for %%{magic[1]} is left out"] += 1
            return [""] * len(lines)
        if not magic:
            noted[f"{path}: {found[2][:_MOST_SHOWN]} is left out"] += 1
        lines[at] = f"{found[1]}pass"
    return lines


def _wrong_line(lines: list[str]) -> int | None:
    """The first line that is not Python."""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError as error:
        return min(max(error.lineno or 1, 1), len(lines)) - 1
    except ValueError:  # null bytes
        return None
    return None
