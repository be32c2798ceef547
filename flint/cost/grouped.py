"""Grouped products: each group of rows has its own matrix, as in a mixture of experts.

The idea: ``ragged_dot`` and PyTorch's ``_grouped_mm`` count FLOPs like one product, but kernels
compute whole tiles of each group, and where the groups end is known only at run time.

If each group begins a new tile, its last tile is half full on average if groups have many rows,
whatever the distribution over groups; with few rows, each group that has a row takes a tile, and
reads its own matrix for it.  If groups follow each other within tiles, as in JAX's kernels for TPUs
(``jax.experimental.pallas.ops.tpu.megablox``), a tile is computed in full for every group that has
a row in it: once, and once more for every group that begins inside it.  Their tiles are whole along
the other two dims as well: what lies beyond a matrix is computed and not stored, or masked.

    groups_of(graph)        # {work item: (groups, dim that is split)}
    rows_visited(4096, 512, 8)      # 4096 + 7 * 512
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import named
from flint.cost.hardware import KernelModel
from flint.graph.graph import WorkloadGraph

Seconds = NDArray[np.float64]

#: Names of grouped products in all frameworks.
_GROUPED: Final = ("ragged_dot", "grouped_mm")
#: Dims of a product (batch, m, n, k) that groups can split.
ROWS: Final = 1
SUMS: Final = 3
#: Lanes of a TPU's vector registers, along the last dim of a matrix.
_LANES: Final = 128


def with_rows(rows: float, groups: int) -> float:
    """How many of the groups get a row, on average, if rows are distributed uniformly."""
    return -groups * float(np.expm1(rows * np.log1p(-1 / groups))) if groups > 1 else 1.0


def tiles_down(rows: Seconds, tile: int, groups: int) -> Seconds:
    """Tiles of ``tile`` rows that ``groups`` groups of ``rows`` rows in total take, on average."""
    found = np.array([with_rows(float(each), groups) for each in np.atleast_1d(rows)])
    tiles: Seconds = np.maximum(found, rows / tile + found / 2).reshape(np.shape(rows))
    return tiles


def rows_visited(rows: float, tile: int, groups: int) -> float:
    """Rows that are computed for ``rows`` rows if groups follow each other in tiles of ``tile``
    rows.

    Groups that begin at a tile's first row are too few to matter.
    """
    return rows + (with_rows(rows, groups) - 1) * min(tile, rows)


def whole_tiles(side: float, tile: int) -> float:
    """A side of a matrix of which whole tiles are computed, each no wider than it; 0: any width."""
    return side if tile <= 0 or side <= tile else float(-(-side // tile) * tile)


def reached(sides: Seconds, model: KernelModel) -> float:
    """Share of a product's rate that a grouped one reaches.

    Args:
        sides: (batch, m, n, k), of which one or two are a sum over rows of all groups.
        model: of the device.
    """
    whole = not (sides[1:] % _LANES).any()
    return model.grouped_efficiency * (1.0 if whole else model.grouped_unaligned)


def groups_of(graph: WorkloadGraph) -> Mapping[int, tuple[int, int]]:
    """Groups of each work item that is a grouped product, and the dim that they split.

    Rows are split if an operand holds a k x n matrix per group; the sum over k is split if a result
    holds an m x n matrix per group.
    """
    found: dict[int, tuple[int, int]] = {}
    for index in np.flatnonzero(named(graph, _GROUPED)).tolist():
        node = graph[index]
        for item in range(int(graph.work_ptr[index]), int(graph.work_ptr[index + 1])):
            gemm = int(graph.work_gemm[item])
            if gemm < 0:
                continue
            _, m, n, k = graph.tables.gemms[gemm]
            per_group = [(node.operand_types, k * n, ROWS), (node.result_types, m * n, SUMS)]
            for types, matrix, dim in per_group:  # of which each is one matrix, or flat
                groups = [
                    t.shape[0]
                    for t in types
                    if len(t.shape) > 1 and t.elements == t.shape[0] * matrix
                ]
                if groups:
                    found[item] = groups[0], dim
                    break
    return found
