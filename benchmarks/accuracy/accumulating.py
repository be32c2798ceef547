"""Gradients of weights that are added up inside of the products that make them.

The idea: over several batches PyTorch makes each batch's gradient of a weight by a product, in
bfloat16, and another kernel converts it and adds it to the sum in float32.  Megatron-LM
(``gradient_accumulation_fusion``, by default; in Transformer Engine ``fuse_wgrad_accumulation``)
and llm.c let the product add to the sum.  Its 8 bytes a weight are read and written while it
computes: on an H100 a product over 4,096 tokens takes 13.8 ps a weight (at 594 TFLOP/s), its bytes
2.7 (at 3 TB/s).  So the same capture is timed without those kernels.  (At
granularity ``kernel`` most are in their products anyway; where the sequence is split, an exchange
comes between.)

    seconds = within_products()(graph, system)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import Phase, WorkloadGraph
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry

#: Types that products make gradients in.
_NARROW = ("bf16", "f16")


def within_products(kernels: Estimator | None = None) -> Estimator:
    """The estimator ``kernels`` (default: the system's), without what ``accumulations`` finds."""

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        found = (kernels or kernel_seconds)(graph, system).copy()
        found[accumulations(graph)] = 0.0
        return found

    return seconds


def accumulations(graph: WorkloadGraph) -> list[int]:
    """Kernels of the backward pass that take a product's result and at most a sum in float32, and
    return a float32 for each element."""
    products = set(row_of_entry(graph.work_ptr)[graph.work_unit == Unit.MATMUL].tolist())
    found = []
    for index in range(len(graph)):
        values = graph.operands_of(index).tolist()
        if index in products or not 1 <= len(values) <= 2:
            continue
        node = graph[index]
        if node.source.phase != Phase.BACKWARD or len(node.result_types) != 1:
            continue
        types, made = node.operand_types, node.result_types[0]
        elements = {item.elements for item in (*types, made)}
        given = [v for v, t in zip(values, types, strict=True) if t.dtype in _NARROW]
        sums = [t for t in types if t.dtype == "f32"]
        if (
            made.dtype == "f32"
            and len(elements) == len(given) == 1
            and len(given) + len(sums) == len(types)
            and int(graph.producer[given[0]]) in products
        ):
            found.append(index)
    return found
