"""Arithmetic on broadcasts, which XLA's compiler does before it broadcasts.

The idea: if all operands of an op are broadcasts of values of one shape along the same dims, or of
scalars, the op works on what is broadcast (``AlgebraicSimplifier``):

    multiply (broadcast iota [512]), (broadcast c)        broadcast (multiply iota [512], c)

So the places of random numbers, which are 64 bits long, are tables of one dim each, which kernels
of their own write where a product for each number would take longer than reading it.

Source: ``algebraic_simplifier.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.passes.xla.steps import Steps

_BROADCAST: Final = "broadcast_in_dim"


class _Spread(NamedTuple):
    """What a value is a broadcast of.

    Attributes:
        kind: type of what is broadcast.
        op: the entry of the broadcast.
    """

    kind: TensorType
    op: int


def sunk_broadcasts(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block whose ops on broadcasts alone are broadcasts of their results.

    Args:
        graph: the block.
        types: all types of the program, by number; new ones are added.
    """
    names = np.array([name == _BROADCAST for name in graph.tables.ops] or [False])[graph.op]
    alone = (graph.kind == NodeKind.COMPUTE) & (np.diff(graph.result_ptr) == 1)
    alone &= np.diff(graph.order_ptr) == 0
    alone[graph.order_node] = False
    spreads = alone & names & (graph.role == Role.MOVEMENT)
    works = alone & (graph.role == Role.ELEMENTWISE)
    sources: dict[int, tuple[int, _Spread]] = {}  # broadcast value -> what it is a broadcast of
    found: dict[int, tuple[list[int], _Spread]] = {}
    for node in np.flatnonzero(spreads | works).tolist():
        values = graph.operands_of(node).tolist()
        made = graph.inputs + int(graph.result_ptr[node])
        if spreads[node]:
            if len(values) == 1 and values[0] not in sources:
                spread = _Spread(graph.type_of(values[0]), int(graph.op[node]))
                sources[made] = values[0], spread
            continue
        if values and all(value in sources for value in values):
            common = _common([sources[value][1] for value in values])
            if common is not None:
                kind = tensor_type(common.kind.shape, graph.type_of(made).dtype)
                result = _Spread(kind, common.op)
                found[node] = [sources[value][0] for value in values], result
                sources[made] = made, result
    return _with_sunk(graph, found, types) if found else graph


def _common(spreads: Sequence[_Spread]) -> _Spread | None:
    """The broadcast that all have in common but for those of scalars; None if there is none."""
    whole = [spread for spread in spreads if spread.kind.elements > 1 or spread.kind.shape]
    if len({(spread.kind.shape, spread.op) for spread in whole}) > 1:
        return None
    return whole[0] if whole else spreads[0]


def _with_sunk(
    graph: WorkloadGraph,
    found: dict[int, tuple[list[int], _Spread]],
    types: dict[TensorType, int],
) -> WorkloadGraph:
    copies = np.ones(len(graph), dtype=np.int64)
    copies[list(found)] = 2
    steps = Steps(graph, copies, types)
    flops = steps.graph.work_flops.copy()
    new_value = {graph.inputs + int(graph.result_ptr[node]): node for node in found}
    for node, (values, spread) in found.items():
        end = int(steps.last[node])
        start, whole = end - 1, steps.graph.type_of(steps.value(end))
        steps.operands[start] = [
            steps.value(int(steps.last[new_value[value]]) - 1)
            if value in new_value
            else _moved(graph, steps, value)
            for value in values
        ]
        steps.makes(start, spread.kind)
        steps.read[start] = len(values) * spread.kind.bytes
        steps.written[start] = spread.kind.bytes
        steps.moves(end, spread.op, steps.value(start))
        steps.read[end], steps.written[end] = spread.kind.bytes, whole.bytes
        for item in range(int(steps.graph.work_ptr[start]), int(steps.graph.work_ptr[start + 1])):
            flops[item] = flops[item] * spread.kind.elements // max(whole.elements, 1)
    steps.graph = replace(steps.graph, work_flops=flops)
    return steps.done()


def _moved(graph: WorkloadGraph, steps: Steps, value: int) -> int:
    """The number of a former value in the changed block."""
    maker = int(graph.producer[value])
    if maker < 0:
        return value
    result = value - graph.inputs - int(graph.result_ptr[maker])
    return steps.value(int(steps.last[maker])) + result
