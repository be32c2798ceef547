"""What is computed from constants alone, which XLA's compiler computes itself.

The idea: an op whose operands are constants, or broadcasts of them, is a constant of the program
(``HloConstantFolding``), such as a mask with one element replaced, or a factor in another type.
Broadcasts and what is computed from nothing else stay, as they would become large, and so do
results of more than 45 million elements.

Source: ``hlo_constant_folding.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.steps import Steps

CONSTANT: Final = ("constant", "", ())
_FOLDED: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.UPDATE, Role.REDUCTION)
_MOST: Final = 45_000_000


def folded_constants(graph: WorkloadGraph) -> WorkloadGraph:
    """One block whose ops on constants alone are constants.

    Args:
        graph: the block; its table of ops has the entry ``CONSTANT``.
    """
    names = [graph.tables.ops[op] for op in graph.op.tolist()]
    able = (graph.kind == NodeKind.COMPUTE) & (np.diff(graph.result_ptr) == 1)
    able &= (np.diff(graph.order_ptr) == 0) & np.isin(graph.role, (Role.ALIAS, *_FOLDED))
    able[graph.order_node] = False
    constant, spread = (np.zeros(graph.values, dtype=bool) for _ in range(2))
    written = graph.result_ptr[:-1] + graph.inputs
    found = []
    for node in np.flatnonzero(able | (graph.role == Role.GENERATE)).tolist():
        made, operands = int(written[node]), graph.operands_of(node)
        if graph.role[node] == Role.GENERATE:
            constant[made] = names[node] == CONSTANT[0]
        elif not len(operands) or not (constant | spread)[operands].all():
            continue
        elif graph.role[node] == Role.ALIAS:
            constant[made], spread[made] = constant[operands[0]], spread[operands[0]]
        elif names[node] == "broadcast_in_dim":
            spread[made] = True
        elif constant[operands].any() and graph.type_of(made).elements <= _MOST:
            constant[made] = True
            found.append(node)
    if not found:
        return graph
    types = {kind: number for number, kind in enumerate(graph.tables.types)}
    steps = Steps(graph, np.ones(len(graph), dtype=np.int64), types)
    aliased = graph.bytes_aliased.copy()
    number = list(graph.tables.entries()).index(CONSTANT)
    for node in found:
        steps.op[node], steps.role[node], steps.operands[node] = number, Role.GENERATE, []
        steps.read[node] = steps.written[node] = 0
        steps.works[node] = False
        aliased[node] = graph.value_bytes[written[node]]
    return replace(steps.done(), bytes_aliased=aliased)
