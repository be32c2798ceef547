"""Producers that all of their readers recompute, as XLA's priority fusion decides.

The idea: a value that several kernels read is either written once and read by each, or recomputed
in each of them from its sources. XLA's GPU compiler fuses a producer into all of its users or into
none, and does so if that saves time (``PriorityFusion``); except for products, time is memory
traffic and launches.  With V bytes of result, S bytes of sources and N bytes of sources that a
reader does not read anyway,

    saved = S + V + readers * V - sum of N over the readers + what a launch costs

Sources are those of a whole recomputed chain, so that chains stop growing when they would read too
much.  The operand of a broadcast is computed for each element that reads it, so that a reciprocal
root for each channel is a separate kernel.  If a conversion to a wider type and all that leads to
it are not worth recomputing, its operand is written.  These may be recomputed:

- elementwise ops and movement, in any kernel that computes element by element, moves, reduces or
  updates; a contraction absorbs nothing here, nor do the ops that load its operands;
- a reduction of rows (over the last dim, at most 65,536 elements), if every reader works on the
  same rows: an elementwise op on the rows' results or on the rows themselves, or another reduction
  of them. Either its result and its operand meet in one op and it has no other reader (a maximum or
  a mean that is subtracted, ``SoftmaxRewriterTriton``), or its operand contains such a reduction,
  or everything ends in one kernel that does.

So softmax and layer norm are single kernels; RMS norm, whose backward pass reads its mean square
again, writes that.  Other reductions are the roots of their kernels.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.passes.remakable import CHAIN, DEPTH, Readers
from flint.passes.rematerialize import accessed_bytes
from flint.passes.xla_cycles import computing

#: Bytes that memory moves during a launch: 1 us at 3 TB/s.
LAUNCH_BYTES: Final = 3 << 20
#: The most values that a chain may be made of.
MAX_SOURCES: Final = 32
#: The most nodes between a source and what is made of it alone.
_NEAR: Final = 64


def inlined(graph: WorkloadGraph, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes of a graph in issue order that all of their readers recompute, shape [nodes].

    Args:
        graph: the graph.
        kept: nodes that are not recomputed, shape [nodes].
    """
    return _Chooser(graph, kept).chosen()


class _Chooser(Readers):
    """The nodes of one block, one decision after the other in issue order."""

    def __init__(self, graph: WorkloadGraph, kept: NDArray[np.bool_]) -> None:
        super().__init__(graph, kept)
        self.accessed = accessed_bytes(graph).tolist()
        self.sizes = graph.value_bytes.tolist()
        self.producer: list[int] = graph.producer.tolist()
        #: Sources of recomputed values, value -> bytes; (elements of a row's results, of the rows)
        #: for those that contain a reduction of rows.
        self.sources: dict[int, dict[int, int]] = {}
        self.rows: dict[int, tuple[int, int]] = {}
        #: Cost of computing a node with everything recomputed for it, in bytes that memory moves in
        #: that time.
        self.own: list[float] = computing(graph).tolist()
        self.cost: dict[int, float] = {}

    def chosen(self) -> NDArray[np.bool_]:
        """The nodes."""
        role, found = self.role, np.zeros(len(self.graph), dtype=bool)
        for node in range(len(self.graph)):
            if self.transparent[node]:
                self._note(node)
            elif self.may[node] and (role[node] in CHAIN or self.reduced_rows(node)):
                found[node] = self._worth(node) or self._narrower(node, found)
        return self._needed(found)

    def _narrower(self, node: int, found: NDArray[np.bool_]) -> bool:
        """Whether all readers recompute a conversion whose narrower operand is written; if so, that
        is noted.
        """
        operands = self.operand[self.ptr[node] : self.ptr[node + 1]]
        maker = self.maker[self.ptr[node]] if len(operands) == 1 else -1
        if maker not in self.sources or not found[maker] or len(self.users[maker]) > 1:
            return False
        if self.sizes[operands[0]] >= self.sizes[self.first[node]] or maker in self.rows:
            return False
        kept = self.sources.pop(maker), self.cost.pop(maker)
        found[maker] = not self._worth(node)
        if found[maker]:
            self.sources[maker], self.cost[maker] = kept
        return not found[maker]

    def _worth(self, node: int) -> bool:
        """Whether to recompute a node; if so, its sources are noted."""
        sources, rows = self._made_of(node)
        users = self.users.get(node, [])
        if rows is not None:
            users = self.ends(node, rows)
        if not users or len(sources) > MAX_SOURCES or rows == _MIXED:
            return False
        if rows is not None and not all(self.along(user, rows) for user in users):
            return False
        if self.reduced_rows(node):
            if self._ends_in_one(node):
                self._note(node)
                return True
            if not (self._meets(node) or self._inside(node)):
                return False
        if rows is not None:
            self.rows[node] = rows
        if self._saved(node, sources, users) < 0:
            self.rows.pop(node, None)
            return False
        self._note(node)
        return True

    def _saved(self, node: int, sources: dict[int, int], users: list[int]) -> float:
        """Bytes that memory saves if all users recompute a node."""
        result = self.sizes[self.first[node]]
        alone = self._cost(node)
        saved: float = max(sum(sources.values()) + result, alone) + LAUNCH_BYTES
        # What only the node's own kernel reads is not written if that stays one kernel.
        if len(users) > 1:
            saved -= sum(2 * self.sizes[value] for value in sources if self._only_for(value, node))
        for user in users:
            known = self._known(user, node)
            theirs = sum(self.sizes[value] for value in known)
            if not self.may[user]:
                theirs += self.sizes[self.first[user]]
            part = self._taken(user, node)
            more = part * sum(size for value, size in sources.items() if value not in known)
            cost, mine = self._cost(user, node), alone * part * self._times(user, node)
            saved += max(theirs + part * result, cost) - max(theirs + more, cost + mine)
        return saved

    def _only_for(self, value: int, node: int) -> bool:
        """Whether all that is made from a source can become part of a node's kernel."""
        maker = self.producer[value]
        if maker < 0 or not self.may[maker] or self.role[maker] not in CHAIN:
            return False
        seen, ahead = {node, maker}, [maker]
        while ahead:
            users = self.users.get(ahead.pop(), [])
            new = [user for user in users if user not in seen]
            if not users or len(seen) > _NEAR or any(not self._joins(user, node) for user in new):
                return False
            seen.update(new)
            ahead += new
        return True

    def _joins(self, user: int, node: int) -> bool:
        return user < node and bool(self.may[user]) and self.role[user] in CHAIN

    def _cost(self, node: int, but: int = -1) -> float:
        """Cost of computing a node, with all operands but one recomputed where they are."""
        makers = {self.maker[entry] for entry in range(self.ptr[node], self.ptr[node + 1])}
        made = (maker for maker in makers - {but} if maker in self.cost)
        return self.own[node] + sum(self.cost[each] * self._times(node, each) for each in made)

    def _times(self, user: int, node: int) -> float:
        """How often a reader computes each element of a recomputed value: once along rows and where
        it updates a buffer, and a single number once per thread.
        """
        if node in self.rows or self.role[node] == Role.REDUCTION or self.made(node) == 1:
            return 1.0
        if self.role[user] == Role.UPDATE:
            return 1.0
        over = (
            self.first[user] if self.role[user] != Role.REDUCTION else self.operand[self.ptr[user]]
        )
        times: float = self.elements[self.types[over]] / max(self.made(node), 1)
        return max(1.0, times)

    def _meets(self, node: int) -> bool:
        """Whether the result of a reduction is read only together with its operand."""
        last, made = node, self.made(node)
        users = self.users.get(last, [])
        while len(users) == 1 and self.made(users[0]) == made:
            last = users[0]
            users = self.users.get(last, [])
        whole = self._made_of(node)[0].keys()
        return bool(users) and all(
            self.role[user] == Role.ELEMENTWISE
            and self.made(user) != made
            and whole & self._known(user, last)
            for user in users
        )

    def _inside(self, node: int) -> bool:
        """Whether a reduction's operand contains another one."""
        makers = (self.maker[entry] for entry in range(self.ptr[node], self.ptr[node + 1]))
        return any(maker in self.rows for maker in makers)

    def _ends_in_one(self, node: int) -> bool:
        """Whether everything made from a node ends in one kernel that contains reductions."""
        ends, seen, ahead, inside = set(), {node}, [node], False
        while ahead:
            for user in self.users.get(ahead.pop(), []):
                if user not in seen:
                    seen.add(user)
                    inside |= any(
                        self.maker[entry] in self.rows
                        for entry in range(self.ptr[user], self.ptr[user + 1])
                    )
                    if self.may[user]:
                        ahead.append(user)
                    else:
                        ends.add(user)
        return inside and len(ends) == 1

    def _note(self, node: int) -> None:
        """The sources of something that is recomputed anyway."""
        sources, rows = self._made_of(node)
        self.sources[node] = sources
        if rows is not None:
            self.rows[node] = rows
        self.cost[node] = self._cost(node)

    def _made_of(self, node: int) -> tuple[dict[int, int], tuple[int, int] | None]:
        """The sources of a node, and the rows that are reduced for it."""
        sources: dict[int, int] = {}
        rows: tuple[int, int] | None = None
        if self.role[node] == Role.REDUCTION:
            whole = self.elements[self.types[self.operand[self.ptr[node]]]]
            rows = (self.elements[self.types[self.first[node]]], whole)
        for entry in range(self.ptr[node], self.ptr[node + 1]):
            maker = self.maker[entry]
            if maker in self.sources:
                # A part of a value is made from an equally large part of its sources.
                part = self._part(node, entry)
                for value, size in self.sources[maker].items():
                    sources[value] = max(math.ceil(size * part), sources.get(value, 0))
                inner = self.rows.get(maker)
                if inner is not None:
                    rows = inner if rows in (None, inner) else _MIXED
            else:
                value = self.operand[entry]
                sources[value] = max(self.accessed[entry], sources.get(value, 0))
        return sources, rows

    def _part(self, node: int, entry: int) -> float:
        """The share of an operand that movement takes, a slice of it."""
        whole = self.sizes[self.operand[entry]]
        if self.role[node] != Role.MOVEMENT or not whole:
            return 1.0
        return float(min(self.accessed[entry] / whole, 1.0))

    def _taken(self, user: int, node: int) -> float:
        """The largest share of a node's result that a reader takes."""
        entries = range(self.ptr[user], self.ptr[user + 1])
        return max((self._part(user, at) for at in entries if self.maker[at] == node), default=1.0)

    def _known(self, user: int, but: int, depth: int = 0) -> set[int]:
        """Values that a reader reads in addition to those of one of its operands.

        Nodes after ``but`` are not decided yet: they count as recomputed.
        """
        known: set[int] = set()
        for entry in range(self.ptr[user], self.ptr[user + 1]):
            maker = self.maker[entry]
            if maker == but:
                continue
            if maker in self.sources:
                known |= self.sources[maker].keys()
            elif maker > but and self.may[maker] and depth < DEPTH:
                known |= self._known(maker, but, depth + 1)
            else:
                known.add(self.operand[entry])
        return known

    def _needed(self, found: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The nodes without those that only one kernel absorbs, which need not be computed
        twice.
        """
        chosen = found.tolist()
        for node in range(len(chosen) - 1, -1, -1):
            if chosen[node] and self.role[node] != Role.REDUCTION:
                users = self.users[node]
                chosen[node] = len(users) > 1 or chosen[users[0]]
        return np.array(chosen, dtype=bool)


#: Rows of two kinds in one chain: it is not recomputed.
_MIXED: Final = (-1, -1)
