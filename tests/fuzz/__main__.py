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
from pathlib import Path

from tests.fuzz.readers import READERS
from tests.fuzz.running import FINE, Outcome, run

#: Inputs that one task takes; what a task grows is lost at its end.
_TASK = 1000


def main() -> int:
    """The table; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(READERS)}; default all")
    parser.add_argument("--inputs", type=int, default=10_000, help="for each reader")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"), help="folder for defects")
    given = parser.parse_args()
    if unknown := set(given.readers) - set(READERS):
        parser.error(f"no reader is called {', '.join(sorted(unknown))}")
    counts: dict[str, Counter[Outcome]] = {name: Counter() for name in given.readers or READERS}
    end = given.first + given.inputs
    tasks = [
        (name, range(first, min(first + _TASK, end)))
        for first in range(given.first, end, _TASK)
        for name in counts
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for (name, _), got in zip(
            tasks, pool.map(_task, [(*task, given.found) for task in tasks]), strict=True
        ):
            counts[name] += got
    print(
        "| reader | inputs | read | refused | ways to refuse | defects |\n|---|---|---|---|---|---|"
    )
    bad = 0
    for name, outcomes in counts.items():
        kinds = Counter[str]()
        for outcome, count in outcomes.items():
            kinds[outcome.kind] += count
        defects = {
            outcome: count for outcome, count in outcomes.items() if outcome.kind not in FINE
        }
        ways = sum(outcome.kind == "refused" for outcome in outcomes)
        bad += len(defects)
        row = (outcomes.total(), kinds["read"], kinds["refused"], ways, len(defects))
        print(f"| {name} | " + " | ".join(f"{number:,}" for number in row) + " |")
        for outcome, count in defects.items():
            print(f"  {count} x {outcome.kind}: {outcome.signature}")
    return int(bad > 0)


def _task(task: tuple[str, range, Path]) -> Counter[Outcome]:
    return run(*task)


if __name__ == "__main__":
    raise SystemExit(main())
