"""Tables in docs/accuracy.md and docs/accuracy/: what one says, and a new one in its place.

The idea: a table stands between two comments that name it.

    write_table(DOCS / "published.md", "rows", ["| run | measured |", ...])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The page in short, and the folder of those with every run.
PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"
DOCS = PAGE.with_suffix("")
#: The table of published runs.
ROWS = "rows"
#: Run, devices, measured and simulated seconds; a run's name may contain anything but a bar.
_ROW = re.compile(r"\| (\[[^|]*) \| ([^|]*) \| ([0-9.]+) \| ([0-9.]+) \|")

#: The cells that name a run: what, on which devices, the measured seconds.
Cells = tuple[str, str, str]


def seconds_on(page: Path) -> dict[Cells, Iterator[float]]:
    """Simulated seconds of the page's runs; of runs that are named alike, in the page's order."""
    found: dict[Cells, list[float]] = {}
    for line in _parts(page, ROWS)[1].splitlines():
        if match := _ROW.match(line):
            run, devices, measured, simulated = match.groups()
            found.setdefault((run, devices, measured), []).append(float(simulated))
    return {cells: iter(seconds) for cells, seconds in found.items()}


def write_table(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace one of the page's tables, with what stands around it between its comments."""
    head, _, tail = _parts(page, name)
    page.write_text(head + "\n".join(["", *lines, ""]) + "\n" + tail, encoding="utf-8")


def _parts(page: Path, name: str) -> tuple[str, str, str]:
    """The page up to, in and after a table."""
    begin, end = (f"<!-- {name}: {word} -->\n" for word in ("begin", "end"))
    text = page.read_text(encoding="utf-8")
    assert begin in text and end in text, f"{page} has no table {name}"
    head, _, rest = text.partition(begin)
    table, _, tail = rest.partition(end)
    return head + begin, table, end + tail
