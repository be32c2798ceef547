"""`make torture`: commands are killed at random moments and their disk is full at random lengths.

Whatever happens, what a command writes is absent or whole, no process and no temporary file stays.
A table says how often what happened; `--seed` and `--first` bring a failure back.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.torture.full_disk import MODES, every_place
from tests.torture.jobs import JOBS
from tests.torture.running import duration, fate, torture


def main() -> int:
    """The table; 1 where something was not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin none after these"
    )
    parser.add_argument(
        "--full-disk", action="store_true", help="then fill the disk at each write of a command"
    )
    parser.add_argument("--job", help="only commands whose name begins so")
    parser.add_argument(
        "--step", type=int, default=1, help="fill the disk at every n-th place only"
    )
    given = parser.parse_args()
    jobs = [job for job in JOBS if job.name.startswith(given.job or "")]
    end = time.monotonic() + given.seconds
    counts: dict[tuple[str, str], Counter[str]] = {}
    place = Path(tempfile.mkdtemp(prefix="torture-"))
    bad = 0
    try:
        takes = {
            job.name: duration(job, place / f"alone{i}")
            for i, job in enumerate(JOBS if given.times else ())
        }
        print({name: round(seconds, 1) for name, seconds in takes.items()}, flush=True)
        for number in range(given.first, given.first + given.times):
            if time.monotonic() > end:
                break
            fated = fate(number, given.seed)
            folder = place / str(number)
            found = torture(fated, folder, takes[fated.job.name])
            row = counts.setdefault((fated.job.name, fated.fault), Counter())
            row.update(["times", found.state])
            if found.problems:
                row["problems"] += 1
                bad += 1
                for problem in found.problems:
                    print(f"{number} {fated.job.name}, {fated.fault}: {problem}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
        for job in jobs if given.full_disk else ():
            for mode in MODES:
                row = counts.setdefault((job.name, f"full disk at each {mode}"), Counter())
                for at, found in every_place(job, mode, place, given.step):
                    row.update(["times", found.state])
                    row["problems"] += bool(found.problems)
                    bad += bool(found.problems)
                    for problem in found.problems:
                        print(f"{job.name}, full disk at {mode} {at}: {problem}", flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        columns = ("times", "absent", "whole", "done", "problems")
        print("| command | fault | " + " | ".join(columns) + " |")
        print("|---|---|" + "---|" * len(columns))
        total = sum(counts.values(), Counter())
        for (name, fault), row in [*sorted(counts.items()), (("all", ""), total)]:
            print(f"| {name} | {fault} | " + " | ".join(str(row[key]) for key in columns) + " |")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
