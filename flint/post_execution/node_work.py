"""Work added to the nodes of a graph: measured times, and that a node has no FLOPs.

with_nanoseconds(with_known_work(graph, {"somebodys_call"}), nanoseconds)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.tensor_types import DTYPE_CODE
from flint.graph.work import Unit
from flint.mesh.ragged import Ints

Kind = TypeVar("Kind", np.int8, np.int64)


def with_nanoseconds(graph: WorkloadGraph, nanoseconds: Ints) -> WorkloadGraph:
    """The graph, its nodes with measured times; bodies as they are.

    Args:
        graph: without measured times.
        nanoseconds: times of the nodes, -1 for those that keep their modelled time; shape [nodes].
    """
    return _with_items(graph, nanoseconds >= 0, Unit.MEASURED, "index", nanoseconds)


def with_known_work(graph: WorkloadGraph, unknown: Collection[str]) -> WorkloadGraph:
    """The graph of a compiled program, whose nodes without FLOPs have none, as the program tells.

    Args:
        graph: without measured times.
        unknown: ops whose FLOPs are not known if the graph has none for them.
    """
    told = np.array([name not in unknown for name in graph.tables.ops] or [True], np.bool_)
    nothing = (np.diff(graph.work_ptr) == 0) & (graph.kind == NodeKind.COMPUTE)
    zero = np.zeros(len(graph), np.int64)
    return _with_items(graph, nothing & told[graph.op], Unit.VECTOR, "f32", zero)


def _with_items(
    graph: WorkloadGraph, some: NDArray[np.bool_], unit: Unit, dtype: str, amounts: Ints
) -> WorkloadGraph:
    """The graph with one more item of work at some nodes, their last; shapes [nodes]."""
    counts = np.diff(graph.work_ptr) + some
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    last = ptr[1:][some] - 1
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
        work_unit=column(graph.work_unit, int(unit)),
        work_dtype=column(graph.work_dtype, DTYPE_CODE[dtype]),
        work_flops=column(graph.work_flops, amounts[some]),
        work_gemm=column(graph.work_gemm, -1),
    )
