"""Pairs of one rank's communications that other ranks order.

The idea: two collectives of one group, or two messages of one kind, pair correctly if the first is
issued before the second in every execution.  A path of the rank's own `data_deps` shows that; so
does a path of G (see `order`) through other ranks: a message from a member that has finished the
first collective, on which the second depends.

**Claim.** If each such pair of all ranks has a path, in a rank or in the G of the assumed pairing,
then no execution pairs otherwise.  *Argument.* Consider the first event of an execution that does:
a second communication b issued before its first one, a.  All earlier pairings are as in G, so
everything that G has before b's issue has happened.  a's issue is there.  Contradiction.

A path must end in one of b's dependencies, because a partner's SEND does not cause a RECV to be
posted.  Only `data_deps` count, because some consumers ignore others.
"""

from __future__ import annotations

from collections.abc import Iterable

from flint.converters.chakra.check.graph import Above, EventGraph, certain_graph
from flint.converters.chakra.check.matching import Matching
from flint.converters.chakra.check.trace_views import Facts, View

#: Vertices in the graph, and visits of them, above which pairs stay unordered.
_MAX_VERTICES, _MAX_VISITS = 200_000, 20_000_000


class Elsewhere:
    """What all ranks together order; the graph is made on first use."""

    def __init__(self, facts: Facts, matching: Matching) -> None:
        self._facts, self._matching = facts, matching
        self._graph: EventGraph | None = None
        self._above: Above | None = None
        vertices = sum(len(view.trace) * len(view.ranks) for view in facts.views)
        self._left = _MAX_VISITS if vertices <= _MAX_VERTICES else 0

    def unordered(self, view: View, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """(rank, a, b) of the pairs of rows (a, b) without a path from a to b's issue.

        The first rank of the view where that is so.
        """
        found = []
        for first, second in pairs:
            for rank in view.ranks.tolist():
                if not self._leads(view, rank, first, second):
                    found.append((rank, first, second))
                    break
        return found

    def _leads(self, view: View, rank: int, first: int, second: int) -> bool:
        if self._left <= 0:
            return False
        if self._graph is None or self._above is None:
            self._graph = certain_graph(self._facts, self._matching)
            self._above = Above(self._graph.source, self._graph.target, self._graph.count)
        graph, edges = self._graph, view.order.links.data
        base = int(graph.base[rank])
        parents = edges.parent[edges.start[second] : edges.start[second + 1]]
        above = self._above.reached(graph.end[base + parents].tolist())
        self._left -= len(above)
        return base + first in above
