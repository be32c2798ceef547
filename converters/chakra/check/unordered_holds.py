"""Communications of a rank that dependencies leave unordered: can one of them hang the others?

`checker_order` proves that nothing hangs if each COLL is ordered against every other COLL and SEND
of its rank.  Where a pair (y, x) with a COLL y is not, y may be issued first and hold the slot
while x is ready: a *hold*, an edge from y's completion to x's issue that exists in some
executions.  Let H be all holds, over all ranks, and G as in `checker_order`, acyclic.

**Claim.** If no strongly connected component of G + H contains a hold, nothing hangs. *Argument.*
As there, but a cause may also be a hold, so stepping to causes ends in a cycle of G + H. G is
acyclic, so the cycle has a hold, and all of it lies in one component.

Two things sharpen this.  First, a hold y -> x is impossible if G leads from x to y's *issue*, which
also goes through other ranks; such holds are removed.  Second, at any moment at most one node holds
a rank's slot.  If all holds of a component belong to one rank, the cycle's holds are all y's, so a
hang needs a path of G from some held x to y's completion, which is searched for.  Several ranks in
one component are refused without knowing for sure that they hang.

Only sets with unordered pairs come here, and only up to `MAX_VERTICES` and `MAX_PAIRS`: above,
unordered pairs are refused as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.findings import Hits, one_node
from flint.converters.chakra.check.matching import Matching
from flint.converters.chakra.check.trace_views import Facts, View
from flint.converters.chakra.schema import NodeType

MAX_VERTICES: Final = 1_000_000
MAX_PAIRS: Final = 2_000_000
MAX_BITS: Final = 1 << 31
_REFINING_WORK: Final = 20_000_000
_REMEDY: Final = "add a dependency (data_deps) between them, the same way round on all ranks"


@dataclass(frozen=True, slots=True)
class IssueGraph:
    """G over all ranks, with a vertex for each node's issue and one for each collective's end.

    A node that is no COLL completes at its issue vertex.

    Attributes:
        below: vertex -> vertices that come after it.
        owner: issue vertex -> (rank, row); shorter than `below` by the collectives' ends.
        base: rank -> vertex of the issue of its row 0.
        end: issue vertex of a COLL -> the collective's end.
    """

    below: list[list[int]]
    owner: list[tuple[int, int]]
    base: dict[int, int]
    end: dict[int, int]


class Holds:
    """Which COLLs of a trace may hold the slot against which ready nodes.

    Attributes:
        held: row of a COLL -> rows of the COLLs and SENDs unordered against it.
        pairs: how many there are in all; if that is above the given bound, `held` is empty.
    """

    def __init__(self, view: View, most_pairs: int) -> None:
        order = view.order.links.order
        rows = order[np.isin(view.trace.type[order], (NodeType.COLL, NodeType.SEND))]
        self._rows: list[int] = rows.tolist()
        self._bit = {row: index for index, row in enumerate(self._rows)}
        self.held: dict[int, list[int]] = {}
        self.pairs = most_pairs + 1
        if len(view.trace) * len(rows) <= MAX_BITS:
            self._find(view, most_pairs)

    def _reach(self, view: View, *, upwards: bool) -> list[int]:
        """Per row the set of communications above (or below) it, as bits."""
        order = view.order.links.order.tolist()
        edges = view.order.links.data
        start, parent = edges.start.tolist(), edges.parent.tolist()
        mark = [0] * len(order)
        for row, index in self._bit.items():
            mark[row] = 1 << index
        reach = [0] * len(order)
        for row in order if upwards else reversed(order):
            for above in parent[start[row] : start[row + 1]]:
                if upwards:
                    reach[row] |= reach[above] | mark[above]
                else:
                    reach[above] |= reach[row] | mark[row]
        return reach

    def _find(self, view: View, most_pairs: int) -> None:
        above = self._reach(view, upwards=True)
        below = self._reach(view, upwards=False)
        everything = (1 << len(self._rows)) - 1
        free = {
            row: everything & ~above[row] & ~below[row] & ~(1 << self._bit[row])
            for row in view.order.colls.tolist()
        }
        self.pairs = sum(bits.bit_count() for bits in free.values())
        if self.pairs <= most_pairs:
            self.held = {
                row: [self._rows[index] for index in _bits(bits)]
                for row, bits in free.items()
                if bits
            }


@dataclass(frozen=True, slots=True)
class Undecided:
    """The views with unordered communications.

    Attributes:
        views: those views.
        holds: view index -> its holds.
        too_many: the analysis would be too large; `holds` is not complete then.
    """

    views: list[View]
    holds: dict[int, Holds]
    too_many: bool


def undecided(facts: Facts) -> Undecided:
    """Find the holds of all views, those of one structure once, within the bounds."""
    views = [view for view in facts.views if not view.order.decided]
    vertices = sum(len(view.trace) * len(view.ranks) for view in facts.views)
    if views and vertices > MAX_VERTICES:
        return Undecided(views, {}, too_many=True)
    holds: dict[int, Holds] = {}
    known: dict[int, Holds] = {}
    left = MAX_PAIRS
    for view in views:
        found = known.get(id(view.order))
        if found is None:
            found = known[id(view.order)] = Holds(view, left // len(view.ranks))
        left -= found.pairs * len(view.ranks)
        if left < 0:
            return Undecided(views, holds, too_many=True)
        holds[view.index] = found
    return Undecided(views, holds, too_many=False)


def _bits(value: int) -> Iterator[int]:
    while value:
        lowest = value & -value
        yield lowest.bit_length() - 1
        value ^= lowest


def issue_graph(facts: Facts, matching: Matching) -> IssueGraph:
    """Build G.  All communications must match."""
    below: list[list[int]] = []
    owner: list[tuple[int, int]] = []
    base: dict[int, int] = {}
    for view in facts.views:
        for rank in view.ranks.tolist():
            base[rank] = len(owner)
            owner.extend((rank, row) for row in range(len(view.trace)))
    below = [[] for _ in owner]
    end = _collective_ends(facts, matching, base, below)
    for view in facts.views:
        edges = view.links.every
        pairs = list(zip(edges.parent.tolist(), edges.child().tolist(), strict=True))
        for rank in view.ranks.tolist():
            first = base[rank]
            for parent, child in pairs:
                vertex = first + parent
                below[end.get(vertex, vertex)].append(first + child)
    sends, recvs = matching.sends, matching.recvs
    columns = (sends.rank, sends.row, recvs.rank, recvs.row)
    for rank, row, peer, its_row in zip(*(column.tolist() for column in columns), strict=True):
        below[base[rank] + row].append(base[peer] + its_row)
    return IssueGraph(below, owner, base, end)


def _collective_ends(
    facts: Facts, matching: Matching, base: dict[int, int], below: list[list[int]]
) -> dict[int, int]:
    end: dict[int, int] = {}
    for communicator, parts in matching.parts.items():
        first: dict[int, int] = {}
        for part in parts:
            view = facts.views[part.view]
            rows = part.rows.tolist()
            groups = facts.group_of_ranks(communicator, view.ranks).tolist()
            for rank, group in zip(view.ranks.tolist(), groups, strict=True):
                if group not in first:
                    first[group] = len(below)
                    below.extend([] for _ in rows)
                for nth, row in enumerate(rows):
                    end[base[rank] + row] = first[group] + nth
                    below[base[rank] + row].append(first[group] + nth)
    return end


def dangerous_holds(
    facts: Facts, graph: IssueGraph, holds: dict[int, Holds]
) -> Iterator[tuple[int, int]]:
    """(holding vertex, held vertex): one pair for each component that may hang.

    `graph` must be acyclic; `holds` are those of the undecided views.
    """
    edges: dict[int, list[int]] = {}
    for index, view_holds in holds.items():
        for rank in facts.views[index].ranks.tolist():
            first = graph.base[rank]
            for row, held in view_holds.held.items():
                edges[first + row] = [first + other for other in held]
    component = _components(graph, edges)
    edges = _possible(graph, edges, component)
    component = _components(graph, edges)
    suspects: dict[int, list[tuple[int, int]]] = {}
    for holder, held in edges.items():
        for vertex in held:
            if component[graph.end[holder]] == component[vertex]:
                suspects.setdefault(component[vertex], []).append((holder, vertex))
    for pairs in suspects.values():
        if len({graph.owner[holder][0] for holder, _ in pairs}) > 1:
            yield pairs[0]
            continue
        by_holder: dict[int, list[int]] = {}
        for holder, vertex in pairs:
            by_holder.setdefault(holder, []).append(vertex)
        for holder, held in by_holder.items():
            reached = _reached(graph.below, held, component)
            if graph.end[holder] in reached:
                yield holder, held[0]
                break


def _possible(
    graph: IssueGraph, holds: dict[int, list[int]], component: list[int]
) -> dict[int, list[int]]:
    """Drop holds y -> x where G leads from x to y's issue: x is complete before y is issued."""
    within = {
        holder: [vertex for vertex in held if component[graph.end[holder]] == component[vertex]]
        for holder, held in holds.items()
    }
    within = {holder: held for holder, held in within.items() if held}
    sizes = np.bincount(component)
    work = sum(int(sizes[component[graph.end[holder]]]) for holder in within)
    if work > _REFINING_WORK:
        return within
    above: list[list[int]] = [[] for _ in graph.below]
    for vertex, below in enumerate(graph.below):
        for down in below:
            above[down].append(vertex)
    possible = {}
    for holder, held in within.items():
        # Paths from x to the issue and on to the end and back to x stay inside the component, so
        # the issue may be outside of it only if no x leads to it.
        earlier = _reached(above, [holder], component)
        possible[holder] = [vertex for vertex in held if vertex not in earlier]
    return possible


def _reached(edges: list[list[int]], sources: list[int], component: list[int]) -> set[int]:
    """Vertices that `edges` lead to from `sources` without leaving their components."""
    seen = set(sources)
    stack = list(sources)
    while stack:
        vertex = stack.pop()
        for other in edges[vertex]:
            if other not in seen and component[other] == component[vertex]:
                seen.add(other)
                stack.append(other)
    return seen


def find_cycle(graph: IssueGraph) -> list[tuple[int, int]]:
    """(rank, row) of the nodes along a cycle of G; empty if G is acyclic."""
    waiting = [0] * len(graph.below)
    for below in graph.below:
        for down in below:
            waiting[down] += 1
    ready = [vertex for vertex, count in enumerate(waiting) if not count]
    for vertex in ready:
        for down in graph.below[vertex]:
            waiting[down] -= 1
            if not waiting[down]:
                ready.append(down)
    if len(ready) == len(waiting):
        return []
    above: dict[int, int] = {}
    for vertex, below in enumerate(graph.below):
        if waiting[vertex]:
            above.update((down, vertex) for down in below)
    vertex = next(iter(vertex for vertex, count in enumerate(waiting) if count))
    walked: dict[int, int] = {}
    while vertex not in walked:
        walked[vertex] = len(walked)
        vertex = above[vertex]
    path = list(walked)[walked[vertex] :][::-1]
    return [graph.owner[vertex] for vertex in path if vertex < len(graph.owner)]


def _components(graph: IssueGraph, holds: dict[int, list[int]]) -> list[int]:
    """Strongly connected components of G + H (Tarjan's algorithm without recursion)."""
    by_end: dict[int, list[int]] = {}
    for holder, held in holds.items():
        by_end.setdefault(graph.end[holder], []).extend(held)
    count = len(graph.below)
    number, low, component = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    numbered = components = 0
    for root in range(count):
        if number[root] >= 0:
            continue
        calls: list[tuple[int, Iterator[int]]] = []
        calls.append((root, _successors(graph, by_end, root)))
        number[root] = low[root] = numbered
        numbered += 1
        stack.append(root)
        while calls:
            vertex, successors = calls[-1]
            for other in successors:
                if number[other] < 0:
                    number[other] = low[other] = numbered
                    numbered += 1
                    stack.append(other)
                    calls.append((other, _successors(graph, by_end, other)))
                    break
                if component[other] < 0:
                    low[vertex] = min(low[vertex], number[other])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[vertex])
                if low[vertex] == number[vertex]:
                    while component[vertex] < 0:
                        component[stack.pop()] = components
                    components += 1
    return component


def _successors(graph: IssueGraph, by_end: dict[int, list[int]], vertex: int) -> Iterator[int]:
    extra: Iterable[int] = by_end.get(vertex, ())
    yield from graph.below[vertex]
    yield from extra


def refuse_unordered(view: View) -> Iterator[Hits]:
    """Refuse a view's unordered communications without weighing them."""
    order = view.order
    rows: NDArray[np.int64] = order.colls[order.gaps] if len(order.gaps) else order.loose
    yield Hits(
        view.index,
        rows,
        view.ranks,
        lambda row, rank: (
            "is not ordered by data_deps against the rank's other communications, "
            f"and there are too many of them to tell whether that can hang; {_REMEDY}"
        ),
    )


def word_hold(facts: Facts, graph: IssueGraph, holder: int, held: int) -> Hits:
    """The finding for a hold that may hang."""
    rank, row = graph.owner[holder]
    _, other = graph.owner[held]
    view = facts.views[int(facts.set.class_of_rank()[rank])]
    names = {int(kind): kind.name for kind in NodeType}
    return one_node(
        view.index,
        row,
        rank,
        f"this COLL may be issued before {names[int(view.trace.type[other])]} "
        f"{view.trace.id[other]} of the same rank and keep the communication slot, while its other "
        f"members wait for what that node leads to: a hang, whatever the ids; {_REMEDY}",
    )
