"""Measure whole commands: wall and processor seconds, peak memory, several runs, the median.

The idea: what a user waits for is the command, interpreter start and imports included, so a command
is the unit.  Nothing heavy is imported here: Linux counts what a process held when it started a
command into that command's peak memory, so whoever measures must be small.

    measure(["flint", "inspect", "model.mlirbc"], runs=5).wall      # seconds, median
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """What the runs of one command took.

    Attributes:
        wall, user, system: seconds, medians.
        peak: resident memory of the process, the largest of all runs (bytes).
        fastest, slowest: wall seconds of the extreme runs.
        runs: how many.
        said: what each run wrote to standard output.
    """

    wall: float
    user: float
    system: float
    peak: int
    fastest: float
    slowest: float
    runs: int
    said: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The numbers."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "said"}

    def document(self, *keys: str) -> float:
        """The median of a number in the JSON documents that the runs wrote.

        Args:
            keys: where it stands, from the outside in.
        """
        values = []
        for text in self.said:
            value = json.loads(text)
            for key in keys:
                value = value[key]
            values.append(value)
        return median(values)


def measure(
    command: Sequence[str],
    *,
    runs: int = 5,
    warm: bool = True,
    before: Callable[[], None] | None = None,
) -> Measured:
    """Run ``command`` once to warm the caches and ``runs`` times to measure.

    Args:
        command: program and arguments.
        runs: counted runs.
        warm: False leaves the first run away.
        before: called in front of every run (to remove outputs).

    Raises:
        RuntimeError: a run failed.
    """
    walls, users, systems, peaks, said = [], [], [], [], []
    for run in range(-1 if warm else 0, runs):
        if before is not None:
            before()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=output, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            errors.seek(0)
            if process.returncode:
                raise RuntimeError(f"{' '.join(command)}: {errors.read().decode()[-400:]}")
            if run < 0:
                continue
            said.append(output.read().decode())
        walls.append(wall)
        users.append(usage.ru_utime)
        systems.append(usage.ru_stime)
        peaks.append(usage.ru_maxrss * 1024)
    return Measured(
        median(walls),
        median(users),
        median(systems),
        max(peaks),
        min(walls),
        max(walls),
        runs,
        tuple(said),
    )


def together(runs: Sequence[Measured]) -> Measured:
    """Runs that were measured one by one, as if at once."""
    return Measured(
        median(item.wall for item in runs),
        median(item.user for item in runs),
        median(item.system for item in runs),
        max(item.peak for item in runs),
        min(item.fastest for item in runs),
        max(item.slowest for item in runs),
        sum(item.runs for item in runs),
        tuple(text for item in runs for text in item.said),
    )


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent of the power law that fits best: least squares on logarithms.

    Args:
        sizes, values: positive, at least two different sizes.
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    products = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return products / sum((a - middle_x) ** 2 for a in x)
