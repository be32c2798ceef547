"""Grouped products: each group of rows meets a matrix of its own, as the experts of a mixture do.

The idea: ``ragged_dot`` and PyTorch's ``_grouped_mm`` are one product to a count of FLOPs, but
kernels compute whole tiles of each group.  Where the groups end is only known when they run.  Of
many rows per group the last tile is half full on average, whatever the distribution over groups; of
few, each group that has a row has a tile, and reads its own matrix for it.

    groups_of(graph)        # {work item: (groups, dim that is split)}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import named
from flint.graph.graph import WorkloadGraph

Seconds = NDArray[np.float64]

#: What grouped products are called, in any framework.
_GROUPED: Final = ("ragged_dot", "grouped_mm")
#: Dims of a product (batch, m, n, k) that groups can split.
ROWS: Final = 1
SUMS: Final = 3


def with_rows(rows: float, groups: int) -> float:
    """How many of the groups get a row, on average, if each row goes to any of them alike."""
    return -groups * float(np.expm1(rows * np.log1p(-1 / groups))) if groups > 1 else 1.0


def tiles_down(rows: Seconds, tile: int, groups: int) -> Seconds:
    """Tiles of ``tile`` rows that so many groups of ``rows`` rows together take, on average."""
    found = np.array([with_rows(float(each), groups) for each in np.atleast_1d(rows)])
    tiles: Seconds = np.maximum(found, rows / tile + found / 2).reshape(np.shape(rows))
    return tiles


def groups_of(graph: WorkloadGraph) -> Mapping[int, tuple[int, int]]:
    """Groups of each work item that is a grouped product, and the dim that they split.

    Rows are split where an operand holds a matrix of k x n per group; the sum over k is where a
    result holds one of m x n per group.
    """
    found: dict[int, tuple[int, int]] = {}
    for index in np.flatnonzero(named(graph, _GROUPED)).tolist():
        node = graph[index]
        for item in range(int(graph.work_ptr[index]), int(graph.work_ptr[index + 1])):
            gemm = int(graph.work_gemm[item])
            if gemm < 0:
                continue
            _, m, n, k = graph.tables.gemms[gemm]
            per_group = [(node.operand_types, {k, n}, ROWS), (node.result_types, {m, n}, SUMS)]
            for types, matrix, dim in per_group:
                groups = [
                    t.shape[0] for t in types if len(t.shape) == 3 and {*t.shape[1:]} == matrix
                ]
                if groups:
                    found[item] = groups[0], dim
                    break
    return found
