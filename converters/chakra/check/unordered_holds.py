"""Communications of a rank that dependencies leave unordered: whether one of them can hang the
others.

`order` proves that nothing hangs if each COLL is ordered against every other COLL and SEND
of its rank.  Where a pair (y, x) with a COLL y is not, y may be issued first and hold the slot
while x is ready: a *hold*, an edge from y's completion to x's issue that exists in some
executions.  Let H be all holds, over all ranks, and G as in `order`, acyclic.

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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from flint.converters.chakra.check.cycles import components
from flint.converters.chakra.check.findings import Hits, one_node
from flint.converters.chakra.check.graph import Above, EventGraph
from flint.converters.chakra.check.trace_views import Facts, View
from flint.converters.chakra.schema import NodeType
from flint.mesh.ragged import Ints

MAX_VERTICES: Final = 1_000_000
MAX_PAIRS: Final = 2_000_000
MAX_BITS: Final = 1 << 31
_REFINING_WORK: Final = 20_000_000
_REMEDY: Final = "add a dependency (data_deps) between them, in the same direction on all ranks"


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
    """The views that have unordered communications.

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


def dangerous_holds(
    facts: Facts, graph: EventGraph, certain: EventGraph, holds: dict[int, Holds]
) -> Iterator[tuple[int, int]]:
    """(holding vertex, held vertex): one pair for each component that may hang.

    Args:
        facts: of the traces.
        graph: G with all dependencies, acyclic.
        certain: G with those that every consumer keeps.
        holds: those of the undecided views.
    """
    pairs = _possible(graph, certain, _pairs(facts, graph, holds))
    component = _components(graph, pairs)
    above = _inside(graph, component)
    suspects: dict[int, list[tuple[int, int]]] = {}
    for holder, held in _within(graph, pairs, component).tolist():
        suspects.setdefault(int(component[held]), []).append((holder, held))
    for found in suspects.values():
        if len({int(graph.rank[holder]) for holder, _ in found}) > 1:
            yield found[0]
            continue
        for holder, group in groupby(found, key=itemgetter(0)):
            held_here = [held for _, held in group]
            if not above.reached([int(graph.end[holder])]).isdisjoint(held_here):
                yield holder, held_here[0]
                break


def _pairs(facts: Facts, graph: EventGraph, holds: dict[int, Holds]) -> Ints:
    """int64 [n, 2]: the holding and the held vertex of every hold of every rank."""
    found = [np.zeros((0, 2), np.int64)]
    for index, own in holds.items():
        rows = np.array([(row, other) for row, held in own.held.items() for other in held])
        for rank in facts.views[index].ranks.tolist():
            found.append(graph.base[rank] + rows.reshape(-1, 2).astype(np.int64))
    return np.concatenate(found)


def _components(graph: EventGraph, pairs: Ints) -> Ints:
    """Strongly connected components of G + H."""
    source = np.concatenate([graph.source, graph.end[pairs[:, 0]]])
    target = np.concatenate([graph.target, pairs[:, 1]])
    return components(source, target, graph.count).astype(np.int64)


def _within(graph: EventGraph, pairs: Ints, component: Ints) -> Ints:
    """The holds that lie in one component."""
    inside: Ints = pairs[component[graph.end[pairs[:, 0]]] == component[pairs[:, 1]]]
    return inside


def _inside(graph: EventGraph, component: Ints) -> Above:
    """The edges of G inside components."""
    inside = component[graph.source] == component[graph.target]
    return Above(graph.source[inside], graph.target[inside], graph.count)


def _possible(graph: EventGraph, certain: EventGraph, pairs: Ints) -> Ints:
    """Drop holds y -> x where G leads from x to y's issue: x is complete before y is issued.

    Of G only what every consumer keeps: another may issue y first.
    """
    component = _components(graph, pairs)
    pairs = _within(graph, pairs, component)
    holders = np.unique(pairs[:, 0])
    if int(np.bincount(component)[component[graph.end[holders]]].sum()) > _REFINING_WORK:
        return pairs
    # Paths from x to the issue and on to the end and back to x stay inside the component, so
    # the issue may be outside of it only if no x leads to it.
    above = _inside(certain, component)
    earlier = {holder: above.reached([holder]) for holder in holders.tolist()}
    possible: Ints = pairs[[held not in earlier[holder] for holder, held in pairs.tolist()]]
    return possible


def refuse_unordered(view: View) -> Iterator[Hits]:
    """Refuse a view's unordered communications without weighing them."""
    order = view.order
    rows = order.colls[order.gaps] if len(order.gaps) else order.loose
    text = (
        "is not ordered by data_deps against the rank's other communications, and there are too "
        f"many of them to decide whether that can hang; {_REMEDY}"
    )
    yield Hits(view.index, rows, view.ranks, text)


def word_hold(facts: Facts, graph: EventGraph, holder: int, held: int) -> Hits:
    """The finding for a hold that may hang."""
    rank, row, other = int(graph.rank[holder]), int(graph.row[holder]), int(graph.row[held])
    view = facts.views[int(facts.set.class_of_rank()[rank])]
    names = {int(kind): kind.name for kind in NodeType}
    return one_node(
        view.index,
        row,
        rank,
        f"this COLL may be issued before {names[int(view.trace.type[other])]} "
        f"{view.trace.id[other]} of the same rank and keep the communication slot, while its other "
        f"members wait for work that depends on that node: a hang, whatever the ids; {_REMEDY}",
    )
