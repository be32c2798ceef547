"""Measured kernels of a profile: the products that a run recorded with their shapes.

The idea: a converted profile has each kernel's measured time and the work that follows from its
shapes.  Kernels with the same op and size are one entry, with the median of their times. Only
products are entries: for other kernels, a profile does not record what they write.

    kernels, left = kernels_of(flint.convert_traces(["trace.json.gz"]))
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import numpy as np

from flint.calibration.kernels import MeasuredKernel, Shape
from flint.cost.classes import KERNELS, kernel_classes
from flint.graph.graph import NodeKind
from flint.graph.nesting import blocks
from flint.graph.nodes import Node
from flint.graph.work import Unit
from flint.workload.workload import Workload

#: Op, class, operands' shapes, result's shape, type.
_Key = tuple[str, str, tuple[Shape, ...], Shape, str]


def kernels_of(workload: Workload) -> tuple[list[MeasuredKernel], int]:
    """The measured products of a workload, and how many of its kernels are not usable products.

    Args:
        workload: converted from a profile that recorded shapes.
    """
    found: defaultdict[_Key, list[float]] = defaultdict(list)
    left = 0
    for program in workload.programs:
        for block in blocks(program.graph):
            graph = block.graph
            products = kernel_classes(graph) == KERNELS.index("matmul")
            nanoseconds = graph.measured_by_node()
            for index in np.flatnonzero(graph.kind == NodeKind.COMPUTE).tolist():
                key = _key(graph[index]) if products[index] and nanoseconds[index] > 0 else None
                if key is None:
                    left += 1
                else:
                    found[key].append(float(nanoseconds[index]) * 1e-9)
    kernels = [MeasuredKernel(*key, statistics.median(times)) for key, times in found.items()]
    return kernels, left


def _key(node: Node) -> _Key | None:
    """A product's description; None if it is not a single product of known size."""
    items = [item for item in node.work.items if item.unit != Unit.MEASURED]
    if len(items) != 1 or items[0].dims is None:
        return None
    batch, m, n, k = items[0].dims
    outer = (batch,) if batch > 1 else ()
    operands = ((*outer, m, k), (*outer, k, n))
    return node.op.partition(": ")[0], "matmul", operands, (*outer, m, n), items[0].dtype
