"""Fuzzing for as long as one likes: `make fuzz`, or `python -m tests.fuzz --inputs 100000 kineto`.

All processors work, each on numbers of its own. What was found lies in a folder (the smallest
input of each defect), and a table says how many inputs each reader had. A defect that is mended
leaves its input in tests/fuzz/regressions/, which the tests read.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tests.fuzz.readers import READERS
from tests.fuzz.running import FINE, Outcome, run

#: Inputs that one task takes.
_TASK = 2500
#: A reader that starts a process for each input has so many times fewer.
_FEWER = 500


class Counts:
    """What a reader did so far, and the processor seconds that it took."""

    def __init__(self) -> None:
        self.outcomes = Counter[Outcome]()
        self.seconds = 0.0

    def add(self, outcomes: Counter[Outcome], seconds: float) -> None:
        """A task's."""
        self.outcomes += outcomes
        self.seconds += seconds

    def row(self) -> str:
        """Of the table."""
        kinds = Counter[str]()
        for outcome, count in self.outcomes.items():
            kinds[outcome.kind] += count
        ways = sum(outcome.kind == "refused" for outcome in self.outcomes)
        total = self.outcomes.total()
        rate = round(total / self.seconds) if self.seconds else 0
        numbers = (total, kinds["read"], kinds["refused"], ways, len(self.defects()), rate)
        return " | ".join(f"{number:,}" for number in numbers)

    def defects(self) -> dict[Outcome, int]:
        """Outcomes that there should not be, and how often each was seen."""
        return {
            outcome: count for outcome, count in self.outcomes.items() if outcome.kind not in FINE
        }


def main() -> int:
    """The table; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(READERS)}; default all")
    parser.add_argument("--inputs", type=int, default=10_000, help="for each reader")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"), help="folder for defects")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    given = parser.parse_args()
    if unknown := set(given.readers) - set(READERS):
        parser.error(f"no reader is called {', '.join(sorted(unknown))}")
    counts = {name: Counts() for name in given.readers or READERS}
    tasks = [
        (name, range(given.first + at, given.first + min(at + _TASK, inputs)))
        for name in counts
        for inputs in [given.inputs // (_FEWER if READERS[name].starts_process else 1)]
        for at in range(0, inputs, _TASK)
    ]
    print(
        "| reader | inputs | read | refused | ways to refuse | defects | inputs/s |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )
    with ProcessPoolExecutor(given.processes) as pool:
        made = pool.map(_task, [(*task, given.found) for task in tasks])
        for name, results in groupby(made, key=itemgetter(0)):  # a row as soon as there is one
            found = counts[name]
            for _, *got in results:
                found.add(*got)
            print(f"| {name} | {found.row()} |", flush=True)
            for outcome, count in found.defects().items():
                print(f"  {count} x {outcome.kind}: {outcome.signature}", flush=True)
    return int(any(found.defects() for found in counts.values()))


def _task(task: tuple[str, range, Path]) -> tuple[str, Counter[Outcome], float]:
    before = os.times()
    outcomes = run(*task)
    return task[0], outcomes, sum(os.times()[:4]) - sum(before[:4])


if __name__ == "__main__":
    raise SystemExit(main())
