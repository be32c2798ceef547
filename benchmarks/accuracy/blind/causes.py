"""Blind errors by what causes them, as far as that is known (``causes.csv``), by kind and by sign.

    python benchmarks/accuracy/blind/causes.py            # print the table
    python benchmarks/accuracy/blind/causes.py --page     # and write it into the page

A row of ``causes.csv`` names runs by the beginnings of their ids; the longest one counts.  Errors
are the sealed ones: nothing here changes a prediction.  Beside them stand those of the rows'
last simulation (``mended.csv``), which are no longer blind.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from blind_errors import BATCHES, accelerator, scored, scored_again
from page import PAGE, write_table
from recipes import HERE

TABLE = HERE / "causes.csv"
UNKNOWN = "none is known"


def causes() -> dict[str, str]:
    """The beginning of an id -> the cause."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {row: line["cause"] for line in csv.DictReader(file) for row in line["rows"].split()}


def errors() -> dict[str, dict[str, tuple[float, float]]]:
    """Cause -> runs, their sealed errors and those of their last simulation."""
    known = causes()
    found: dict[str, dict[str, tuple[float, float]]] = {
        cause: {} for cause in (*known.values(), UNKNOWN)
    }
    for batch in BATCHES:
        since = {score.recipe.id: score.error for score in scored_again(batch)}
        for score in scored(batch):
            name = score.recipe.id
            best = max(filter(name.startswith, known), key=len, default="")
            found[known.get(best, UNKNOWN)][name] = score.error, since.get(name, score.error)
    return found


def line(name: str, some: Sequence[tuple[float, float]]) -> str:
    """One row of a table, of sealed errors and of those today."""
    cells = [f"| {name} | {len(some)} "]
    for each in zip(*some, strict=True):
        sizes = sorted(map(abs, each))
        ninth = statistics.quantiles(sizes, n=10, method="inclusive")[-1] if some[1:] else sizes[0]
        cells.append(
            f"| {statistics.median(each):+.1%} | {statistics.median(sizes):.1%} | {ninth:.1%} "
        )
    return "".join(cells) + "|"


def headline(every: Sequence[tuple[float, float]], far: float = 0.3) -> list[str]:
    """The table of all runs, as sealed and today."""
    lines = [
        f"| {len(every)} predicted steps | median error | 90th percentile | beyond {far:.0%} |",
        "|---|---|---|---|",
    ]
    names = ("as they were predicted, sealed", "with the model of today, no longer blind")
    for name, some in zip(names, zip(*every, strict=True), strict=True):
        sizes = sorted(map(abs, some))
        ninth = statistics.quantiles(sizes, n=10, method="inclusive")[-1]
        beyond = sum(size > far for size in sizes)
        lines.append(f"| {name} | {statistics.median(sizes):.1%} | {ninth:.1%} | {beyond} |")
    return lines


def groups(least: int = 5) -> dict[str, list[float]]:
    """Kind of run, accelerator and framework -> errors, where that many runs have all three."""
    found: dict[str, list[float]] = {}
    for batch in BATCHES:
        for score in scored(batch):
            framework = re.split(r"[ (+:,]", score.recipe.framework)[0]
            name = " | ".join((score.recipe.kind, accelerator(score.accelerator), framework))
            found.setdefault(name, []).append(score.error)
    several = {name: some for name, some in found.items() if len(some) >= least}
    return dict(sorted(several.items(), key=lambda item: statistics.median(item[1])))


def signs(name: str, some: Sequence[float]) -> str:
    """One row of the table by kind."""
    slow = sum(error > 0 for error in some)
    sizes = [abs(error) for error in some]
    return (
        f"| {name} | {len(some)} | {slow} | {len(some) - slow} | {statistics.median(some):+.1%} "
        f"| {statistics.median(sizes):.1%} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--page", action="store_true", help=f"write it into {PAGE.name}")
    options = parser.parse_args()
    with TABLE.open(newline="", encoding="utf-8") as file:
        why = {row["cause"]: row["evidence"] for row in csv.DictReader(file)}
    found = errors()
    lines = [
        "| cause | how that is known | rows | sealed: median | median error | 90th percentile "
        "| today: median | median error | 90th percentile |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        line(f"{cause} | {why.get(cause, '')}", [*some.values()]) for cause, some in found.items()
    ]
    every = [error for some in found.values() for error in some.values()]
    lines.append(line("all | ", every))
    lines += [
        "",
        "Kinds of five rows or more, the fastest predictions first:",
        "",
        "| kind | accelerator | framework | rows | too slow | too fast | median | median error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [signs(name, some) for name, some in groups().items()]
    print("\n".join(lines))
    if options.page:
        write_table(PAGE, "headline", headline(every))
        write_table(PAGE, "causes", lines)


if __name__ == "__main__":
    main()
