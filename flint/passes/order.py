"""Issue order: the order in which a rank starts its kernels and communications.

The text of a partitioned module is not a schedule.  XLA prints it depth first from the outputs: all
of the backward data path first, then the weight gradients in reverse, so that every gradient
reduction would be at the end.  The order is therefore computed from the dependences alone, by a
list schedule that does what a memory-aware scheduler does, and no more:

**Depth.** ``asap(n)`` is the longest path to ``n``, the sum of the steps ``w`` on it: the earliest
start of ``n``.  An op is one step (``STEP``); a view (role ALIAS) costs nothing, so its step is a
tiny one, which only keeps it behind its operand.

**Late** ops are those that only occupy memory for longer if they start early:

- *preparations*: values made from graph inputs by movement, elementwise ops and communications
  alone (a gathered, converted, transposed weight; a constant; a decayed optimizer moment).  The
  inputs stay in memory anyway, so waiting costs nothing;
- ops that *grow* memory: their results are larger than the operands that die with them.  An operand
  dies with ``n`` if ``n`` is a last consumer of it (no other has a greater ``asap``), unless it is
  a graph input (never freed) or a preparation (it waits together with ``n``).

A late op starts one step before its first consumer.  **All others start as soon as they can**: ops
that free memory, and communications that do not grow it, gradient reductions above all.

    key(n) = min over consumers c of key(c) - w(c)     if n is late and has a consumer
             asap(n)                                   otherwise

So an all-gather of a weight comes just before the matrix product that needs it, and the reduction
of a gradient right after the product that made it, within the backward pass.

**The order is topological.** Claim: ``key(p) <= key(c) - w(c)`` along every edge ``p -> c``, and
``key(n) >= asap(n)``.  By induction from the sinks: let both hold for all consumers of ``p``.  If
``p`` is late, ``key(p) = min(key(c) - w(c))``, and ``key(p) >= min(asap(c) - w(c)) >= asap(p)``.
If not, ``key(p) = asap(p) <= asap(c) - w(c) <= key(c) - w(c)``.  The sort is by whole steps (the
key rounded to the nearest), then views behind ops, then by key among views.  A consumer that is an
op is a whole step later, so its rounded key is greater; one that is a view has no smaller rounded
key, comes after ops with the same key, and has a greater key than another view.  So every producer
comes before its consumers.

**Ties** among ops of one step: communications first, then what feeds a communication, then the
rest, in-place updates last (they overwrite what others may still read); then the original
order.  The result depends on nothing but the graph.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from flint.graph.distinct import distinct
from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.joins import through_joins
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry, total_by_row
from flint.passes.columns import lists, with_bodies
from flint.passes.permute import permuted

#: One op's step; chains of views are far shorter.
STEP = 1 << 20

#: Roles of preparations; communications count as well.
_PREPARING = (Role.ALIAS, Role.GENERATE, Role.ELEMENTWISE, Role.MOVEMENT, Role.COLLECTIVE)


def issue_order(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` with its nodes in issue order, in bodies too."""
    graph = with_bodies(graph, lambda body, _: issue_order(body))
    if not len(graph):
        return graph
    waits_for = predecessors(graph)
    seen = through_joins(graph)
    depth, prepares = _depths(graph, waits_for, _made_from(graph, seen, waits_for))
    late = prepares | _grows(seen, depth, prepares)
    key = np.array(_keys(waits_for, depth.tolist(), late.tolist(), _steps(graph)), dtype=np.int64)
    view = graph.role == Role.ALIAS
    whole_step = (key + STEP // 2) // STEP
    order = np.lexsort((np.where(view, key, 0), _tie_class(graph), whole_step))
    return permuted(graph, order.astype(np.int64))


def _steps(graph: WorkloadGraph) -> list[int]:
    """``w`` of every node."""
    steps: list[int] = np.where(graph.role == Role.ALIAS, 1, STEP).tolist()
    return steps


def predecessors(graph: WorkloadGraph) -> list[list[int]]:
    """Nodes that each node waits for, by data and by order edges; repetitions may occur."""
    makers = lists(graph.operand_ptr, graph.producer[graph.operand])
    if len(graph.order_node):
        for found, before in zip(makers, lists(graph.order_ptr, graph.order_node), strict=True):
            found.extend(before)
    return makers


def _made_from(
    graph: WorkloadGraph, seen: WorkloadGraph, waits_for: list[list[int]]
) -> list[Iterable[int]]:
    """``predecessors`` of ``seen``, which is ``graph`` with its joins looked through."""
    found: list[Iterable[int]] = [*waits_for]
    for node in distinct(graph.consumer[seen.operand != graph.operand]).tolist():
        found[node] = seen.predecessors(node)
    return found


def _depths(
    graph: WorkloadGraph, waits_for: list[list[int]], made_from: list[Iterable[int]]
) -> tuple[Ints, NDArray[np.bool_]]:
    """``asap`` of every node, and whether it is a preparation.

    Args:
        graph: a block.
        waits_for: what each node waits for.
        made_from: the same, looking through joins: what holds a weight back does not make it.
    """
    may = np.isin(graph.role, _PREPARING) & np.isin(
        graph.kind, (NodeKind.COMPUTE, NodeKind.COMMUNICATION)
    )
    # One entry more: producer -1, a graph input, is read from the end.
    steps = _steps(graph)
    depth = [0] * len(graph) + [0]
    prepares = [*may.tolist(), True]
    for node, makers in enumerate(waits_for):
        deepest = 0
        for maker in makers:
            if depth[maker] > deepest:
                deepest = depth[maker]
        if prepares[node]:
            for maker in made_from[node]:
                if not prepares[maker]:
                    prepares[node] = False
                    break
        depth[node] = deepest + steps[node]
    return np.array(depth[:-1], dtype=np.int64), np.array(prepares[:-1], dtype=bool)


def _grows(graph: WorkloadGraph, depth: Ints, prepares: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes whose results are larger than what dies with them."""
    consumer, operand = graph.consumer, graph.operand
    last = np.full(graph.values, -1, dtype=np.int64)
    np.maximum.at(last, operand, depth[consumer])
    never_dies = np.zeros(graph.values, dtype=bool)
    never_dies[graph.outputs] = True
    held = (graph.producer < 0) | never_dies
    held[graph.inputs :] |= prepares[graph.producer[graph.inputs :]]
    # An operand that occurs twice in one node dies once.
    pairs = distinct(consumer * graph.values + operand)
    reader, value = pairs // max(1, graph.values), pairs % max(1, graph.values)
    dies = (depth[reader] == last[value]) & ~held[value]
    freed = total_by_row(np.where(dies, graph.value_bytes[value], 0), reader, len(graph))
    made = total_by_row(
        graph.value_bytes[graph.inputs :], row_of_entry(graph.result_ptr), len(graph)
    )
    grows: NDArray[np.bool_] = made > freed
    return grows


def _keys(
    waits_for: list[list[int]], depth: list[int], late: list[bool], steps: list[int]
) -> list[int]:
    """``key`` of every node."""
    unknown = (len(depth) + 1) * STEP  # greater than any key
    first_use = [unknown] * (len(depth) + 1)
    key = depth[:]
    for node in range(len(depth) - 1, -1, -1):
        if late[node] and first_use[node] < unknown:
            key[node] = first_use[node]
        mine = key[node] - steps[node]
        for maker in waits_for[node]:
            if mine < first_use[maker]:
                first_use[maker] = mine
    return key


def _tie_class(graph: WorkloadGraph) -> NDArray[np.int8]:
    """Rank among nodes of equal key, shape [nodes]."""
    communicates = graph.kind == NodeKind.COMMUNICATION
    makers = graph.producer[graph.operand[communicates[graph.consumer]]]
    tie = np.full(len(graph), 2, dtype=np.int8)
    tie[graph.role == Role.UPDATE] = 3
    tie[makers[makers >= 0]] = 1
    tie[communicates] = 0
    tie[graph.role == Role.ALIAS] = 4
    return tie
