"""What one rank's dependencies order, and why that is sufficient.

**The consumer.** A rank has one compute slot and one communication slot; COLL and SEND share the
latter, RECV takes none.  Whenever the slot is free, the ready node with the lowest id is issued
and keeps the slot until it is done.  A SEND is done without help from its receiver, a COMP always.
A COLL is done once it has been issued on every member; a RECV once its SEND is done.  *When* a
node becomes ready depends on durations, so ids order nothing by themselves.

**The graph G.** For every node an issue and a completion vertex (one vertex will do but for
COLLs); edges: a dependency's completion -> issue; SEND -> its RECV's completion; the issue of a
COLL on each member -> its one completion.  Each edge is something that must have happened before,
on any consumer.  So if G has a cycle, its nodes never complete.

**Claim.** If G is acyclic and on every rank each COLL is ordered by dependencies against every
other COLL and SEND of the rank, every node completes, whatever the durations.

*Argument.* Suppose that nothing more happens and some node is not complete.  Take any incomplete
vertex and step to a cause: (1) an incomplete predecessor in G; or (2) the node is ready but the
slot is held by an incomplete node y.  y is a COLL, since SENDs end by themselves.  x is ready, so
all its dependencies are complete; y is not complete, so x does not depend on y.  y was issued
while x was incomplete, so y does not depend on x.  Hence x and y are unordered, which is
excluded.  Only (1) remains, and steps of kind (1) run backwards through a finite acyclic graph:
they end at a vertex without cause.  Contradiction.

Two unordered SENDs are harmless.  An unordered pair with a COLL y in it may hang: y may be issued
first and keep x waiting, which is an edge from y's completion to x's issue that G knows nothing of
(`unordered_holds` weighs such pairs).  Since COLLs of a rank are totally ordered, a group's k-th
collective is the same one on all members, which is also what makes the pairing by arrival right.

Pairing of SENDs and RECVs is first in first out per (tag, src, dst, size), so within one such key
both the SENDs and the RECVs must be ordered by dependencies as well.

**How.** Number the COLLs in a topological order.  They are totally ordered iff the highest number
among the ancestors of COLL k is k - 1; a SEND is ordered against all of them iff the lowest number
below it is one more than the highest above it.  Both bounds are one sweep over the edges.
Dependencies count as ordering only if they are `data_deps`: some consumers ignore `ctrl_deps`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.links import Links
from flint.converters.chakra.schema import NodeType

PATH_BUDGET: Final = 1_000_000
"""The most edges per trace that are searched for a path between two nodes."""


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """The order that `data_deps` give to the communications of a trace.

    Attributes:
        links: the dependencies.
        place: int64, each row's position in the topological order `links.order`.
        colls: rows of COLL nodes in that order.
        before: int64 per row, the index in `colls` of the last COLL above it; -1: none.
        after: int64 per row, the index of the first COLL below it; len(colls): none.
        gaps: indices k such that `colls[k]` is not below `colls[k - 1]`; empty: totally ordered.
        loose: rows of SENDs that are unordered against some COLL (if there are no gaps).
        work: number of rows and edges that were examined.
    """

    links: Links
    place: NDArray[np.int64]
    colls: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    gaps: NDArray[np.int64]
    loose: NDArray[np.int64]
    work: int

    @property
    def decided(self) -> bool:
        """True if each COLL is ordered against every COLL and SEND of the rank."""
        return not len(self.gaps) and not len(self.loose)


def order_facts(types: NDArray[np.int32], links: Links) -> OrderFacts:
    """Sweep the dependencies of a trace that has no cycle."""
    count = len(types)
    place = np.empty(count, np.int64)
    place[links.order] = np.arange(count)
    colls = links.order[types[links.order] == NodeType.COLL]
    number = np.full(count, -1, np.int64)
    number[colls] = np.arange(len(colls))
    before, after = _coll_bounds(links, number, len(colls))
    gaps = np.flatnonzero(before[colls] != np.arange(len(colls)) - 1)
    sends = np.flatnonzero(types == NodeType.SEND)
    loose = sends[after[sends] != before[sends] + 1]
    work = 2 * (count + len(links.data.parent))
    return OrderFacts(links, place, colls, before, after, gaps, loose, work)


def _coll_bounds(
    links: Links, number: NDArray[np.int64], colls: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = links.order.tolist()
    start, parent = links.data.start.tolist(), links.data.parent.tolist()
    numbers = number.tolist()
    before = [-1] * len(order)
    reach = [-1] * len(order)
    for row in order:
        highest = -1
        for index in range(start[row], start[row + 1]):
            above = reach[parent[index]]
            if above > highest:
                highest = above
        before[row] = highest
        reach[row] = numbers[row] if numbers[row] >= 0 else highest
    after = [colls] * len(order)
    for row in reversed(order):
        lowest = numbers[row] if numbers[row] >= 0 else after[row]
        for index in range(start[row], start[row + 1]):
            if lowest < after[parent[index]]:
                after[parent[index]] = lowest
    return np.array(before, np.int64), np.array(after, np.int64)


def unordered_pairs(
    facts: OrderFacts, pairs: Iterable[tuple[int, int]]
) -> tuple[list[tuple[int, int]], int]:
    """Those (a, b) of `pairs` for which no path of `data_deps` from row a to row b was found.

    Bounds by COLLs decide most pairs; for the rest the graph is searched backwards from b, at most
    `PATH_BUDGET` edges in all.  Returns the pairs and the number of edges examined.
    """
    start: list[int] = []
    parent: list[int] = []
    place: list[int] = []
    unordered: list[tuple[int, int]] = []
    work = 0
    for first, second in pairs:
        if not len(facts.gaps) and facts.after[first] <= facts.before[second]:
            continue
        if not start:
            start, parent = facts.links.data.start.tolist(), facts.links.data.parent.tolist()
            place = facts.place.tolist()
        found, looked = _is_below(first, second, start, parent, place, PATH_BUDGET - work)
        work += looked
        if not found:
            unordered.append((first, second))
    return unordered, work


def _is_below(
    first: int, second: int, start: list[int], parent: list[int], place: list[int], budget: int
) -> tuple[bool, int]:
    """Whether `second` depends on `first`, and the number of edges examined."""
    stack, seen, looked = [second], {second}, 0
    while stack and looked < budget:
        row = stack.pop()
        for above in parent[start[row] : start[row + 1]]:
            looked += 1
            if above == first:
                return True, looked
            if place[above] > place[first] and above not in seen:
                seen.add(above)
                stack.append(above)
    return False, looked
