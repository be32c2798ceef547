"""Measure whole commands: wall and processor seconds, peak memory, several runs, the median.

measure(["flint", "inspect", "model.mlirbc"], runs=5).wall      # seconds, median
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the runs of one command.

    Attributes:
        wall, user, system: seconds.
        peak: resident memory of the process, bytes.
        fastest, slowest: wall seconds of the extreme runs.
        runs: how many.
    """

    wall: float
    user: float
    system: float
    peak: int
    fastest: float
    slowest: float
    runs: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)


def measure(
    command: Sequence[str], *, runs: int = 5, before: Callable[[], None] | None = None
) -> Measured:
    """Run ``command`` once to warm the caches and ``runs`` times to measure.

    Args:
        command: program and arguments.
        runs: counted runs.
        before: called in front of every run (to remove outputs).

    Raises:
        RuntimeError: a run failed.
    """
    walls, users, systems, peaks = [], [], [], []
    for run in range(runs + 1):
        if before is not None:
            before()
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - started
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: {said.decode()[-400:]}")
        if run:
            walls.append(wall)
            users.append(usage.ru_utime)
            systems.append(usage.ru_stime)
            peaks.append(usage.ru_maxrss * 1024)
    return Measured(
        statistics.median(walls),
        statistics.median(users),
        statistics.median(systems),
        int(statistics.median(peaks)),
        min(walls),
        max(walls),
        runs,
    )


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent of the power law that fits best: least squares on logarithms."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
