"""Transposes behind batched products, which XLA's compiler takes into the products.

The idea: a program differentiated by JAX writes the gradient of each expert's matrix as a product
and a transpose of its last two dims.  XLA swaps the product's operands instead, so that nothing is
transposed (``AlgebraicSimplifier``):

    transpose (dot a, b)        dot b, a

It does if nothing else reads the product and if the dims of the batch, in front, stay where they
are.  Matrices that are no part of a batch are turned by their product's kernel anyway
(``flint.passes.xla.products``).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.order_edges import without_nodes


def folded(graph: WorkloadGraph) -> WorkloadGraph:
    """One block whose batched products write what a transpose of their last two dims wrote."""
    found = dict(_found(graph))
    if not found:
        return graph
    operand, outputs = graph.operand.copy(), graph.outputs.copy()
    result_type = graph.result_type.copy()
    for transpose, product in found.items():
        made, turned = (graph.inputs + int(graph.result_ptr[at]) for at in (product, transpose))
        result_type[graph.result_ptr[product]] = graph.value_type[turned]
        for column in (operand, outputs):
            column[column == turned] = made
    changed = replace(graph, operand=operand, outputs=outputs, result_type=result_type)
    return without_nodes(changed, set(found))


def _found(graph: WorkloadGraph) -> list[tuple[int, int]]:
    """Transposes and the products that take them in."""
    forms = [form for *_, form in graph.tables.entries()]
    named = {
        name: np.array([each == name for each in graph.tables.ops], dtype=bool)[graph.op]
        for name in ("transpose", "dot_general")
    }
    free = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
    free &= graph.kind == NodeKind.COMPUTE
    free[graph.order_node] = False
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    batches = {
        node: batch
        for node in np.flatnonzero(
            named["dot_general"] & free & (graph.role == Role.CONTRACTION)
        ).tolist()
        if (batch := _batch(graph, node)) > 1
    }
    found = []
    for node in np.flatnonzero(named["transpose"] & free).tolist():
        [value] = graph.operands_of(node).tolist()
        product = int(graph.producer[value])
        shape, order = graph.tables.types[graph.value_type[value]].shape, forms[graph.op[node]]
        rank = len(shape)
        swaps = order == (*range(rank - 2), rank - 1, rank - 2)
        if swaps and uses[value] == 1 and batches.get(product) == math.prod(shape[:-2]):
            found.append((node, product))
    return found


def _batch(graph: WorkloadGraph, node: int) -> int:
    """How many products of matrices a node is, 0 if its sizes are not known."""
    items = slice(*graph.work_ptr[node : node + 2].tolist())
    sizes = graph.work_gemm[items]
    return graph.tables.gemms[sizes[0]][0] if len(sizes) == 1 and sizes[0] >= 0 else 0
