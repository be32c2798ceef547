"""Carried values of loops that XLA's GPU compiler copies at the end of an iteration.

The idea: what an iteration makes of a carried value is written into that value's buffer.  A product
cannot write into what it reads, so that it has a buffer of its own, which is copied
(``CopyInsertion``):

    m = carried;  m' = dot t, m;  return m'        return copy m'

Elementwise kernels write in place.

Source: ``copy_insertion.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role
from flint.passes.xla.orders import PRODUCT
from flint.passes.xla.steps import Steps
from flint.passes.xla.transposes import COPY


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
