"""The table of rows in docs/accuracy.md: what it says of a run, and a new table in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_BEGIN, _END = "<!-- rows: begin -->\n", "<!-- rows: end -->\n"
#: Run, devices, measured and simulated seconds; a run's name may contain anything but a bar.
_ROW = re.compile(r"\| (\[[^|]*) \| ([^|]*) \| ([0-9.]+) \| ([0-9.]+) \|")

#: The cells that name a run: what, on which devices, the measured seconds.
Cells = tuple[str, str, str]


def seconds_on(page: Path) -> dict[Cells, Iterator[float]]:
    """Simulated seconds of the page's runs; of runs that are named alike, in the page's order."""
    found: dict[Cells, list[float]] = {}
    for line in _parts(page)[1].splitlines():
        if match := _ROW.match(line):
            run, devices, measured, simulated = match.groups()
            found.setdefault((run, devices, measured), []).append(float(simulated))
    return {cells: iter(seconds) for cells, seconds in found.items()}


def write_rows(page: Path, lines: Sequence[str]) -> None:
    """Replace the page's table of rows."""
    head, _, tail = _parts(page)
    page.write_text(
        head + _BEGIN + "\n".join(["", *lines, ""]) + "\n" + _END + tail, encoding="utf-8"
    )


def _parts(page: Path) -> tuple[str, str, str]:
    """The page before, in and after its table."""
    head, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    rows, _, tail = rest.partition(_END)
    return head, rows, tail
