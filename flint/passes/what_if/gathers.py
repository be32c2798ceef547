"""Weight gathers: the all-gathers of parameters in a block.

The idea: the operand of a weight gather is made from the block's inputs only by views, casts,
slices and copies; in a loop's body only from invariants and carried integers (stacked weights,
sliced by the counter).  Activations come from a product, a reduction or a carried tensor, so their
gathers do not count.  A framework's kernel (such as FSDP's copy of its shards into one buffer)
counts as a copy or cast if it has at most one plain operation per byte that it writes.

    weight_gathers(loop.body, loop.carried)       # {7: {3, 4}}: node 7, prepared by 3 and 4
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import through_joins
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry
from flint.passes.columns import lists

_PREPARING = (Role.ALIAS, Role.GENERATE, Role.ELEMENTWISE, Role.MOVEMENT)


def weight_gathers(graph: WorkloadGraph, carried: int) -> dict[int, set[int]]:
    """Weight gathers of a block in issue order, each with the nodes that prepare its operand.

    Args:
        graph: the block.
        carried: carried values of the loop whose body it is, 0 for a program or a branch.
    """
    operands = lists(graph.operand_ptr, graph.operand)
    producer = graph.producer.tolist()
    prepares = np.isin(graph.role, _PREPARING) | ((graph.role == Role.OPAQUE) & _copies(graph))
    simple = (prepares & (graph.kind == NodeKind.COMPUTE)).tolist()

    def still(value: int) -> bool:
        item = graph.type_of(value)
        return value >= carried or (item.shape == () and item.dtype.startswith(("i", "ui")))

    prepared: list[set[int] | None] = []
    found: dict[int, set[int]] = {}
    table = graph.tables.communications
    for node in range(len(graph)):
        before: set[int] | None = set()
        for value in operands[node]:
            maker = producer[value]
            made = prepared[maker] if maker >= 0 else (set() if still(value) else None)
            if made is None:
                before = None
                break
            assert before is not None
            before |= made
        prepared.append(before | {node} if before is not None and simple[node] else None)
        gathers = graph.kind[node] == NodeKind.COMMUNICATION
        if gathers and before is not None and table[int(graph.detail[node])].kind == "all_gather":
            found[node] = before
    return found


def past_joins(graph: WorkloadGraph, carried: int) -> WorkloadGraph:
    """``graph`` whose weight gathers, and the nodes that prepare them, do not wait at optimization
    barriers.

    A barrier holds a weight back until recomputation starts; weights gathered ahead are not held
    back.

    Args:
        graph: the block.
        carried: as for ``weight_gathers``.
    """
    seen = through_joins(graph)
    if seen is graph:
        return graph
    found = weight_gathers(seen, carried)
    moved = np.isin(graph.consumer, list(set(found).union(*found.values())))
    return replace(graph, operand=np.where(moved, seen.operand, graph.operand))


def _copies(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that do no more than copies and casts do, shape [nodes]."""
    owner = row_of_entry(graph.work_ptr)
    other = np.bincount(owner[graph.work_unit != Unit.VECTOR], minlength=len(graph))
    few: NDArray[np.bool_] = (other == 0) & (graph.flops_by_node() <= graph.bytes_written)
    return few
