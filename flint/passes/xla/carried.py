"""Carried values of loops that XLA's GPU compiler copies, before a loop or at an iteration's end.

The idea: what an iteration makes of a carried value is written into that value's buffer.  A product
cannot write into what it reads, so that it has a buffer of its own, which is copied
(``CopyInsertion``):

    m = carried;  m' = dot t, m;  return m'        return copy m'

Elementwise kernels write in place.  A loop does not begin in the memory of a constant, such as the
zero of a counter, nor in a buffer in which another loop begins: both are copied.

Source: ``copy_insertion.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role
from flint.passes.rematerialize import transparent_nodes
from flint.passes.xla.orders import PRODUCT
from flint.passes.xla.steps import Steps
from flint.passes.xla.transposes import COPY, Copy, with_transposes


def with_beginnings(graph: WorkloadGraph) -> WorkloadGraph:
    """One block with copies of the constants that loops begin with, and of the broadcasts that
    several begin with; its table of ops has that of copies.
    """
    while True:  # of each value, one copy at a time
        generates = graph.role == Role.GENERATE
        makes = generates | (transparent_nodes(graph) & (graph.role == Role.MOVEMENT))
        entries: dict[int, list[int]] = {}
        for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
            first = int(graph.operand_ptr[node])
            for entry in range(first, first + graph.loop_of(node).carried):
                value = int(graph.operand[entry])
                if graph.producer[value] >= 0 and makes[graph.producer[value]]:
                    entries.setdefault(value, []).append(entry)
        copies = {
            value: Copy(each[-1:])
            for value, each in entries.items()
            if len(each) > 1 or generates[graph.producer[value]]
        }
        if not copies:
            return graph
        graph = with_transposes(graph, copies)


def with_copies(body: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """A loop's body with the copies of products that read what they would overwrite.

    Args:
        body: the body, whose first inputs are carried; its table of ops has that of copies.
        types: all types of the program, by number.
    """
    copies = np.ones(len(body), dtype=np.int64)
    for carried, value in enumerate(body.outputs.tolist()):
        maker = int(body.producer[value])
        if maker < 0 or body.role[maker] != Role.CONTRACTION:
            continue
        product = body.tables.ops[body.op[maker]] == PRODUCT
        if product and carried in body.operands_of(maker):
            copies[maker] = 2
    if copies.max(initial=1) == 1:
        return body
    steps = Steps(body, copies, types)
    numbers = {entry: number for number, entry in enumerate(body.tables.entries())}
    for node in steps.last[copies == 2].tolist():
        steps.moves(node, numbers[COPY, "", ()], steps.value(node - 1), Role.OPAQUE)
        size = steps.graph.value_bytes[steps.value(node)]
        steps.read[node] = steps.written[node] = size
    return steps.done()
