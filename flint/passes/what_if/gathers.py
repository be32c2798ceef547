"""Weight gathers: the all-gathers of a block that bring parameters together.

The idea: an all-gather whose operand is made from the block's inputs by views, casts, slices and
copies alone; in a loop's body only from invariants and carried integers (stacked weights, sliced
by the counter).  Activations come from a product, a reduction or a carried tensor, and are none.

    weight_gathers(loop.body, loop.carried)       # {7: {3, 4}}: node 7, prepared by 3 and 4
"""

from __future__ import annotations

import numpy as np

from flint.graph import NodeKind, WorkloadGraph
from flint.passes.columns import lists
from flint.work import Role

_PREPARING = (Role.ALIAS, Role.GENERATE, Role.ELEMENTWISE, Role.MOVEMENT)


def weight_gathers(graph: WorkloadGraph, carried: int) -> dict[int, set[int]]:
    """Weight gathers of a block in issue order, each with the nodes that prepare its operand.

    Args:
        graph: the block.
        carried: carried values of the loop whose body it is, 0 for a program or a branch.
    """
    operands = lists(graph.operand_ptr, graph.operand)
    producer = graph.producer.tolist()
    simple = (np.isin(graph.role, _PREPARING) & (graph.kind == NodeKind.COMPUTE)).tolist()

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
