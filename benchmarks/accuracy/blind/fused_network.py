"""Transformer Engine's fused network of experts: all between its products is in their epilogues.

The idea: for MXFP8, ``ops/fused/forward_grouped_mlp.py`` and ``backward_grouped_mlp.py`` of
Transformer Engine run an expert's network by kernels of cuDNN's front end (CuteDSL):

    gate and up          the epilogue writes both in bf16, for the backward pass, and what they make
                         together, times the router's weights, in f8 along both dims
    down                 plain
    gradient of down     the epilogue reads gate and up, and writes their gradients in f8 along both
                         dims, and the gradient of the router's weight of every row
    gradient of the two  one product

So kernels over the experts' rows beside these products take no time of their own; what they read
and write, unless it stays on the chip, is moved by the product whose result they read.  What they
make for products is in f8 already: ``narrow`` does not cast it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flint.cost.grouped import ROWS, groups_of
from flint.cost.hardware import System
from flint.cost.kernels import Estimator
from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry

#: What a recipe's notes say of it.
STATED = "fused grouped network (CuteDSL)"


def within_products(timed: Estimator) -> Estimator:
    """Kernels whose experts are such a network."""

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        found = timed(graph, system)
        accelerator = system.accelerator
        rate = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
        moved = (graph.bytes_read + graph.bytes_written).astype(np.float64)
        within = kernels_within(graph)
        for node, (product, outside) in within.items():
            found[node] = 0.0
            moved[product] += outside
        for product in {product for product, outside in within.values() if outside}:
            found[product] = max(found[product], moved[product] / rate)
        return found

    return seconds


def made_within(graph: WorkloadGraph) -> set[int]:
    """Values that such a network's epilogues write."""
    within = kernels_within(graph).items()
    return {value for node, (_, moved) in within if moved for value in _results(graph, node)}


def kernels_within(graph: WorkloadGraph) -> Mapping[int, tuple[int, int]]:
    """Of each kernel that is in an epilogue, its product, and the bytes that it moves beyond the
    chip.

    They are elementwise and reduce within rows.  What only scales rows by the router's weights, or
    makes gradients of these, has no product's result of its phase, and nothing to move.
    """
    owner, gemms = row_of_entry(graph.work_ptr), graph.tables.gemms
    split = {int(owner[item]): (item, dim) for item, (_, dim) in groups_of(graph).items()}
    multiplied = {value for node in split for value in graph.operands_of(node).tolist()}
    chain = {node: node for node, (_, dim) in split.items() if dim == ROWS}
    rows = {gemms[int(graph.work_gemm[split[node][0]])][1] for node in chain}
    last = max(chain, default=-1)
    phases = [source.phase for source in graph.tables.sources]
    found: dict[int, tuple[int, int]] = {}
    for node in range(len(graph)):
        if graph.role[node] not in (Role.ELEMENTWISE, Role.REDUCTION):
            continue
        made = _results(graph, node)
        wide = [v for v in graph.operands_of(node).tolist() if len(graph.type_of(v).shape) > 1]
        if not wide or not all({*graph.type_of(v).shape[:1]} & rows for v in made):
            continue
        makers = [int(graph.producer[v]) for v in wide]
        phase = phases[graph.source[node]]
        near = [m in chain and phases[graph.source[m]] == phase for m in makers]
        if not any(near):
            found[node] = last, 0
            continue
        kept = {v for v, on_chip in zip(wide, near, strict=True) if not on_chip}
        outside = sum(int(graph.value_bytes[v]) for v in kept | multiplied.intersection(made))
        chain[node] = max(chain[m] for m, on_chip in zip(makers, near, strict=True) if on_chip)
        found[node] = chain[node], outside
    return found


def _results(graph: WorkloadGraph, node: int) -> range:
    first, end = graph.inputs + graph.result_ptr[node : node + 2]
    return range(int(first), int(end))
