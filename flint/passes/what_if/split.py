"""Splitting a collective into chunks.

The idea: a collective becomes n collectives of an n-th of its bytes, issued one after another; the
last one yields the results, so that readers wait for all chunks.  This models that other nodes may
run between two chunks and that each chunk has its own latency.  It does not model readers that
begin with the first chunk: that would be another program.

    graph = split(graph, kind="all_gather", chunks=4)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.communication import Communication
from flint.graph.graph import NODE_COLUMNS, EdgeKind, Ints, NodeKind, WorkloadGraph, with_tables
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, take_rows, with_bodies
from flint.passes.order_edges import with_edges


def split(graph: WorkloadGraph, *, kind: str, chunks: int) -> WorkloadGraph:
    """``graph`` with the collectives of a kind in chunks; their bytes sum up exactly.

    Args:
        graph: at any granularity.
        kind: kind of the collectives (a StableHLO op name).
        chunks: number of chunks; fewer if a collective has fewer bytes.
    """
    table = list(graph.tables.communications)
    graph = _split(graph, kind, chunks, table)
    return with_tables(graph, replace(graph.tables, communications=tuple(table)))


def _split(
    graph: WorkloadGraph, kind: str, chunks: int, table: list[Communication]
) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, _: _split(body, kind, chunks, table))
    nodes = len(graph)
    copies = np.ones(nodes, dtype=np.int64)
    details: dict[int, list[int]] = {}
    for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
        item = table[int(graph.detail[node])]
        count = min([chunks, *(size for size in item.operand_bytes if size)])
        if item.kind == kind and count > 1:
            copies[node] = count
            details[node] = list(range(len(table), len(table) + count))
            table.extend(_chunk(item, i, count) for i in range(count))
    if not details:
        return graph
    rows = np.repeat(np.arange(nodes), copies)
    last = np.cumsum(copies) - 1
    final = np.zeros(len(rows), dtype=bool)
    final[last] = True
    number = np.arange(len(rows)) - (last - copies + 1)[rows]
    detail = graph.detail[rows]
    for node, found in details.items():
        detail[last[node] - len(found) + 1 : last[node] + 1] = found

    def share(column: Ints) -> Ints:
        """A column's values spread over the copies."""
        whole = column[rows]
        found: Ints = whole * (number + 1) // copies[rows] - whole * number // copies[rows]
        return found

    operand_ptr, operands = take_rows(graph.operand_ptr, rows)
    order_ptr, orders = take_rows(graph.order_ptr, rows)
    chained = np.flatnonzero(number > 0)
    waits = np.concatenate([row_of_entry(order_ptr), chained])
    before = np.concatenate([last[graph.order_node[orders]], chained - 1])
    kinds = np.concatenate(
        [graph.order_kind[orders], np.full(len(chained), EdgeKind.ORDER, dtype=np.int8)]
    )
    columns = gathered(graph, NODE_COLUMNS, rows) | {
        "detail": detail,
        "ops_merged": np.where(final, graph.ops_merged[rows], 0),
        "bytes_read": share(graph.bytes_read),
        "bytes_written": share(graph.bytes_written),
        "bytes_aliased": share(graph.bytes_aliased),
    }
    copied = replace(
        graph,
        **columns,
        result_ptr=pointer(np.where(final, np.diff(graph.result_ptr)[rows], 0)),
        operand_ptr=operand_ptr,
        operand=graph.operand[operands],
        work_ptr=pointer(np.where(final, np.diff(graph.work_ptr)[rows], 0)),
    )
    return with_edges(copied, waits, before, kinds)


def _chunk(item: Communication, index: int, count: int) -> Communication:
    def part(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(s * (index + 1) // count - s * index // count for s in sizes)

    (largest,) = part((item.largest_bytes,))
    return replace(
        item,
        operand_bytes=part(item.operand_bytes),
        result_bytes=part(item.result_bytes),
        largest_bytes=largest,
    )
