"""Measured durations: a table that replaces the kernel model for the kernels in it.

The idea: a user who has timed kernels writes a CSV file with one line per kernel: its op and its
result types as ``flint inspect --nodes`` shows them; every other kernel keeps its modelled time.
Any function of a graph and a system can be used in the same way; ours have names
(``flint.cost.estimators``).

    op,result,seconds
    dot_general,4096x4096xbf16,0.000214

A column ``operands`` before ``result``, with their types, distinguishes kernels that differ only in
these.

    simulate(workload, kernels=read_measured(Path("kernels.csv")))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.cost.roofline import Seconds
from flint.errors import UsageError
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.nodes import Node
from flint.host.csv_files import csv_lines

_COLUMNS: Final = ["op", "result", "seconds"]
_LONGER: Final = ["op", "operands", "result", "seconds"]
#: A kernel: its op, its operands' types ("" if the table has none) and its results' types; types
#: are joined by blanks.
Key = tuple[str, str, str]


def key_of(node: Node) -> Key:
    """The key of a kernel in a table."""
    operands = " ".join(map(str, node.operand_types))
    return node.op, operands, " ".join(map(str, node.result_types))


@dataclass(frozen=True, slots=True)
class Measured:
    """An estimator with a table.

    Attributes:
        table: kernel -> seconds.
        base: estimator for kernels that are not in the table.
        used: the entries that were used.
    """

    table: dict[Key, float]
    base: Estimator = kernel_seconds
    used: set[Key] = field(default_factory=set)

    def __call__(self, graph: WorkloadGraph, system: System) -> Seconds:
        """Seconds per node, from the table or else modelled."""
        seconds = self.base(graph, system)
        for index in np.flatnonzero((graph.kind == NodeKind.COMPUTE) & (seconds > 0)).tolist():
            op, operands, results = key_of(graph[index])
            for key in ((op, operands, results), (op, "", results)):
                if key in self.table:
                    seconds[index] = self.table[key]
                    self.used.add(key)
                    break
        return seconds

    def notes(self) -> list[str]:
        """How much of the table was used."""
        text = f"{len(self.used)} of {len(self.table)} measured durations are used"
        return [text + ", all other kernels are modelled"]


def read_measured(path: Path, base: Estimator = kernel_seconds) -> Measured:
    """The table in a CSV file with the columns op, result and seconds, or op, operands, result
    and seconds; ``base`` has the rest.

    Raises:
        UsageError: no such file, another heading, or a line without a duration.
    """
    lines = csv_lines(path, "a table of durations")
    columns = [name.strip() for name in lines[0]] if lines else []
    if columns not in (_COLUMNS, _LONGER):
        raise UsageError(
            f"{path}: the first line must be {','.join(_COLUMNS)} or {','.join(_LONGER)}"
        )
    table: dict[Key, float] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            op, *operands, result, text = line
            [types] = operands if columns == _LONGER else [*operands, ""]
            seconds = float(text)
        except ValueError:
            raise UsageError(f"{path}:{number}: expected {','.join(columns)}") from None
        if not (0 <= seconds < math.inf):
            raise UsageError(f"{path}:{number}: seconds must be at least 0, not {text}")
        if table.setdefault((op, types, result), seconds) != seconds:
            raise UsageError(f"{path}:{number}: {op} {result} has two durations")
    return Measured(table, base)
