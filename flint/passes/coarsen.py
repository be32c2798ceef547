"""Granularity ``region``: all compute between two communications that can legally be merged.

The idea: for a network simulator, compute is the time between communications.  Two compute nodes
may be merged if no communication can notice the difference, that is, if they have the same
*sources* and the same *sinks*.

- Sources ``A(n)``: the communications among the ancestors of ``n``; each result of a loop
  (which stands for everything that it was made from, so that nothing before it is listed); the
  block arguments of a body that may carry communicated data.
- Sinks ``D(n)``: the communications and loops among its descendants.

Loops are never merged, whether they communicate or not, nor are the ends of programs in sequence.
Order edges count.

**Legal.** Let ``X`` be a node that is not merged.  Its element is in ``A`` of every user and stays
there along edges between compute nodes; ``D`` shrinks along edges.

1. *No cycle.* A cycle of regions only has equal ``A`` and ``D`` throughout and is one region.  Any
   other cycle contains an ``X``.  All members of the region after it have its element in ``A``, so
   ``X`` reached them all; it also reached all members of the next region, and unmerged nodes after
   that; and so on around the cycle, up to ``X`` itself: there was a cycle before.
2. *No new path between communications.* Let ``c1`` reach region ``R`` and ``R`` reach ``c2``.
   Equal ``A`` means made from the same communications: ``c1`` reached every member, hence the one
   that reached ``c2``.
3. *No time lost.* A region can start when all of ``A`` is done, like its latest members; everything
   that it delays (``D``) needs all members.

``A`` and ``D`` are integers used as bit sets, interned by value, so that nodes with equal sets
share one.  Bytes of a region are the sum of its members' bytes, because they still run one after
another.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import total_by_row
from flint.passes.columns import distinct
from flint.passes.contract import Columns, contract
from flint.passes.order import predecessors

#: After this many rounds of finding which carried values are communicated, all count as such.
_ROUNDS = 4


def merge_regions(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` (in issue order) with its compute merged into regions, in bodies too.

    Work items are kept; items of one region with the same unit and type and without sizes are
    joined.  Bytes and ``ops_merged`` add up.
    """
    return _merge(graph, [False] * graph.inputs)


def _merge(graph: WorkloadGraph, communicated: list[bool]) -> WorkloadGraph:
    """``graph`` merged; ``communicated`` says which inputs depend on a communication."""
    if not len(graph):
        return graph
    graph = _merge_bodies(graph, communicated)
    sources, sinks = sources_of(graph, communicated), _sinks(graph)
    single = np.where(_apart(graph), np.arange(len(graph)), -1)
    _, region = distinct(single, sources, sinks)
    regions = int(region.max()) + 1
    columns = Columns(
        _leaders(graph, region),
        total_by_row(graph.bytes_read, region, regions),
        total_by_row(graph.bytes_written, region, regions),
        total_by_row(graph.bytes_aliased, region, regions),
    )
    return contract(graph, region, columns)


def _apart(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that are not merged with others, shape [nodes]."""
    apart: NDArray[np.bool_] = (graph.kind != NodeKind.COMPUTE) | (graph.role == Role.CONTROL)
    return apart


def _leaders(graph: WorkloadGraph, region: Ints) -> Ints:
    """The member of each region with the most work: by FLOPs, then bytes, then order."""
    moved = graph.bytes_read + graph.bytes_written
    order = np.lexsort((np.arange(len(graph)), -moved, -graph.flops_by_node(), region))
    _, first = np.unique(region[order], return_index=True)
    return order[first].astype(np.int64)


def sources_of(graph: WorkloadGraph, communicated: list[bool]) -> Ints:
    """Number of each node's set ``A``, shape [nodes]; equal where the sets are.

    Args:
        graph: in issue order.
        communicated: which inputs depend on a communication, shape [inputs].
    """
    kind, inputs = graph.kind.tolist(), graph.inputs
    apart = _apart(graph).tolist()
    operand, operand_ptr = graph.operand.tolist(), graph.operand_ptr.tolist()
    order_node, order_ptr = graph.order_node.tolist(), graph.order_ptr.tolist()
    result_ptr = graph.result_ptr.tolist()
    found: list[int] = [0] * graph.values
    done: list[int] = []
    elements = 0
    for value in range(inputs):
        if communicated[value]:
            found[value] = 1 << elements
            elements += 1
    interned: dict[int, int] = {}
    numbers = []
    for node, what in enumerate(kind):
        mine = 0
        for j in range(operand_ptr[node], operand_ptr[node + 1]):
            other = found[operand[j]]
            if other is not mine:
                mine |= other
        for j in range(order_ptr[node], order_ptr[node + 1]):
            mine |= done[order_node[j]]
        numbers.append(interned.setdefault(mine, len(interned)))
        results = range(inputs + result_ptr[node], inputs + result_ptr[node + 1])
        if what >= NodeKind.LOOP:
            for value in results:
                found[value] = 1 << elements
                elements += 1
            mine = 0
        if apart[node]:
            mine |= 1 << elements
            elements += 1
        done.append(mine)
        if what < NodeKind.LOOP:
            for value in results:
                found[value] = mine
    return np.array(numbers, dtype=np.int64)


def _sinks(graph: WorkloadGraph) -> Ints:
    """Number of each node's set ``D``, shape [nodes]."""
    apart = _apart(graph).tolist()
    below = [0] * (len(graph) + 1)  # one more: what feeds from graph inputs ends up in the last
    interned: dict[int, int] = {}
    numbers = [0] * len(graph)
    elements = 0
    waits_for = predecessors(graph)
    for node in range(len(graph) - 1, -1, -1):
        mine = below[node]
        numbers[node] = interned.setdefault(mine, len(interned))
        if apart[node]:
            mine |= 1 << elements
            elements += 1
        for maker in waits_for[node]:
            if maker >= 0 and below[maker] is not mine:
                below[maker] |= mine
    return np.array(numbers, dtype=np.int64)


def _merge_bodies(graph: WorkloadGraph, communicated: list[bool]) -> WorkloadGraph:
    """``graph`` with the bodies of its loops merged."""
    if not graph.loops:
        return graph
    reached = _communicated_values(graph, communicated)
    operands: dict[int, list[bool]] = {}
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        low, high = graph.operand_ptr[node : node + 2]
        flags = [reached[value] for value in graph.operand[low:high].tolist()]
        known = operands.get(int(graph.detail[node]), [False] * len(flags))
        operands[int(graph.detail[node])] = [a or b for a, b in zip(flags, known, strict=True)]
    loops = list(graph.loops)
    for number, flags in operands.items():
        loop = loops[number]
        loops[number] = replace(loop, body=_merge(loop.body, _communicated_inputs(loop, flags)))
    return replace(graph, loops=tuple(loops))


def _communicated_inputs(loop: Loop, operands: list[bool]) -> list[bool]:
    """Which inputs of a loop's body may carry communicated data in some iteration."""
    flags = operands[:]
    for _ in range(_ROUNDS):
        reached = _communicated_values(loop.body, flags)
        outputs = [reached[value] for value in loop.body.outputs.tolist()]
        carried = [a or b for a, b in zip(flags, outputs, strict=False)]
        if carried == flags[: loop.carried]:
            return flags
        flags[: loop.carried] = carried
    return [True] * loop.carried + flags[loop.carried :]


def _communicated_values(graph: WorkloadGraph, inputs: list[bool]) -> list[bool]:
    """Which values of ``graph`` depend on a communication; loops count as one."""
    operand, operand_ptr = graph.operand.tolist(), graph.operand_ptr.tolist()
    order_node, order_ptr = graph.order_node.tolist(), graph.order_ptr.tolist()
    apart = (graph.kind != NodeKind.COMPUTE).tolist()
    counts = np.diff(graph.result_ptr).tolist()
    reached = inputs[:]
    done: list[bool] = []
    for node, mine in enumerate(apart):
        mine = mine or any(
            reached[operand[j]] for j in range(operand_ptr[node], operand_ptr[node + 1])
        )
        mine = mine or any(done[order_node[j]] for j in range(order_ptr[node], order_ptr[node + 1]))
        done.append(mine)
        reached.extend([mine] * counts[node])
    return reached
