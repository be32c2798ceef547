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

**By removal** (for pipelines and whatever else): take away vertices without predecessors until
nothing is left; work is linear in vertices and edges of all ranks' skeletons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.findings import Hits, one_node
from flint.converters.chakra.check.matching import Endpoints, Matching, sequence_numbers
from flint.converters.chakra.check.skeleton import Skeleton, skeleton
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.schema import NodeType

Vertex = tuple[int, int]  # rank, vertex of its skeleton


@dataclass(frozen=True, slots=True)
class GraphResult:
    """Attributes: cycle: (rank, row) along a cycle, empty if there is none; work: steps taken."""

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
        f"{' -> '.join(shown)}: they wait for each other in a circle, so none of them ever runs; "
        "give all ranks' communications one common order"
    )
    return one_node(int(classes[rank]), row, rank, text)


def union_graph(facts: Facts, matching: Matching) -> GraphResult:
    """Look for a cycle over all ranks.  Every view's order must be decided, all must match."""
    if not matching.sends.key.shape[1] and _collectives_level(facts, matching, {}):
        return GraphResult([], len(facts.views) + facts.set.size)
    bones = _skeletons(facts)
    if _collectives_level(facts, matching, bones) and _messages_rise(matching, bones):
        return GraphResult([], sum(len(bone.row) for bone in bones.values()) + facts.set.size)
    return _Removal(facts, matching, bones).run()


def _skeletons(facts: Facts) -> dict[int, Skeleton]:
    """Skeletons by view; views of the same structure share one."""
    made: dict[int, Skeleton] = {}
    bones: dict[int, Skeleton] = {}
    for view in facts.views:
        key = id(view.order)
        if key not in made:
            made[key] = skeleton(view.trace.type, view.order)
        bones[view.index] = made[key]
    return bones


def _collectives_level(facts: Facts, matching: Matching, bones: dict[int, Skeleton]) -> bool:
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


def _messages_rise(matching: Matching, bones: dict[int, Skeleton]) -> bool:
    level = _of_vertices(matching.sends, bones, lambda bone: bone.level)
    bound = _of_vertices(matching.recvs, bones, lambda bone: bone.bound)
    return bool(np.all(level < bound))


def _of_vertices(
    ends: Endpoints,
    bones: dict[int, Skeleton],
    column: Callable[[Skeleton], NDArray[np.int64]] | None,
) -> NDArray[np.int64]:
    """For each endpoint its vertex, or the entry of a column of its skeleton at its vertex."""
    distinct = {id(bone): bone for bone in bones.values()}
    number = {key: index for index, key in enumerate(distinct)}
    number_of_view = np.zeros(max(bones, default=-1) + 1, np.int64)
    for view, bone in bones.items():
        number_of_view[view] = number[id(bone)]
    of_end = number_of_view[ends.view]
    values = np.zeros(len(ends.row), np.int64)
    for index, bone in enumerate(distinct.values()):
        mine = np.flatnonzero(of_end == index)
        vertex = bone.vertex[ends.row[mine]]
        values[mine] = vertex if column is None else column(bone)[vertex]
    return values


class _Removal:
    """Kahn's algorithm over the skeletons of all ranks."""

    def __init__(self, facts: Facts, matching: Matching, bones: dict[int, Skeleton]) -> None:
        self.bones = {
            rank: bones[view.index] for view in facts.views for rank in view.ranks.tolist()
        }
        self.receiver = _facing(matching.sends, matching.recvs, bones)
        self.sender = {recv: send for send, recv in self.receiver.items()}
        self.instance, self.size = _instances(facts, matching, bones)

    def run(self) -> GraphResult:
        waiting = {rank: [len(up) for up in bone.above] for rank, bone in self.bones.items()}
        for rank, vertex in self.sender:
            waiting[rank][vertex] += 1
        arrived: dict[int, list[Vertex]] = {}
        coll = NodeType.COLL
        ready = [
            (rank, vertex)
            for rank, left in waiting.items()
            for vertex, count in enumerate(left)
            if not count
        ]
        work = 0
        while ready:
            rank, vertex = ready.pop()
            work += 1
            bone = self.bones[rank]
            done = [(rank, vertex)]
            if bone.kind[vertex] == coll:
                instance = self.instance[rank][vertex]
                members = arrived.setdefault(instance, [])
                members.append((rank, vertex))
                if len(members) < self.size[instance]:
                    continue
                done = members
            for member, own in done:
                left = waiting[member]
                left[own] = -1
                for down in self.bones[member].below[own]:
                    work += 1
                    left[down] -= 1
                    if not left[down]:
                        ready.append((member, down))
            receiver = self.receiver.get((rank, vertex))
            if receiver is not None:
                waiting[receiver[0]][receiver[1]] -= 1
                if not waiting[receiver[0]][receiver[1]]:
                    ready.append(receiver)
        return GraphResult(self._cycle(waiting), work)

    def _cycle(self, waiting: dict[int, list[int]]) -> list[tuple[int, int]]:
        """Walk from a vertex that is left to one of its causes until one comes again."""
        vertex = next(
            ((rank, at) for rank, left in waiting.items() for at, n in enumerate(left) if n >= 0),
            None,
        )
        if vertex is None:
            return []
        late: dict[int, Vertex] = {}
        for rank, left in waiting.items():
            for at, instance in self.instance[rank].items():
                if left[at] > 0:
                    late.setdefault(instance, (rank, at))
        walked: dict[Vertex, int] = {}
        while vertex not in walked:
            walked[vertex] = len(walked)
            rank, at = vertex
            if waiting[rank][at] == 0:  # a collective that waits for another member
                vertex = late[self.instance[rank][at]]
                continue
            sender = self.sender.get(vertex)
            if sender is not None and waiting[sender[0]][sender[1]] >= 0:
                vertex = sender
            else:
                up = next(up for up in self.bones[rank].above[at] if waiting[rank][up] >= 0)
                vertex = (rank, up)
        cycle = list(walked)[walked[vertex] :][::-1]
        return [(rank, self.bones[rank].row[at]) for rank, at in cycle]


def _facing(sends: Endpoints, recvs: Endpoints, bones: dict[int, Skeleton]) -> dict[Vertex, Vertex]:
    def vertices(ends: Endpoints) -> list[Vertex]:
        vertex = _of_vertices(ends, bones, None)
        return list(zip(ends.rank.tolist(), vertex.tolist(), strict=True))

    return dict(zip(vertices(sends), vertices(recvs), strict=True))


def _instances(
    facts: Facts, matching: Matching, bones: dict[int, Skeleton]
) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
    """Number the logical collectives: rank -> vertex -> number, and each one's group size."""
    instance: dict[int, dict[int, int]] = {
        rank: {} for view in facts.views for rank in view.ranks.tolist()
    }
    size: dict[int, int] = {}
    base: dict[tuple[object, int], int] = {}
    for communicator, parts in matching.parts.items():
        members = facts.group_size(communicator)
        for part in parts:
            view = facts.views[part.view]
            vertices = bones[part.view].vertex[part.rows].tolist()
            groups = facts.group_of_ranks(communicator, view.ranks).tolist()
            for rank, group in zip(view.ranks.tolist(), groups, strict=True):
                key = (communicator, group)
                if key not in base:
                    base[key] = len(size)
                    size.update((base[key] + nth, members) for nth in range(len(vertices)))
                numbers = range(base[key], base[key] + len(vertices))
                instance[rank].update(zip(vertices, numbers, strict=True))
    return instance, size
