"""Contraction: clusters of nodes become single nodes.

The idea: fusing and coarsening decide *which* nodes belong together; the rest is the same for both
and is done here.  A cluster waits for everything that its members wait for, yields the values that
are used outside, and does its members' work.  Values that only its own members use vanish.

Clusters are issued in the order of their last members.  If that contradicts an edge (a cluster
whose last member comes late may be needed early by another), a cluster waits until everything that
it needs is issued: the next cluster is the ready one with the earliest last member. Communications
keep their relative order: everything that one needs has its last member before it, so that nothing
later can come in between.

    kernels = contract(graph, cluster, Columns(leader, read, written, aliased))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, Ints, WorkloadGraph
from flint.graph.ready_order import ready_order
from flint.mesh.ragged import pointer, row_of_entry, total_by_row
from flint.passes.columns import distinct, gathered
from flint.passes.order_edges import with_edges


@dataclass(frozen=True, slots=True)
class Columns:
    """Properties of the new nodes, shape [clusters] each.

    Attributes:
        leader: the member whose kind, role, op, detail and source the cluster takes.
        read, written, aliased: bytes of the cluster.
    """

    leader: Ints
    read: Ints
    written: Ints
    aliased: Ints


def contract(graph: WorkloadGraph, cluster: Ints, columns: Columns) -> WorkloadGraph:
    """The graph whose nodes are the clusters of ``graph``.

    Args:
        graph: the graph; its bodies stay as they are.
        cluster: number of each node's cluster, 0 to clusters - 1; -1 drops a node, whose results
            no node may use; shape [nodes].
        columns: properties of the clusters.

    Returns:
        One node per cluster in issue order. A cluster of one node keeps its operands and results; a
        larger one has each outside value once.

    Raises:
        FlintError: clusters wait for each other.
    """
    rank = issue_rank(graph, cluster, len(columns.leader))
    # The position of each node's cluster; a dropped node has none.
    place = np.where(cluster >= 0, rank[cluster], -1)
    size = np.bincount(place[place >= 0], minlength=len(rank))
    value, result_ptr, result_type = _results(graph, place, len(rank))
    operand_ptr, operand = _operands(graph, place, size)
    by_rank = np.argsort(rank)
    nodes = gathered(graph, NODE_COLUMNS, columns.leader[by_rank]) | {
        "ops_merged": total_by_row(graph.ops_merged[place >= 0], place[place >= 0], len(rank)),
        "bytes_read": columns.read[by_rank],
        "bytes_written": columns.written[by_rank],
        "bytes_aliased": columns.aliased[by_rank],
    }
    contracted = replace(
        graph,
        **nodes,
        result_ptr=result_ptr,
        result_type=result_type,
        operand_ptr=operand_ptr,
        operand=value[operand],
        outputs=value[graph.outputs],
    )
    return _with_work(_with_order(contracted, graph, place), graph, place)


def surviving(graph: WorkloadGraph, cluster: Ints) -> NDArray[np.bool_]:
    """Results that are used outside their cluster, or nowhere, shape [results]."""
    outside = np.ones(graph.values, dtype=bool)
    home, user = _home(graph, cluster), cluster[graph.consumer]
    inside = home[graph.operand] == user
    outside[graph.operand[inside]] = False
    outside[graph.operand[~inside & (user >= 0)]] = True
    outside[graph.outputs] = True
    outside[home == -1] = False
    return outside[graph.inputs :]


def _home(graph: WorkloadGraph, cluster: Ints) -> Ints:
    """Cluster that makes each value; -2 for inputs, -1 for dropped values, shape [values]."""
    return np.where(graph.producer >= 0, cluster[graph.producer], -2)


def issue_rank(graph: WorkloadGraph, cluster: Ints, clusters: int) -> Ints:
    """Place of each cluster in issue order, shape [clusters]."""
    last = np.full(clusters, -1, dtype=np.int64)
    member = np.flatnonzero(cluster >= 0)
    np.maximum.at(last, cluster[member], member)
    waits = np.concatenate([graph.consumer, row_of_entry(graph.order_ptr)])
    before = np.concatenate([graph.producer[graph.operand], graph.order_node])
    known = before >= 0
    source, target = cluster[before[known]], cluster[waits[known]]
    between = (source != target) & (source >= 0) & (target >= 0)
    source, target = source[between], target[between]
    pairs, _ = distinct(source, target)
    source, target = source[pairs], target[pairs]
    if bool((last[source] < last[target]).all()):
        order = np.argsort(last)
    else:
        order = np.array(ready_order(last.tolist(), source, target), np.int64)
        if len(order) != clusters:
            raise FlintError(f"{clusters - len(order)} clusters of nodes wait for each other")
    rank = np.empty(clusters, dtype=np.int64)
    rank[order] = np.arange(clusters)
    return rank


def _results(graph: WorkloadGraph, place: Ints, clusters: int) -> tuple[Ints, Ints, Ints]:
    """New number of every value (-1: vanished), CSR pointer and types of the results."""
    owner = place[row_of_entry(graph.result_ptr)]
    results = np.flatnonzero(surviving(graph, place))
    results = results[np.argsort(owner[results], kind="stable")]
    value = np.full(graph.values, -1, dtype=np.int64)
    value[: graph.inputs] = np.arange(graph.inputs)
    value[graph.inputs + results] = graph.inputs + np.arange(len(results))
    counts = np.bincount(owner[results], minlength=clusters)
    return value, pointer(counts), graph.result_type[results]


def _operands(graph: WorkloadGraph, place: Ints, size: Ints) -> tuple[Ints, Ints]:
    """CSR pointer and (old) values of the operands."""
    owner = place[graph.consumer]
    entries = np.flatnonzero((_home(graph, place)[graph.operand] != owner) & (owner >= 0))
    owner, operand = owner[entries], graph.operand[entries]
    # The operands of a cluster of one node keep their positions, repeated ones too.
    first, _ = distinct(owner, operand)
    wanted = size[owner] == 1
    wanted[first] = True
    owner, operand = owner[wanted], operand[wanted]
    order = np.argsort(owner, kind="stable")
    return pointer(np.bincount(owner, minlength=len(size))), operand[order]


def _with_order(contracted: WorkloadGraph, graph: WorkloadGraph, place: Ints) -> WorkloadGraph:
    """``contracted`` with the order edges between its clusters."""
    waits, before = place[row_of_entry(graph.order_ptr)], place[graph.order_node]
    between = (waits != before) & (waits >= 0) & (before >= 0)
    waits, before, kind = waits[between], before[between], graph.order_kind[between]
    edges, _ = distinct(waits, before, kind)
    return with_edges(contracted, waits[edges], before[edges], kind[edges])


def _with_work(contracted: WorkloadGraph, graph: WorkloadGraph, place: Ints) -> WorkloadGraph:
    """``contracted`` with its members' work; items of one unit and type without sizes are joined.

    A cluster lists its GEMMs first, in issue order, then the joined items by unit and type.
    """
    owner = place[row_of_entry(graph.work_ptr)]
    items = np.flatnonzero(owner >= 0)
    owner = owner[items]
    sized = graph.work_gemm[items] >= 0
    kind = graph.work_unit[items].astype(np.int64) * 128 + graph.work_dtype[items]
    first, number = distinct(owner, (~sized).astype(np.int64), np.where(sized, items, kind))
    joined = items[first]
    flops = total_by_row(graph.work_flops[items], number, len(first))
    return replace(
        contracted,
        work_ptr=pointer(np.bincount(owner[first], minlength=len(contracted))),
        **(gathered(graph, WORK_COLUMNS, joined) | {"work_flops": flops}),
    )
