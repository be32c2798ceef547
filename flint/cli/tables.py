"""Tables on standard output: by rich on a terminal, plain columns in a pipe.

The idea: a table that is too wide for a terminal loses its optional columns, which are named below
it; cells are never cut.  A pipe gets everything.  Cells may hold text from the input, which is
shown without control characters and is never taken for markup.

    Printer(sys.stdout).table(Table("loops", ("node", ">iterations"), [("12", "32")]))
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
#: The width of a pipe: lines are as long as their text.
_NO_WIDTH = 10_000
#: The most blanks between two columns.
_GAP = 3

Cells = Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table to show.

    Attributes:
        title: what it lists.
        columns: headings; ``?`` in front marks a column that may be left out if the table is too
            wide, ``>`` a column of numbers, which is aligned right.
        rows: cells.
        hidden: rows that are left out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    hidden: int = 0


class Printer:
    """Prints tables, on a terminal with rules and bold headings, in a pipe without."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.terminal = out.isatty()
        self.width = shutil.get_terminal_size().columns if self.terminal else _NO_WIDTH

    def line(self, text: str) -> None:
        """Print one line."""
        self.out.write(_clean(text) + "\n")

    def table(self, table: Table) -> None:
        """Print a table under its title, after an empty line."""
        kept = self._fitting(table)
        headings = [table.columns[number].removeprefix("?") for number in kept]
        rows = [[_clean(row[number]) for number in kept] for row in table.rows]
        self.line("")
        self.line(table.title)
        for line in (self._ruled if self.terminal else _plain)(headings, rows):
            self.out.write(f"  {line.rstrip()}\n" if line.strip() else "")
        if table.hidden:
            self.line(f"  ... and {table.hidden:,} more (--top)")
        left_out = [
            heading.lstrip("?>")
            for number, heading in enumerate(table.columns)
            if number not in kept
        ]
        if left_out:
            self.line(f"  not shown, too narrow: {', '.join(left_out)}")

    def _ruled(self, headings: Cells, rows: Sequence[Cells]) -> list[str]:
        """The lines of a table on a terminal."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable

        # If it is still too wide without optional columns, the terminal wraps it; nothing is cut.
        console = Console(
            file=self.out, markup=False, highlight=False, emoji=False, force_terminal=True,
            width=_NO_WIDTH,
        )  # fmt: skip
        shown = RichTable(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for heading in headings:
            justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
            shown.add_column(heading.removeprefix(">"), justify=justify, no_wrap=True)
        for row in rows:
            shown.add_row(*row)
        with console.capture() as captured:
            console.print(shown)
        return captured.get().splitlines()

    def _fitting(self, table: Table) -> list[int]:
        """Columns to show: the last optional ones are left out until the table fits."""
        widths = [
            max([len(heading.lstrip("?>")), *(len(row[i]) for row in table.rows)]) + _GAP
            for i, heading in enumerate(table.columns)
        ]
        kept = list(range(len(widths)))
        optional = [i for i in kept if table.columns[i].startswith("?")]
        while optional and _GAP + sum(widths[i] for i in kept) > self.width:
            kept.remove(optional.pop())
        return kept


def _plain(headings: Cells, rows: Sequence[Cells]) -> list[str]:
    """The lines of a table in a pipe, made without rich, which takes 40 ms to import."""
    lines = [[heading.removeprefix(">") for heading in headings], *rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    found = []
    for line in lines:
        spaces = [" " * (width - _width(cell)) for width, cell in zip(widths, line, strict=True)]
        cells = [
            space + cell if heading.startswith(">") else cell + space
            for heading, space, cell in zip(headings, spaces, line, strict=True)
        ]
        found.append("  ".join(cells))
    return found


def _width(text: str) -> int:
    """The number of columns that a text takes: some characters take two, or none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
