"""Gathers on TPUs, which take a time for each index, however short its row is.

The idea: a row is fetched by a transfer of its own, of which one begins at a time.

    index_seconds(graph, accelerator)       # per node; 0 where nothing is known
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flint.cost.hardware import Accelerator
from flint.cost.roofline import Seconds
from flint.graph.graph import WorkloadGraph
from flint.graph.nodes import Node

_GATHERS: Final = ("gather", "dynamic_gather")


def index_seconds(graph: WorkloadGraph, accelerator: Accelerator) -> Seconds:
    """Seconds that indices take, shape [nodes]."""
    found = np.zeros(len(graph))
    each = accelerator.kernel.gather_index
    if not each:
        return found
    for op, name in enumerate(graph.tables.ops):
        if name in _GATHERS:
            for index in np.flatnonzero(graph.op == op).tolist():
                found[index] = each * _indices(graph[index])
    return found


def _indices(node: Node) -> int:
    """How many rows a gather takes: one for each index, and at most one for each element made."""
    given = [kind.elements for kind in node.operand_types if kind.dtype in ("i32", "ui32", "i64")]
    made = sum(kind.elements for kind in node.result_types)
    return min(max(given, default=0), made)
