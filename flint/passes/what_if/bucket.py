"""Bucketing: collectives of one kind, group and reduction become one, up to a size.

The idea: a bucket takes collectives in issue order until its bytes are full, and is issued with its
last member.  A collective that depends on other members of its bucket, directly or not, opens
another bucket, so that nothing waits for itself.  A node that only waits for a member, because it
is on its stream or waits for its event, waits for the bucket if it is issued after it, and
otherwise for what that member waited for in this way.  A bucket is a variadic collective: one
latency, the sum of the bytes.  Buckets do not cross the boundary of a loop or a branch.

    graph = bucket(graph, kind="reduce_scatter", bytes=25 * 2**20)
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from flint.execution.forms import bytes_of
from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph, with_tables
from flint.mesh.ragged import total_by_row
from flint.passes.columns import with_bodies
from flint.passes.contract import Columns, contract
from flint.passes.order import predecessors
from flint.passes.order_edges import without_waits


def bucket(graph: WorkloadGraph, *, kind: str, bytes: int) -> WorkloadGraph:
    """``graph`` with collectives of a kind joined.

    Args:
        graph: at any granularity.
        kind: kind of the collectives (a StableHLO op name).
        bytes: the most that a bucket holds, counting the larger of operands and results, and the
            largest amount if members move different amounts; a larger collective stays alone.
    """
    table = list(graph.tables.communications)
    graph = _bucket(graph, kind, bytes, table)
    return with_tables(graph, replace(graph.tables, communications=tuple(table)))


@dataclass(slots=True)
class _Bucket:
    members: list[int] = field(default_factory=list)
    bytes: int = 0


def _bucket(
    graph: WorkloadGraph, kind: str, limit: int, table: list[Communication]
) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, _: _bucket(body, kind, limit, table))
    chosen = {
        int(node)
        for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION)
        if table[int(graph.detail[node])].kind == kind
    }
    free = without_waits(graph, lambda before, _: before in chosen)
    buckets = _buckets(free, kind, limit, table)
    joined = [item.members for item in buckets if len(item.members) > 1]
    if not joined:
        return graph
    leader_of = np.arange(len(graph), dtype=np.int64)
    last_of = leader_of.copy()
    detail = graph.detail.copy()
    for members in joined:
        leader_of[members] = members[0]
        last_of[members] = members[-1]
        table.append(_together([table[int(graph.detail[node])] for node in members]))
        detail[members[0]] = len(table) - 1
    graph = without_waits(graph, lambda before, node: node < last_of[before])
    leader, cluster = np.unique(leader_of, return_inverse=True)
    cluster = cluster.astype(np.int64)

    def total(column: Ints) -> Ints:
        return total_by_row(column, cluster, len(leader))

    columns = Columns(
        leader, total(graph.bytes_read), total(graph.bytes_written), total(graph.bytes_aliased)
    )
    return contract(replace(graph, detail=detail), cluster, columns)


def _buckets(
    graph: WorkloadGraph, kind: str, limit: int, table: list[Communication]
) -> list[_Bucket]:
    found: list[_Bucket] = []
    # Bit sets: the buckets before each node, and the buckets before any member of each bucket.
    behind = [0] * len(graph)
    before: list[int] = []
    open_bucket: dict[Hashable, int] = {}
    communicates = (graph.kind == NodeKind.COMMUNICATION).tolist()
    for node, makers in enumerate(predecessors(graph)):
        mask = 0
        for maker in makers:
            if maker >= 0:
                mask |= behind[maker]
        item = table[int(graph.detail[node])] if communicates[node] else None
        if item is not None and item.kind == kind:
            size = max(item.bytes_in, item.bytes_out, item.largest_bytes)
            key = (item.groups, item.reduction, item.process_group, item.dtypes[:1], item.origin)
            number = open_bucket.get(key, -1)
            if (
                number < 0
                or found[number].bytes + size > limit
                or _reaches(mask, before) >> number & 1
            ):
                number = open_bucket[key] = len(found)
                found.append(_Bucket())
                before.append(0)
            found[number].members.append(node)
            found[number].bytes += size
            before[number] |= mask
            mask |= 1 << number
        behind[node] = mask
    return found


def _reaches(mask: int, before: list[int]) -> int:
    """All buckets that come before those of ``mask``, including these."""
    seen, left = mask, mask
    while left:
        number = left.bit_length() - 1
        left ^= 1 << number
        new = before[number] & ~seen
        seen |= new
        left |= new
    return seen


def _together(items: list[Communication]) -> Communication:
    uneven = any(item.largest_bytes for item in items)
    return replace(
        items[0],
        operand_bytes=tuple(size for item in items for size in item.operand_bytes),
        result_bytes=tuple(size for item in items for size in item.result_bytes),
        dtypes=tuple(name for item in items for name in item.dtypes),
        exact=all(item.exact for item in items),
        largest_bytes=sum(map(bytes_of, items)) if uneven else 0,
    )
