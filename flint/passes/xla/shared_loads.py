"""Ops that products compute themselves, though others read their results, too.

The idea: a product of XLA's loads what an op on one value makes of it if that value is no larger
than the result, whoever else reads the result (``IsInputWorthFusing``):

    z = convert x;  p = dot z, w;  y = multiply z, z        p reads x, whether z is written or not

So it is for an op on two values, one of which is a broadcast constant or parameter.

Such an op is there twice here, for products and for the others.

Source: ``gemm_fusion.cc``, ``triton_tiling_propagation.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.columns import repeated
from flint.passes.rematerialize import transparent_nodes
from flint.passes.xla.orders import PRODUCT
from flint.passes.xla.products import Neighbours
from flint.passes.xla.split_broadcasts import with_split_broadcasts

#: Bytes by which an op's operand may be larger than its result.
_TOLERANCE: Final = 1024


def with_shared_loads(graph: WorkloadGraph) -> WorkloadGraph:
    """One block whose products read copies of what they compute themselves."""
    products = np.array([name == PRODUCT for name in graph.tables.ops] or [False])[graph.op]
    products &= graph.role == Role.CONTRACTION
    found, loads = _shared(graph, products)
    if not found:
        return graph
    copies = np.ones(len(graph), dtype=np.int64)
    copies[found] = 2
    copied, rows, last = repeated(graph, copies)
    loads = loads[rows]
    loads[last[found]] = False
    stand = np.arange(copied.values)
    made = copied.inputs + copied.result_ptr[last[found]]
    stand[made] = copied.inputs + copied.result_ptr[last[found] - 1]
    operand = np.where(loads[copied.consumer], stand[copied.operand], copied.operand)
    return replace(copied, operand=operand)


def _shared(
    graph: WorkloadGraph, products: NDArray[np.bool_]
) -> tuple[list[int], NDArray[np.bool_]]:
    """Ops on one value that products load and others read, in issue order; and all that products
    load, with themselves, shape [nodes]."""
    able = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
    able &= graph.role == Role.ELEMENTWISE
    able &= graph.kind == NodeKind.COMPUTE
    able[graph.order_node] = False
    able &= ~with_split_broadcasts(graph)
    able &= ~Neighbours(graph).kept  # the product that is before them has taken them in
    loads, found = products.copy(), []
    users: dict[int, list[int]] = {}
    for value, node in zip(graph.operand.tolist(), graph.consumer.tolist(), strict=True):
        users.setdefault(value, []).append(node)
    leaving = set(graph.outputs.tolist())
    spread = transparent_nodes(graph)
    for node in np.flatnonzero(able)[::-1].tolist():
        made = graph.inputs + int(graph.result_ptr[node])
        values = graph.operands_of(node).tolist()
        makers = graph.producer[values].tolist()
        tensors = [
            v for v, maker in zip(values, makers, strict=True) if maker < 0 or not spread[maker]
        ]
        mine = [bool(loads[user]) for user in users.get(made, ())]
        if not any(mine) or len(tensors) != 1:
            continue
        if graph.value_bytes[tensors[0]] - graph.value_bytes[made] > _TOLERANCE:
            continue
        if made in leaving or not all(mine):
            if len(values) > 1 and not _scales(graph, values, spread):
                continue
            found.append(node)
        loads[node] = True
    return found[::-1], loads


def _scales(graph: WorkloadGraph, values: list[int], spread: NDArray[np.bool_]) -> bool:
    """Whether one of two values is a broadcast of a constant or of a parameter."""
    for maker in graph.producer[values].tolist():
        if maker < 0 or not spread[maker] or len(values) != 2:
            continue
        sources = graph.producer[graph.operands_of(maker)]
        if all(source < 0 or graph.role[source] == Role.GENERATE for source in sources.tolist()):
            return True
    return False
