"""Measured durations: a table that takes the place of the kernel model where it has an answer.

The idea: whoever has timed kernels writes a CSV file with one line per kernel, its op and its
result types as ``flint inspect --nodes`` shows them; every other kernel keeps its modelled time.
Any function of a graph and a system can stand in the same place, a systolic model for example.

    op,result,seconds
    dot_general,4096x4096xbf16,0.000214

    simulate(workload, kernels=read_measured(Path("kernels.csv")))
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from flint.cost.hardware import System
from flint.cost.kernels import kernel_seconds
from flint.cost.roofline import Seconds
from flint.errors import UsageError
from flint.graph.graph import NodeKind, WorkloadGraph

#: Seconds per node of a graph, shape [nodes]; 0 for nodes that do not compute.
Estimator = Callable[[WorkloadGraph, System], Seconds]

_COLUMNS: Final = ["op", "result", "seconds"]
_MAX_BYTES: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class Measured:
    """An estimator with a table.

    Attributes:
        table: (op, result types joined by a blank) -> seconds.
        used: the entries that some kernel took.
    """

    table: dict[tuple[str, str], float]
    used: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, graph: WorkloadGraph, system: System) -> Seconds:
        """Seconds per node: from the table, else modelled."""
        seconds = kernel_seconds(graph, system)
        for index in np.flatnonzero((graph.kind == NodeKind.COMPUTE) & (seconds > 0)).tolist():
            node = graph[index]
            key = node.op, " ".join(str(kind) for kind in node.result_types)
            if key in self.table:
                seconds[index] = self.table[key]
                self.used.add(key)
        return seconds

    def notes(self) -> list[str]:
        """What became of the table."""
        text = f"{len(self.used)} of {len(self.table)} measured durations are used"
        return [text + ", all other kernels are modelled"]


def read_measured(path: Path) -> Measured:
    """The table in a CSV file with the columns op, result and seconds.

    Raises:
        UsageError: no such file, another heading, or a line that is no duration.
    """
    try:
        with path.open("rb") as file:  # a pipe, whose size is unknown, is fine
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path}: too large for a table of durations")
        lines = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    if not lines or [name.strip() for name in lines[0]] != _COLUMNS:
        raise UsageError(f"{path}: the first line must be {','.join(_COLUMNS)}")
    table: dict[tuple[str, str], float] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            op, result, text = line
            seconds = float(text)
        except ValueError:
            raise UsageError(f"{path}:{number}: expected op,result,seconds") from None
        if not (0 <= seconds < math.inf):
            raise UsageError(f"{path}:{number}: seconds must be at least 0, not {text}")
        if table.setdefault((op, result), seconds) != seconds:
            raise UsageError(f"{path}:{number}: {op} {result} has two durations")
    return Measured(table)
