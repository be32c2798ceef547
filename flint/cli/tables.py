"""Tables on standard output: rules and bold headings on a terminal, plain columns in a pipe.

The idea: what does not fit a terminal loses columns that say they may be left out, names them below
the table, and is never cut in the middle of a cell; a pipe gets everything.  Cells may hold text
from the input, which is shown without control characters and is never taken for markup.

    Printer(sys.stdout).table(Table("loops", ("node", ">iterations"), [("12", "32")]))
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
#: A pipe has no width: lines are as long as their text.
_NO_WIDTH = 10_000
#: Columns between two columns, at most.
_GAP = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A table to show.

    Attributes:
        title: what it lists.
        columns: headings; ``?`` in front is a column that may be left out where there is too little
            width, ``>`` one of numbers, aligned right.
        rows: cells.
        hidden: rows that are left out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    hidden: int = 0


class Printer:
    """Tables by rich on a terminal; the same tables without lines and colours in a pipe."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        self.out = out
        self.terminal = out.isatty()
        self.width = shutil.get_terminal_size().columns if self.terminal else _NO_WIDTH
        self.console = Console(
            file=out,
            markup=False,
            highlight=False,
            emoji=False,
            no_color=None if self.terminal else True,  # None: as NO_COLOR says
            force_terminal=self.terminal,
            # What does not fit although columns were left out is wrapped by the terminal, not cut.
            width=_NO_WIDTH,
        )

    def line(self, text: str) -> None:
        """One line."""
        self.out.write(_clean(text) + "\n")

    def table(self, table: Table) -> None:
        """A table under its title, after an empty line."""
        from rich import box
        from rich.table import Table as RichTable

        kept = self._fitting(table)
        shown = RichTable(
            box=box.SIMPLE_HEAD if self.terminal else None,
            header_style="bold" if self.terminal else "",
            pad_edge=False,
        )
        for number in kept:
            heading = table.columns[number].removeprefix("?")
            right = heading.startswith(">")
            justify: Literal["left", "right"] = "right" if right else "left"
            shown.add_column(heading.removeprefix(">"), justify=justify, no_wrap=True)
        for row in table.rows:
            shown.add_row(*(_clean(row[number]) for number in kept))
        self.line("")
        self.line(table.title)
        with self.console.capture() as captured:
            self.console.print(shown)
        for line in captured.get().splitlines():
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


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
