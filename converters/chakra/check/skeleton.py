"""A trace reduced to its communications, for the questions that span ranks.

The idea: compute never waits for another rank, so it is contracted.  A dependence on COLLs is a
dependence on the last of them (they are totally ordered), which is one number; in addition a node
depends on a few SENDs and RECVs.  A compute node that joins several of these stays as a separate
vertex, so the skeleton is never larger than the trace.

    COLL 0 -> COMP -> SEND          vertices: COLL 0, SEND, RECV, join, COLL 1
              RECV -> COMP -\\       edges: COLL 0 -> SEND -> join, RECV -> join,
              SEND -> COMP --+-> COMP(join) -> COLL 1    join -> COLL 1, COLL 0 -> COLL 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.order import OrderFacts
from flint.converters.chakra.schema import NodeType


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The communications of a trace whose order is decided.

    Attributes:
        row: vertex -> row of the trace; vertices are in topological order.
        kind: vertex -> NodeType of the row (COMP or whatever it is for joins).
        above: vertex -> vertices it directly depends on.
        below: vertex -> vertices that directly depend on it.
        vertex: row -> vertex, -1 for rows that were contracted.
        level: vertex -> a number above that of all vertices it depends on: `COLL_STEP` times its
            index for a COLL; for others one more than the highest level directly above.
        bound: vertex -> for RECVs and joins the smallest level of a COLL or SEND below it without
            a COLL or SEND in between (a large number: none); for others the own level.
    """

    row: list[int]
    kind: list[int]
    above: list[tuple[int, ...]]
    below: list[list[int]]
    vertex: NDArray[np.int64]
    level: NDArray[np.int64]
    bound: NDArray[np.int64]


UNBOUNDED: Final = 1 << 62
COLL_STEP: Final = 1 << 32
"""More than the number of vertices, so that vertices between COLLs k - 1 and k have levels in
between.
"""


def skeleton(types: NDArray[np.int32], facts: OrderFacts) -> Skeleton:
    """Contract compute.  `facts.decided` must hold; edges include `ctrl_deps`."""
    kinds = types.tolist()
    edges = facts.links.every
    start, parent = edges.start.tolist(), edges.parent.tolist()
    count = len(kinds)
    last = [-1] * count  # number of the last COLL above or at the row
    hangs = [-1] * count  # the only other vertex that the row depends on
    coll_vertex: list[int] = []
    row_of: list[int] = []
    kind_of: list[int] = []
    above: list[tuple[int, ...]] = []
    vertex = [-1] * count
    coll, send, recv = NodeType.COLL, NodeType.SEND, NodeType.RECV
    for row in facts.links.order.tolist():
        number, beside = -1, -1
        others: set[int] | None = None
        for index in range(start[row], start[row + 1]):
            up = parent[index]
            if last[up] > number:
                number = last[up]
            if hangs[up] >= 0 and hangs[up] != beside:
                if beside < 0:
                    beside = hangs[up]
                elif others is None:
                    others = {beside, hangs[up]}
                else:
                    others.add(hangs[up])
        kind = kinds[row]
        last[row], hangs[row] = number, beside
        if others is None and kind not in (coll, send, recv):
            continue
        new = vertex[row] = len(row_of)
        first = (coll_vertex[number],) if number >= 0 else ()
        beside_all = tuple(sorted(others)) if others else ((beside,) if beside >= 0 else ())
        row_of.append(row)
        kind_of.append(kind)
        above.append(first + beside_all)
        if kind == coll:
            last[row], hangs[row] = len(coll_vertex), -1
            coll_vertex.append(new)
        else:
            hangs[row] = new
    return _with_levels(row_of, kind_of, above, vertex)


def _with_levels(
    row_of: list[int], kind_of: list[int], above: list[tuple[int, ...]], vertex: list[int]
) -> Skeleton:
    count = len(row_of)
    below: list[list[int]] = [[] for _ in range(count)]
    level = [0] * count
    colls = 0
    for node, parents in enumerate(above):
        highest = -COLL_STEP
        for up in parents:
            below[up].append(node)
            if level[up] > highest:
                highest = level[up]
        if kind_of[node] == NodeType.COLL:
            level[node] = COLL_STEP * colls
            colls += 1
        else:
            level[node] = highest + 1
    bound = [0] * count
    for node in range(count - 1, -1, -1):
        if kind_of[node] in (NodeType.COLL, NodeType.SEND):
            bound[node] = level[node]
        else:
            bound[node] = min((bound[down] for down in below[node]), default=UNBOUNDED)
    return Skeleton(
        row_of,
        kind_of,
        above,
        below,
        np.array(vertex, np.int64),
        np.array(level, np.int64),
        np.array(bound, np.int64),
    )
