"""Values that compilers do not keep, because each of their readers computes them again.

The idea: XLA duplicates cheap arithmetic on one tensor into all of its readers, which adds no
memory traffic (``InstructionFusion``: all but functions, divisions and powers is cheap, an op is
"effectively at most unary" if its other operands are of lower rank).  A kernel of such arithmetic
needs no buffer where the tensor that it reads is in memory for as long anyway:

    y = dot_general ...;  x2 = multiply y, y;  t = tanh x2;  ... x2, y, t        x2 is never there

Readers that compute it again are elementwise kernels, or read one element of it for each of their
result (what follows a product in its kernel).  A division inside of a longer kernel is not seen.

Source: ``instruction_fusion.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry

#: Ops whose kernels are not cheap, though no functions: as vector work they cannot be told apart.
_EXPENSIVE: Final = ("divide", "remainder", "power", "reduce", "map")


def remade(graph: WorkloadGraph, last: Sequence[int]) -> list[int]:
    """Values of one block that need no buffer.

    Args:
        graph: at kernel granularity, in issue order.
        last: the last reader of each value, shape [values].
    """
    names = np.array([name in _EXPENSIVE for name in graph.tables.ops], dtype=bool)
    cheap = (graph.role == Role.ELEMENTWISE) & (graph.kind == NodeKind.COMPUTE) & ~names[graph.op]
    cheap &= (np.diff(graph.result_ptr) == 1) & (np.diff(graph.work_ptr) > 0)
    cheap[row_of_entry(graph.work_ptr)[graph.work_unit != Unit.VECTOR]] = False
    rank = [sum(size > 1 for size in kind.shape) for kind in graph.tables.types]
    elements = [kind.elements for kind in graph.tables.types]
    kinds, leaving = graph.value_type.tolist(), set(graph.outputs.tolist())
    pointwise = ((graph.role == Role.ELEMENTWISE) | (graph.role == Role.CONTRACTION)).tolist()
    readers: dict[int, list[int]] = {}
    for value, node in zip(graph.operand.tolist(), graph.consumer.tolist(), strict=True):
        readers.setdefault(value, []).append(node)
    results = (graph.result_ptr + graph.inputs).tolist()
    found = []
    for node in np.flatnonzero(cheap).tolist():
        made = results[node]
        if made in leaving or made not in readers:
            continue
        size = elements[kinds[made]]
        wide = {
            value
            for value in graph.operands_of(node).tolist()
            if rank[kinds[value]] >= rank[kinds[made]]
        }
        if len(wide) != 1 or any(
            not pointwise[reader] or elements[kinds[results[reader]]] != size
            for reader in readers[made]
        ):
            continue
        [source] = wide
        if last[source] >= last[made] and elements[kinds[source]] == size:
            found.append(made)
    return found
