"""What differs between the ranks of a program: their peers, as functions of the rank.

The idea: a rank's trace depends on its number only through a few quantities (its target in a
permutation, its parent in a broadcast tree, the id of its group).  Each is a small symbolic object
that is evaluated for all ranks at once; only these columns distinguish ranks.

    Peer("target", ring).values(np.arange(8))        # [1 2 3 4 5 6 7 0]

Broadcasts run down a binomial tree over positions in the group (position 0 is the root): the member
at position p passes the data on to p + 1, p + 2, p + 4 ... above its own highest bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flint.graph.graph import Ints
from flint.mesh.groups import Groups, StridedGroups
from flint.mesh.permutation import Permutation

#: The shapes that ``shape_of_exchange`` distinguishes.
NO_PEER, SENDS, RECEIVES, EXCHANGES, KEEPS = range(5)


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer as a function of the rank.

    Attributes:
        role: the rank itself, its target, its source, or its parent or a child in the broadcast
            tree of its group.
        of: the permutation or groups in question; None for ``own``.
        child: number of the child.
    """

    role: Literal["own", "target", "source", "parent", "child"]
    of: Permutation | Groups | None = None
    child: int = 0

    def values(self, ranks: Ints) -> Ints:
        """The peer of each rank, -1 for none."""
        if isinstance(self.of, Permutation):
            return (self.of.target if self.role == "target" else self.of.source)[ranks]
        if self.of is None:
            return ranks
        place = self.of.position(ranks)
        if self.role == "parent":
            return _member(self.of, ranks, np.where(place > 0, place - _highest_bit(place), -1))
        step = np.maximum(2 * _highest_bit(place), 1) << self.child
        other = place + step
        return _member(self.of, ranks, np.where(other < self.of.group_size(ranks), other, -1))


def shape_of_exchange(permutation: Permutation, ranks: Ints) -> Ints:
    """NO_PEER, SENDS, RECEIVES, EXCHANGES or KEEPS (sends to itself) for each rank."""
    target, source = permutation.target[ranks], permutation.source[ranks]
    return np.where(target == ranks, KEEPS, (target >= 0) * SENDS + (source >= 0) * RECEIVES)


def children_in_tree(groups: Groups, ranks: Ints) -> Ints:
    """How many members each rank passes a broadcast on to, -1 for a rank that is in no group."""
    place, size = groups.position(ranks), groups.group_size(ranks)
    count = np.zeros_like(place)
    step = np.maximum(2 * _highest_bit(place), 1)
    while bool((place + step < size).any()):
        count += place + step < size
        step = step * 2
    return np.where(place < 0, -1, count)


def combine(columns: Iterable[Ints], count: int) -> tuple[Ints, Ints]:
    """Distinguish rows by all columns.

    Args:
        columns: numbers per row, -1 and above.
        count: number of rows.

    Returns:
        The class of each row, classes numbered by their first row; and those first rows.
    """
    code = np.zeros(count, np.int64)
    classes = 1
    for column in columns:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        code = code * span + (column - low)
        # Renumbering keeps the product of spans far from overflow.
        if classes * span <= 4 * count + 1024:
            used = np.bincount(code, minlength=classes * span) > 0
            number = np.cumsum(used) - 1
            code, classes = number[code], int(used.sum())
        else:
            values, code = np.unique(code, return_inverse=True)
            classes = len(values)
    first = np.full(classes, count, np.int64)
    np.minimum.at(first, code, np.arange(count)) if classes > 1 else first.fill(0)
    order = np.argsort(first)
    rank_of = np.empty(classes, np.int64)
    rank_of[order] = np.arange(classes)
    return rank_of[code], first[order]


def _highest_bit(values: Ints) -> Ints:
    """The highest power of two in each value, 0 for values below 1."""
    bits = np.searchsorted(1 << np.arange(40, dtype=np.int64), values, side="right")
    return np.where(values > 0, np.int64(1) << np.maximum(bits - 1, 0), 0)


def _member(groups: Groups, ranks: Ints, position: Ints) -> Ints:
    """The member at ``position`` of each rank's group, -1 where the position is -1."""
    if isinstance(groups, StridedGroups):
        found = groups.base(ranks) + groups.offsets()[np.maximum(position, 0)]
    else:
        number = groups.number(ranks)
        found = groups.rows[np.maximum(number, 0), np.maximum(position, 0)]
    return np.where(position >= 0, found, -1)
