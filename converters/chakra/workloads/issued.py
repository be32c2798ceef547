"""The nodes of a trace that run, in the order in which a rank issues them.

The idea: a consumer starts the node with the lowest id among those whose dependencies have ended.
Nodes that run nothing (metadata) are left out, and what waits for one waits for what that waits
for.

    nodes = issued(trace, notes)
    nodes.rows[nodes.before[0]]     # the row in the file of the node that comes first
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.links import Edges, Links, link
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.schema import NodeType
from flint.converters.chakra.workloads.hosted import Played, in_slots, never_run, on_host, played
from flint.errors import FlintError
from flint.graph.distinct import distinct
from flint.graph.graph import EdgeKind, Ints
from flint.graph.ready_order import ready_order

#: Types of nodes that run nothing.
_SILENT = (NodeType.INVALID, NodeType.METADATA)
#: Warnings, with counts.
LOST = "dependencies on nodes that the trace does not have: left out"


@dataclass(frozen=True, eq=False, slots=True)
class Issued:
    """Nodes in order of issue, and what each waits for.

    Attributes:
        rows: their rows in the trace, shape [nodes].
        before, after: positions in ``rows``; sorted by ``after``, each pair once; shape [edges].
        kind: ``EdgeKind``, shape [edges].
        played: the trace, played, if it has nodes of a host beside those of a device.
    """

    rows: Ints
    before: Ints
    after: Ints
    kind: NDArray[np.int8]
    played: Played | None = None


def issued(trace: Trace, notes: dict[str, int]) -> Issued:
    """The nodes of a trace that run.

    Args:
        trace: the trace.
        notes: what is left out is counted here.

    Raises:
        FlintError: nodes with one id, or that wait for each other.
    """
    links = link(trace)
    if len(links.duplicate):
        number = int(trace.id[links.duplicate[0]])
        raise FlintError(f"{trace.path}: more than one node has the id {number}; flint check lists")
    if len(links.missing):
        notes[LOST] = notes.get(LOST, 0) + len(links.missing)
    host = on_host(trace)
    if host.any():
        return _launched(trace, links, ~host & ~np.isin(trace.type, _SILENT))
    if len(links.cycle) or len(links.own):
        raise never_run(trace, int(links.cycle[0] if len(links.cycle) else links.own[0]))
    kept = ~np.isin(trace.type, _SILENT)
    before, after = _between(kept, links.every, links.order)
    keys = np.empty(len(trace), np.int64)
    keys[np.argsort(trace.id, kind="stable")] = np.arange(len(trace))
    nodes = _ordered(kept, before, after, keys)
    return receiving_early(nodes, trace)


def _launched(trace: Trace, links: Links, kept: NDArray[np.bool_]) -> Issued:
    """The device's nodes, in the order in which they began."""
    found = played(trace, links)
    child, parent = links.data.child(), links.data.parent
    between = kept[child] & kept[parent]
    slots = in_slots(trace, found)
    before = np.concatenate([parent[between], slots[0]])
    after = np.concatenate([child[between], slots[1]])
    return replace(_ordered(kept, before, after, found.place), played=found)


def _ordered(kept: NDArray[np.bool_], before: Ints, after: Ints, keys: Ints) -> Issued:
    """Nodes in the order of their keys, as far as edges between rows allow."""
    place = np.cumsum(kept) - 1
    rows = np.flatnonzero(kept)
    before, after = place[before], place[after]
    order = np.array(ready_order(keys[rows].tolist(), before, after), np.int64)
    position = np.empty(len(rows), np.int64)
    position[order] = np.arange(len(rows))
    count = max(len(rows), 1)
    after, before = np.divmod(distinct(position[after] * count + position[before]), count)
    return Issued(rows[order], before, after, np.full(len(after), EdgeKind.STREAM, np.int8))


def in_order(nodes: Issued, order: Ints) -> Issued:
    """The nodes in another order: ``order`` has their positions."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    before, after = position[nodes.before], position[nodes.after]
    by_node = np.lexsort((before, after))
    return replace(nodes, rows=nodes.rows[order], before=before[by_node], after=after[by_node])


def receiving_early(nodes: Issued, trace: Trace) -> Issued:
    """The nodes, with each RECV right after what it waits for.

    What is issued before it holds it back when traces are written, as if it had to wait for that.
    """
    if nodes.played is not None:  # it began when it began
        return nodes
    receives = np.flatnonzero(trace.type[nodes.rows] == NodeType.RECV).tolist()
    place = np.arange(len(nodes.rows)).astype(float)
    start = np.searchsorted(nodes.after, np.arange(len(place) + 1))
    for at in receives:
        awaited = place[nodes.before[start[at] : start[at + 1]]]
        place[at] = np.floor(awaited.max(initial=-1.0)) + 0.5
    order = np.argsort(place, kind="stable")
    return nodes if (np.diff(order) > 0).all() else in_order(nodes, order)


def _between(kept: NDArray[np.bool_], edges: Edges, order: Ints) -> tuple[Ints, Ints]:
    """Edges between nodes that stay, those through others included."""
    child = edges.child()
    direct = kept[edges.parent]
    before, after = [edges.parent[direct & kept[child]]], [child[direct & kept[child]]]
    through: dict[int, frozenset[int]] = {}

    def awaited(row: int) -> Iterable[int]:
        parents = edges.parent[edges.start[row] : edges.start[row + 1]].tolist()
        for parent in parents:
            yield from (parent,) if kept[parent] else through[parent]

    for row in order[~kept[order]].tolist():
        through[row] = frozenset(awaited(row))
    for row in sorted(set(child[~direct & kept[child]].tolist())):
        found = np.array(sorted(set(awaited(row))), np.int64)
        before.append(found)
        after.append(np.full(len(found), row))
    return np.concatenate(before), np.concatenate(after)
