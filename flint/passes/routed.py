"""Exchanges and grouped products whose sizes a router decides, for a given routing.

The idea: buffers of a dropless mixture are sized for the worst case, and how many of their rows are
filled is data.  The smaller buffer of a ragged exchange holds a rank's own tokens (all are sent to
some expert); the larger is filled by the same number, times the load of the rank with the most
popular experts relative to the mean.  All ranks run one program, so all take the time of that rank,
for which the others wait: products have its sizes, exchanges its bytes.  FLOPs are the mean rank's,
so that sums over ranks are correct.  Grouped products skip the rows beyond their groups; everything
else computes whole buffers, as written.

    graph, remarks = routed(graph, routing_of("zipf:1.2/64"))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from flint.cost.grouped import groups_of
from flint.errors import UsageError
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph, with_tables
from flint.graph.nodes import Node
from flint.graph.routing import Routing
from flint.graph.tensor_types import TensorType
from flint.mesh.ragged import row_of_entry
from flint.passes.columns import with_bodies

#: Rows of a buffer -> number of filled rows.
Filled = Mapping[int, int]


def routed(graph: WorkloadGraph, routing: Routing) -> tuple[WorkloadGraph, dict[str, int]]:
    """``graph`` with sizes that depend on data counted as a routing implies.

    Args:
        graph: the program's graph, op by op.
        routing: how choices spread over experts.

    Returns:
        The graph, and remarks: text -> count.

    Raises:
        UsageError: loads of a number of experts that the ranks of an exchange cannot hold, or a
            Zipf law without a number of experts that the program does not state either.
    """
    exchanges = list(_exchanges(graph))
    if not exchanges:
        return graph, {f"{routing.name} routing: no exchange has sizes that depend on it": 1}
    local = max((g for block, _ in graph.walk() for g, _ in groups_of(block).values()), default=0)
    table, remarks = list(graph.tables.communications), Counter[str]()
    filled: dict[int, int] = {}
    means: dict[int, int] = {}
    for node, item in exchanges:
        sent, received = node.operand_types[0].shape[0], node.result_types[0].shape[0]
        ranks = item.groups.size if item.groups is not None else 1
        own, most = sorted((sent, received))
        there = min(most, math.ceil(own * _busiest(routing, local * ranks, ranks)))
        filled[most] = max(there, filled.get(most, 0))
        means[most] = max(own, means.get(most, 0))
        full = {own: own, most: there}
        table[int(node.graph.detail[node.index])] = replace(
            item,
            operand_bytes=(_rows(node.operand_types[0], full),),
            result_bytes=(_rows(node.result_types[0], full),),
            exact=True,
        )
        text = f"{routing.name} routing: ragged exchanges of {own} rows fill {there} of {most}"
        remarks[text + (", as the busiest rank's" if there > own else "")] += 1
    graph = with_tables(graph, replace(graph.tables, communications=tuple(table)))
    gemms = {dims: place for place, dims in enumerate(graph.tables.gemms)}
    graph = _with_products(graph, filled, means, gemms)
    return with_tables(graph, replace(graph.tables, gemms=tuple(gemms))), dict(remarks)


def _exchanges(graph: WorkloadGraph) -> Iterator[tuple[Node, Communication]]:
    """Ragged exchanges of unknown sizes, in all blocks."""
    table = graph.tables.communications
    for block, _ in graph.walk():
        for index in np.flatnonzero(block.kind == NodeKind.COMMUNICATION).tolist():
            item = table[int(block.detail[index])]
            if item.kind == "ragged_all_to_all" and not item.exact:
                yield block[index], item


def _busiest(routing: Routing, experts: int, ranks: int) -> float:
    if not routing.loads and not routing.exponent:
        return 1.0
    stated = routing.experts or experts
    if not stated:
        raise UsageError(
            f"routing {routing.name}: the program does not state the number of experts; give it, "
            f"for example {routing.name}/64"
        )
    return routing.busiest(stated, ranks)


def _rows(kind: TensorType, full: Filled) -> int:
    """Bytes of the filled rows of a buffer."""
    rows = kind.shape[0]
    return kind.bytes * full[rows] // rows if rows else 0


def _with_products(
    graph: WorkloadGraph,
    filled: Filled,
    means: Filled,
    gemms: dict[tuple[int, int, int, int], int],
) -> WorkloadGraph:
    """Grouped products that compute the filled rows of their buffers only.

    Args:
        graph: one block.
        filled: filled rows of the busiest rank.
        means: filled rows of the mean rank.
        gemms: sizes of products -> their index in the table; new ones are added.
    """
    graph = with_bodies(graph, lambda body, _: _with_products(body, filled, means, gemms))
    flops, gemm = graph.work_flops.copy(), graph.work_gemm.copy()
    read, written = graph.bytes_read.copy(), graph.bytes_written.copy()
    owner = row_of_entry(graph.work_ptr)
    for item, (_, dim) in groups_of(graph).items():
        dims = graph.tables.gemms[gemm[item]]
        rows = dims[dim]
        if rows not in filled:
            continue
        b, m, n, k = (filled[rows] if place == dim else size for place, size in enumerate(dims))
        gemm[item] = gemms.setdefault((b, m, n, k), len(gemms))
        flops[item] = int(flops[item]) * means[rows] // rows
        node = graph[int(owner[item])]
        for column, types in ((read, node.operand_types), (written, node.result_types)):
            empty = (
                kind.bytes - _rows(kind, filled) for kind in types if kind.shape[:1] == (rows,)
            )
            column[node.index] -= sum(empty)
    return replace(graph, work_flops=flops, work_gemm=gemm, bytes_read=read, bytes_written=written)
