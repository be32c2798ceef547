"""Transposes behind batched products, which XLA's compiler takes into the products.

The idea: a program differentiated by JAX writes the gradient of each expert's matrix as a product
and a transpose of its last two dims.  XLA swaps the product's operands instead, so that nothing is
transposed (``AlgebraicSimplifier``):

    transpose (dot a, b)        dot b, a

It does if nothing else reads the product and if the dims of the batch, in front, stay where they
are.  So it is for matrices that are no part of a batch: what merges products and splits their sums
sees them swapped.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.order_edges import without_nodes
from flint.passes.xla.transposes import Entry

Gemm = tuple[int, int, int, int]


def swaps(graph: WorkloadGraph) -> list[Entry]:
    """The entries that a table of ops needs for products with swapped operands."""
    return [_swapped(entry) for entry in graph.tables.entries() if entry[0] == "dot_general"]


def _swapped(entry: Entry) -> Entry:
    name, hero, form = entry
    half = len(form) // 2
    return name, hero, (*form[half:], *form[:half])


def folded(graph: WorkloadGraph, gemms: dict[Gemm, int]) -> WorkloadGraph:
    """One block whose products write what a transpose of their last two dims wrote.

    Args:
        graph: the block; its table of ops has the entries of ``swaps``.
        gemms: all sizes of products of the program, by number; new ones are added.
    """
    found = dict(_found(graph))
    if not found:
        return graph
    operand, op = graph.operand.copy(), graph.op.copy()
    result_type, gemm = graph.result_type.copy(), graph.work_gemm.copy()
    stand = np.arange(graph.values)
    entries = list(graph.tables.entries())
    numbers = {entry: number for number, entry in enumerate(entries)}
    sizes = list(gemms)
    for transpose, product in found.items():
        made, turned = (graph.inputs + int(graph.result_ptr[at]) for at in (product, transpose))
        result_type[graph.result_ptr[product]] = graph.value_type[turned]
        stand[turned] = made
        sides = slice(*graph.operand_ptr[product : product + 2].tolist())
        operand[sides] = operand[sides][::-1]
        op[product] = numbers[_swapped(entries[op[product]])]
        item = int(graph.work_ptr[product])
        batch, m, n, k = sizes[gemm[item]]
        gemm[item] = gemms.setdefault((batch, n, m, k), len(gemms))
    changed = replace(
        graph, operand=stand[operand], outputs=stand[graph.outputs], op=op,
        result_type=result_type, work_gemm=gemm,
        tables=replace(graph.tables, gemms=tuple(gemms)),
    )  # fmt: skip
    return without_nodes(changed, set(found))


def _found(graph: WorkloadGraph) -> list[tuple[int, int]]:
    """Transposes and the products that take them in."""
    forms = [form for *_, form in graph.tables.entries()]
    # Transposes that layouts make come later.
    named = {
        name: np.array([each == name != hero for each, hero, _ in graph.tables.entries()])[graph.op]
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
        if (batch := _batch(graph, node))
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
