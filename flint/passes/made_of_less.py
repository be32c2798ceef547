"""Values that every reader makes again, because what they are made of is smaller.

The idea: a value of n bytes that is written and read by r kernels moves (r + 1) n bytes, beside its
sources.  Where it is made by simple arithmetic from fewer bytes, kernels that make it again move
less, so that compilers never write it: a conversion to a wider type, that minus the maximum of its
row, a choice by position.  Functions of the special units (exponentials and
the like) are computed once.

    scores bf16 -> convert f32 -> subtract maximum -> exponential -> sum        reads bf16 alone
                                                   -> subtract log(sum) -> ...  reads bf16 again
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry
from flint.passes.rematerialize import transparent_nodes

#: Sources that a value is made of, at most: a kernel has few streams of memory.
_SOURCES = 8
#: Their share of its bytes, at most: half is a narrower type, the rest room for rows and columns.
_SHARE = 0.75


def made_of_less(graph: WorkloadGraph, functions: bool = False) -> NDArray[np.bool_]:
    """Elementwise nodes whose sources are clearly smaller than their result, shape [nodes].

    Sources are looked for through nodes that are themselves made again.

    Args:
        graph: in issue order.
        functions: also those with functions of the special units, and from as many bytes: PyTorch's
            compiler makes an activation again from its argument.
    """
    transparent = transparent_nodes(graph)
    simple = (graph.kind == NodeKind.COMPUTE) & (graph.role == Role.ELEMENTWISE)
    simple &= (np.diff(graph.result_ptr) == 1) & (np.diff(graph.order_ptr) == 0)
    simple[graph.order_node] = False
    units = (Unit.VECTOR, Unit.TRANSCENDENTAL) if functions else (Unit.VECTOR,)
    simple[row_of_entry(graph.work_ptr)[~np.isin(graph.work_unit, units)]] = False
    share = 1.0 if functions else _SHARE
    found = np.zeros(len(graph), dtype=bool)
    sources: dict[int, dict[int, int]] = {}  # by value
    first = (graph.result_ptr[:-1] + graph.inputs).tolist()
    for node in np.flatnonzero(transparent | simple).tolist():
        made: dict[int, int] = {}
        for value in graph.operands_of(node).tolist():
            made |= sources.get(value, {value: int(graph.value_bytes[value])})
        if transparent[node]:
            sources[first[node]] = made
        elif len(made) <= _SOURCES and sum(made.values()) <= share * graph.value_bytes[first[node]]:
            found[node] = True
            sources[first[node]] = made
    return found
