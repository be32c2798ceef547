"""Transposes of what is computed from broadcasts alone, which move nothing.

The idea: XLA gives values the layout that their readers want.  What is computed from broadcasts of
smaller tensors, as the product of two vectors, has no layout of its own, so that it is made in the
one behind the transpose (``LayoutAssignment``):

    transpose (multiply (broadcast a), (broadcast b))        multiply (broadcast a), (broadcast b)

It does if nothing else reads what is transposed.

Source: ``layout_assignment.cc`` of openxla/xla (2023 to 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.passes.order_edges import without_nodes
from flint.passes.rematerialize import transparent_nodes
from flint.passes.xla.transposes import TRANSPOSE

BROADCAST = "broadcast_in_dim"


def without_free_transposes(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block without such transposes.

    Args:
        graph: the block; its table of ops has the plain entry of broadcasts.
        types: all types of the program, by number; new ones are added.
    """
    found = dict(_found(graph))
    if not found:
        return graph
    forms = [form for *_, form in graph.tables.entries()]
    op, result_type = graph.op.copy(), graph.result_type.copy()
    stand = np.arange(graph.values)
    for node, inside in found.items():
        [stand[graph.inputs + int(graph.result_ptr[node])]] = graph.operands_of(node).tolist()
        for each in inside:
            kind = graph.tables.types[graph.result_type[graph.result_ptr[each]]]
            shape = tuple(kind.shape[dim] for dim in forms[graph.op[node]])
            number = types.setdefault(tensor_type(shape, kind.dtype), len(types))
            result_type[graph.result_ptr[each]] = number
            if graph.role[each] == Role.MOVEMENT:
                op[each] = graph.tables.plain(BROADCAST)
    changed = replace(
        graph, operand=stand[graph.operand], outputs=stand[graph.outputs], op=op,
        result_type=result_type, tables=replace(graph.tables, types=tuple(types)),
    )  # fmt: skip
    return without_nodes(changed, set(found))


def _found(graph: WorkloadGraph) -> Iterator[tuple[int, list[int]]]:
    """Transposes that move nothing, each with the nodes that make what it transposes."""
    entries = list(graph.tables.entries())
    plain = np.array([name == TRANSPOSE != hero for name, hero, _ in entries], dtype=bool)
    free = (np.diff(graph.result_ptr) == 1) & (np.diff(graph.order_ptr) == 0)
    free[graph.order_node] = False
    free &= graph.kind == NodeKind.COMPUTE
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    spread = transparent_nodes(graph) & (graph.role == Role.MOVEMENT) | (
        graph.role == Role.GENERATE
    )
    able = free & (spread | (graph.role == Role.ELEMENTWISE))
    for node in np.flatnonzero(plain[graph.op] & free).tolist():
        ahead, inside = graph.operands_of(node).tolist(), list[int]()
        shape = graph.type_of(ahead[0]).shape
        while ahead:
            value = ahead.pop()
            maker = int(graph.producer[value])
            alone = maker >= 0 and able[maker] and uses[value] == 1
            if not alone or graph.type_of(value).shape != shape:
                break
            inside.append(maker)
            ahead += [] if spread[maker] else graph.operands_of(maker).tolist()
        else:
            if len(entries[graph.op[node]][2]) == len(shape):
                yield node, inside
