"""Scaling compute: what if every kernel had less, or more, to do.

The idea: FLOPs and the bytes that compute nodes read and write are multiplied by a factor; the
fixed latency of a kernel and all communication stay.

    graph = scale(graph, factor=0.5)        # kernels of half the work
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.mesh.ragged import row_of_entry
from flint.passes.columns import with_bodies


def scale(graph: WorkloadGraph, *, factor: float) -> WorkloadGraph:
    """``graph`` with the work of its compute nodes multiplied, rounded to whole numbers.

    Args:
        graph: at any granularity.
        factor: factor for FLOPs and for bytes read and written.
    """
    computes = graph.kind == NodeKind.COMPUTE
    working = computes[row_of_entry(graph.work_ptr)]

    def scaled(column: Ints) -> Ints:
        found: Ints = np.rint(column * factor).astype(np.int64)
        return found

    graph = replace(
        graph,
        work_flops=np.where(working, scaled(graph.work_flops), graph.work_flops),
        bytes_read=np.where(computes, scaled(graph.bytes_read), graph.bytes_read),
        bytes_written=np.where(computes, scaled(graph.bytes_written), graph.bytes_written),
    )
    return with_bodies(graph, lambda body, _: scale(body, factor=factor))
