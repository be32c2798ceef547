"""Putting measured times into a graph, at the nodes that they are of.

with_measured(graph, {"fusion.3": 5200}, names)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPE_CODE
from flint.graph.work import Unit

Ints = NDArray[np.int64]
Kind = TypeVar("Kind", np.int8, np.int64)


def with_nanoseconds(graph: WorkloadGraph, nanoseconds: Ints) -> WorkloadGraph:
    """The graph, its nodes with measured times; bodies as they are.

    Args:
        graph: without measured times.
        nanoseconds: of each node, -1 for those that keep their modelled time; shape [nodes].
    """
    timed = nanoseconds >= 0
    counts = np.diff(graph.work_ptr) + timed
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    last = ptr[1:][timed] - 1
    others = np.ones(int(ptr[-1]), bool)
    others[last] = False

    def column(old: NDArray[Kind], new: int | Ints) -> NDArray[Kind]:
        merged: NDArray[Kind] = np.empty(len(others), old.dtype)
        merged[others] = old
        merged[last] = np.asarray(new).astype(old.dtype)
        return merged

    return replace(
        graph,
        work_ptr=ptr,
        work_unit=column(graph.work_unit, int(Unit.MEASURED)),
        work_dtype=column(graph.work_dtype, DTYPE_CODE["index"]),
        work_flops=column(graph.work_flops, nanoseconds[timed]),
        work_gemm=column(graph.work_gemm, -1),
    )
