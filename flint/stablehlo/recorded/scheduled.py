"""Scheduled modules: the order in which a backend issues kernels, and what runs concurrently.

The idea: a backend's schedule is one stream of kernels.  Operations that it starts and awaits later
(an asynchronous collective, a copy by a DMA engine) run concurrently: such an operation begins when
the stream reaches its start, and the stream passes its end only when it is done.

    matmul; all-reduce-start; matmul.1; all-reduce-done; add

    matmul.1 -> matmul      stream the start waits for what comes before it (order), the
    done     -> matmul.1    stream end for the all-reduce (data), what comes after the
    add      -> done        stream       end for the end

A loop's iterations, bodies and branches are separate schedules; constants and views are not
kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph, with_tables
from flint.graph.work import Role
from flint.passes.columns import with_bodies
from flint.passes.order_edges import with_edges

#: The op name of a node at which the stream waits for what was started.
DONE = "async_done"


#: The kind of a kernel with a single op, by the op's role.
_DOES = {
    Role.ELEMENTWISE: "elementwise",
    Role.MOVEMENT: "movement",
    Role.GENERATE: "movement",
    Role.REDUCTION: "reduction",
    Role.CONTRACTION: "gemm",
    Role.UPDATE: "update",
}


def issued_as_scheduled(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` (nodes in the order of the schedule) with the schedule's edges, in bodies too.

    Kernels become OPAQUE: the backend has decided what one kernel is.  The kinds of those with a
    single op are in ``tables.heroes``.
    """
    return _issued(_with_heroes(graph))


def _with_heroes(graph: WorkloadGraph) -> WorkloadGraph:
    heroes = [hero for _, hero in graph.tables.named_heroes()]
    for block, _ in graph.walk():
        for op, role in set(zip(block.op.tolist(), block.role.tolist(), strict=True)):
            heroes[op] = heroes[op] or _DOES.get(Role(role), "")
    return with_tables(graph, replace(graph.tables, heroes=tuple(heroes)))


def _issued(graph: WorkloadGraph) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, _: _issued(body))
    if not len(graph):
        return graph
    done = _is_done(graph)
    beside = _awaited(graph, done)
    free = (graph.kind == NodeKind.COMPUTE) & ~done
    moves = (graph.bytes_read > 0) | (graph.bytes_written > 0) | (np.diff(graph.work_ptr) > 0)
    kernels = free & (graph.role != Role.ALIAS) & moves
    free &= ~kernels
    role = np.where(kernels, np.int8(Role.OPAQUE), graph.role).astype(np.int8)
    return _with_edges(replace(graph, role=role), ~free & ~beside, ~free & beside)


def _is_done(graph: WorkloadGraph) -> NDArray[np.bool_]:
    names = np.array([name == DONE for name in graph.tables.ops], dtype=bool)
    done: NDArray[np.bool_] = names[graph.op] & (graph.kind == NodeKind.COMPUTE)
    return done


def _awaited(graph: WorkloadGraph, done: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes that were started: an end of this block waits for them.

    Messages are never in the stream, even if their end is in another iteration: otherwise a receive
    would wait for a send that comes after another rank's own receive.
    """
    messages = np.array(
        [item.kind in ("recv", "send") for item in graph.tables.communications], dtype=bool
    )
    beside: NDArray[np.bool_] = graph.kind == NodeKind.COMMUNICATION
    beside[beside] = messages[graph.detail[beside]]
    makers = graph.producer[graph.operand[done[graph.consumer]]]
    beside[makers[makers >= 0]] = True
    beside &= ~done & (graph.kind <= NodeKind.COMMUNICATION)
    return beside


def _with_edges(
    graph: WorkloadGraph,
    stream: NDArray[np.bool_],
    beside: NDArray[np.bool_],
) -> WorkloadGraph:
    """``graph`` in which every node waits for the stream's last one before it."""
    index = np.arange(len(graph), dtype=np.int64)
    last = np.maximum.accumulate(np.where(stream, index, -1))
    before = np.concatenate([[-1], last[:-1]])
    new = (stream | beside) & (before >= 0)
    kind = np.where(stream, np.int8(EdgeKind.STREAM), np.int8(EdgeKind.ORDER))
    consumer = np.concatenate([np.repeat(index, np.diff(graph.order_ptr)), index[new]])
    node = np.concatenate([graph.order_node, before[new]])
    kinds = np.concatenate([graph.order_kind, kind[new]])
    _, first = np.unique(np.stack([consumer, node]), axis=1, return_index=True)
    order = first[np.lexsort((node[first], consumer[first]))]
    return with_edges(graph, consumer[order], node[order], kinds[order])
