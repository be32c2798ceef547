"""Is the union of all ranks' dependencies, collectives and messages acyclic?

The union graph has the vertices of all ranks, a collective being one vertex for all its members,
and an edge from each SEND to its RECV.  Two ways to see that it is acyclic:

**By levels** (as arrays, for the usual case that ranks run the same program).  Number a rank's
vertices so that the number grows along every edge: a COLL by its index times a large step, a SEND
in between by the longest path from the COLL before it.  So a rank that lacks some message still
agrees with the others about COLLs.  Suppose that each collective has the same level on all
members, and each SEND's level is below the smallest level of a COLL or SEND that its RECV leads to
(the RECV's bound). Give COLLs and SENDs their level, RECVs and joins their bound minus a half.
Along an edge inside a rank this number never falls: a COLL or SEND is above its parents by level,
and a RECV's or join's bound exceeds the level of every COLL and SEND above it.  It stays equal
only between RECVs and joins of one rank, whose edges are acyclic.  A SEND's level is at most its
RECV's bound minus one.  So no cycle closes.

**By search** (for pipelines and other cases): build the graph of all ranks' skeletons and search
for a strongly connected component of more than one vertex.

Sets whose order is not decided have no skeletons; their graph (`whole_graph`) has all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flint.converters.chakra.check import cycles
from flint.converters.chakra.check.findings import Hits, one_node
from flint.converters.chakra.check.links import Edges
from flint.converters.chakra.check.matching import Endpoints, Matching, sequence_numbers
from flint.converters.chakra.check.skeleton import Skeleton, skeleton
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.schema import NodeType
from flint.mesh.ragged import Ints


@dataclass(frozen=True, slots=True)
class Nodes:
    """A view's part of the graph.

    Attributes:
        row: vertex -> row of the trace.
        vertex: row -> vertex, -1 for rows that are not in the graph.
        parent, child: vertices at the ends of each edge.
    """

    row: Ints
    vertex: Ints
    parent: Ints
    child: Ints


@dataclass(frozen=True, slots=True)
class EventGraph:
    """Which events precede which, over all ranks: the graph G of `order`.

    The vertices are the issues of all ranks' nodes, then one end for each collective.  A node other
    than a COLL ends at its issue vertex.

    Attributes:
        source, target: vertices at the ends of each edge.
        count: number of vertices.
        rank, row: of each issue vertex.
        base: rank -> its first vertex.
        end: issue vertex -> the vertex at which its node ends.
    """

    source: Ints
    target: Ints
    count: int
    rank: Ints
    row: Ints
    base: Ints
    end: Ints

    def cycle(self) -> list[tuple[int, int]]:
        """(rank, row) of the nodes along a cycle; empty if there is none."""
        vertices = cycles.cycle(self.source, self.target, self.count).tolist()
        found: list[tuple[int, int]] = []
        for vertex, after in zip(vertices, vertices[1:] + vertices[:1], strict=True):
            if vertex >= len(
                self.rank
            ):  # a collective's end, on the rank that continues from there
                members = np.flatnonzero(self.end == vertex)
                vertex = members[np.argmax(self.rank[members] == self.rank[after])]
            place = int(self.rank[vertex]), int(self.row[vertex])
            if place not in found:
                found.append(place)
        return found


@dataclass(frozen=True, slots=True)
class GraphResult:
    """Attributes: cycle: (rank, row) along a cycle, empty if there is none; work: vertices seen."""

    cycle: list[tuple[int, int]]
    work: int


def describe_cycle(facts: Facts, cycle: list[tuple[int, int]]) -> Hits:
    """The finding for a cycle of (rank, row)."""
    classes = facts.set.class_of_rank()
    names = {int(kind): kind.name for kind in NodeType}
    shown = []
    for rank, row in cycle[:8]:
        trace = facts.views[classes[rank]].trace
        shown.append(f"{names.get(int(trace.type[row]), 'node')} {trace.id[row]} of rank {rank}")
    shown += ["..."] if len(cycle) > 8 else []
    rank, row = cycle[0]
    text = (
        f"{' -> '.join(shown)}: they wait for each other in a cycle, so none of them ever runs; "
        "give all ranks' communications one common order"
    )
    return one_node(int(classes[rank]), row, rank, text)


def union_graph(facts: Facts, matching: Matching) -> GraphResult:
    """Look for a cycle over all ranks.  Every view's order must be decided, all must match."""
    if not matching.sends.key.shape[1] and _collectives_level(facts, matching, []):
        return GraphResult([], len(facts.views) + facts.set.size)
    bones = _skeletons(facts)
    if _collectives_level(facts, matching, bones) and _messages_rise(matching, bones):
        distinct = {id(bone): len(bone.row) for bone in bones}
        return GraphResult([], sum(distinct.values()) + facts.set.size)
    graph = skeleton_graph(facts, matching, bones)
    return GraphResult(graph.cycle(), graph.count + len(graph.source))


def skeleton_graph(facts: Facts, matching: Matching, bones: Sequence[Skeleton]) -> EventGraph:
    """G with the vertices of the skeletons only."""
    return _event_graph(facts, matching, [_nodes_of(bone) for bone in bones])


def whole_graph(facts: Facts, matching: Matching) -> EventGraph:
    """G with all nodes and dependencies.  All communications must match."""
    return _with_all_nodes(facts, matching, [view.links.every for view in facts.views])


def certain_graph(facts: Facts, matching: Matching) -> EventGraph:
    """G with all nodes and what every consumer keeps, `data_deps`; vertices as `whole_graph`."""
    return _with_all_nodes(facts, matching, [view.links.data for view in facts.views])


def _with_all_nodes(facts: Facts, matching: Matching, edges: Sequence[Edges]) -> EventGraph:
    nodes = []
    for view, own in zip(facts.views, edges, strict=True):
        rows = np.arange(len(view.trace))
        nodes.append(Nodes(rows, rows, own.parent, own.child()))
    return _event_graph(facts, matching, nodes)


class Above:
    """Predecessors of a vertex along edges.

    Args:
        source, target: vertices at the ends of each edge.
        count: number of vertices.
    """

    def __init__(self, source: Ints, target: Ints, count: int) -> None:
        by_target = np.argsort(target, kind="stable")
        self._before: list[int] = source[by_target].tolist()
        starts = np.searchsorted(target[by_target], np.arange(count + 1))
        self._start: list[int] = starts.tolist()

    def reached(self, vertices: Sequence[int]) -> set[int]:
        """The vertices and all their predecessors."""
        seen, stack = set(vertices), list(vertices)
        while stack:
            at = stack.pop()
            for other in self._before[self._start[at] : self._start[at + 1]]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        return seen


def _nodes_of(bone: Skeleton) -> Nodes:
    parent = [up for above in bone.above for up in above]
    child = np.repeat(np.arange(len(bone.above)), [len(above) for above in bone.above])
    return Nodes(np.array(bone.row, np.int64), bone.vertex, np.array(parent, np.int64), child)


def _event_graph(facts: Facts, matching: Matching, nodes: Sequence[Nodes]) -> EventGraph:
    none = np.zeros(0, np.int64)
    rank, row, source, target = [none], [none], [none], [none]
    base = np.zeros(facts.set.size, np.int64)
    count = 0
    for view, own in zip(facts.views, nodes, strict=True):
        ranks, size = len(view.ranks), len(own.row)
        first = base[view.ranks] = count + size * np.arange(ranks)
        count += ranks * size
        rank.append(np.repeat(view.ranks, size))
        row.append(np.tile(own.row, ranks))
        source.append((first[:, None] + own.parent).ravel())
        target.append((first[:, None] + own.child).ravel())
    end, total = _ends(facts, matching, nodes, base, count)
    issues = np.flatnonzero(end != np.arange(count))
    vertex = [own.vertex for own in nodes]
    sends, recvs = matching.sends, matching.recvs
    source = [end[np.concatenate(source)], issues, base[sends.rank] + _at(sends, vertex)]
    target = [*target, end[issues], base[recvs.rank] + _at(recvs, vertex)]
    return EventGraph(
        np.concatenate(source),
        np.concatenate(target),
        total,
        np.concatenate(rank),
        np.concatenate(row),
        base,
        end,
    )


def _ends(
    facts: Facts, matching: Matching, nodes: Sequence[Nodes], base: Ints, count: int
) -> tuple[Ints, int]:
    """Where each issue vertex's node ends, and the number of vertices with those ends."""
    end = np.arange(count)
    for communicator, parts in matching.parts.items():
        first: dict[int, int] = {}
        for part in parts:
            ranks = facts.views[part.view].ranks
            groups = facts.group_of_ranks(communicator, ranks).tolist()
            vertices = nodes[part.view].vertex[part.rows]
            for rank, group in zip(ranks.tolist(), groups, strict=True):
                if group not in first:
                    first[group] = count
                    count += len(vertices)
                end[base[rank] + vertices] = first[group] + np.arange(len(vertices))
    return end, count


def _skeletons(facts: Facts) -> list[Skeleton]:
    """A skeleton for each view; views of the same structure share one."""
    made: dict[int, Skeleton] = {}
    bones = []
    for view in facts.views:
        key = id(view.order)
        if key not in made:
            made[key] = skeleton(view.trace.type, view.order)
        bones.append(made[key])
    return bones


def _collectives_level(facts: Facts, matching: Matching, bones: Sequence[Skeleton]) -> bool:
    """Whether each collective has one level on all members.

    Without messages a COLL's level is its index in its rank, and `bones` may be empty.
    """
    for communicator, parts in matching.parts.items():
        levels = [
            bones[part.view].level[bones[part.view].vertex[part.rows]] if bones else part.nth
            for part in parts
        ]
        values = [level.tobytes() for level in levels]
        _, groups, number = sequence_numbers(facts, communicator, parts, values)
        by_group = np.argsort(groups, kind="stable")
        groups, number = groups[by_group], number[by_group]
        if np.any(number != number[np.searchsorted(groups, groups)]):
            return False
    return True


def _messages_rise(matching: Matching, bones: Sequence[Skeleton]) -> bool:
    """Whether each SEND's level is below the bound of its RECV."""
    distinct = {id(bone): bone for bone in bones}
    # Rows without a vertex have -1, which is the entry that is appended.
    level = {key: np.append(bone.level, 0)[bone.vertex] for key, bone in distinct.items()}
    bound = {key: np.append(bone.bound, 0)[bone.vertex] for key, bone in distinct.items()}
    sends = _at(matching.sends, [level[id(bone)] for bone in bones])
    recvs = _at(matching.recvs, [bound[id(bone)] for bone in bones])
    return bool(np.all(sends < recvs))


def _at(ends: Endpoints, columns: Sequence[Ints]) -> Ints:
    """For each endpoint the entry for its row of its view's column."""
    distinct = {id(column): column for column in columns}
    sizes = [len(column) for column in distinct.values()]
    starts = dict(zip(distinct, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    start = np.array([starts[id(column)] for column in columns], np.int64)
    found: Ints = np.concatenate(list(distinct.values()))[start[ends.view] + ends.row]
    return found
