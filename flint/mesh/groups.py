"""Symbolic groups: the ranks of one collective, without listing them.

The idea: the replica groups of real programs are almost always "all devices that differ only along
these mesh axes".  Such a partition of ``world`` ranks is a few (size, stride) pairs: a group's
members are ``base + sum(i * stride)``, in row-major order of the pairs.  This form covers mesh
axes, sub-axes and every reshape-transpose of an iota, needs a few bytes for a million ranks, and
two partitions are equal exactly when their canonical pairs are.  Only groups of another form keep a
table.

    >>> StridedGroups(512, ((64, 8),)).members(3)[:3]      # along "data" of a (64, 8) mesh
    array([ 3, 11, 19])
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.mesh.mesh import Mesh

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StridedGroups:
    """A partition of all ranks into groups of equal size, by (size, stride) pairs.

    Attributes:
        world: number of ranks.
        dims: (size, stride) pairs, outermost member dim first; no size-1 pairs, neighbours merged.
    """

    world: int
    dims: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Members per group."""
        return math.prod(size for size, _ in self.dims)

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.world // self.size

    def base(self, ranks: Ranks) -> Ranks:
        """The lowest member of each rank's group."""
        ranks = np.asarray(ranks, dtype=np.int64)
        base = ranks.copy()
        for size, stride in self.dims:
            base -= (ranks // stride % size) * stride
        return base

    def position(self, ranks: Ranks) -> Ranks:
        """Each rank's index within its group, in member order."""
        ranks = np.asarray(ranks, dtype=np.int64)
        position = np.zeros_like(ranks)
        for size, stride in self.dims:
            position = position * size + ranks // stride % size
        return position

    def number(self, ranks: Ranks) -> Ranks:
        """Index of each rank's group among all groups, ordered by lowest member."""
        base = self.base(ranks)
        number = np.zeros_like(base)
        for size, stride in self.complement().dims:
            number = number * size + base // stride % size
        return number

    def group_size(self, ranks: Ranks) -> Ranks:
        """Size of each rank's group."""
        return np.full(np.shape(ranks), self.size, dtype=np.int64)

    def offsets(self) -> Ranks:
        """Distances of the members from the lowest one, in member order, shape [size]."""
        offsets = np.zeros(1, dtype=np.int64)
        for size, stride in self.dims:
            offsets = (offsets[:, None] + np.arange(size) * stride).reshape(-1)
        return offsets

    def members(self, rank: int) -> Ranks:
        """The ranks of ``rank``'s group, in member order."""
        return int(self.base(np.array([rank]))[0]) + self.offsets()

    def table(self) -> Ranks:
        """All groups, ordered by lowest member, shape [count, size]."""
        return self.complement().offsets()[:, None] + self.offsets()[None, :]

    def complement(self) -> StridedGroups:
        """The partition along all dims that this one leaves out."""
        rest = []
        below = 1
        for size, stride in sorted(self.dims, key=lambda pair: pair[1]):
            if stride > below:
                rest.append((stride // below, below))
            below = stride * size
        if self.world > below:
            rest.append((self.world // below, below))
        return StridedGroups(self.world, canonical(reversed(rest)))


@dataclass(frozen=True, eq=False)
class TableGroups:
    """Groups that fit no strides, as a table.

    Attributes:
        world: number of ranks.
        rows: members of each group, shape [groups, longest], padded with -1.
    """

    world: int
    rows: Ranks

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TableGroups)
            and self.world == other.world
            and np.array_equal(self.rows, other.rows)
        )

    def __hash__(self) -> int:
        return hash((self.world, self.rows.shape, self.rows.tobytes()))

    @property
    def size(self) -> int:
        """Members of the largest group."""
        return int(self.rows.shape[1])

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.rows.shape[0])

    @cached_property
    def _place(self) -> tuple[Ranks, Ranks]:
        number = np.full(self.world, -1, dtype=np.int64)
        position = np.full(self.world, -1, dtype=np.int64)
        row, column = np.nonzero(self.rows >= 0)
        number[self.rows[row, column]] = row
        position[self.rows[row, column]] = column
        return number, position

    def number(self, ranks: Ranks) -> Ranks:
        """Index of each rank's group, -1 for a rank in none."""
        return self._place[0][ranks]

    def position(self, ranks: Ranks) -> Ranks:
        """Each rank's index within its group, -1 for a rank in none."""
        return self._place[1][ranks]

    def group_size(self, ranks: Ranks) -> Ranks:
        """Size of each rank's group, 0 for a rank in none."""
        # One size more, for number -1: a rank in none.
        sizes: Ranks = np.append((self.rows >= 0).sum(axis=1), 0)
        return sizes[self.number(ranks)]

    def members(self, rank: int) -> Ranks:
        """The ranks of ``rank``'s group, in member order (empty for a rank that is in none)."""
        number = int(self.number(np.array([rank]))[0])
        if number < 0:
            return np.zeros(0, dtype=np.int64)
        row = self.rows[number]
        members: Ranks = row[row >= 0]
        return members

    def table(self) -> Ranks:
        """All groups, shape [count, size], padded with -1."""
        return self.rows


Groups = StridedGroups | TableGroups


def canonical(dims: object) -> tuple[tuple[int, int], ...]:
    """Drop size-1 pairs and merge neighbours that form one stride."""
    merged: list[tuple[int, int]] = []
    for size, stride in dims:  # type: ignore[attr-defined]  # any iterable of pairs
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((int(size), int(stride)))
    return tuple(merged)


def everybody(world: int) -> StridedGroups:
    """One group of all ranks."""
    return StridedGroups(world, canonical([(world, 1)]))


def along_axes(mesh: Mesh, axes: tuple[str, ...]) -> StridedGroups:
    """Groups of the ranks that differ only along ``axes``, members ordered by the axes as given.

    Raises:
        FlintError: an axis that the mesh does not have.
    """
    place = dict(zip(mesh.axes, zip(mesh.shape, mesh.strides, strict=True), strict=True))
    missing = [axis for axis in axes if axis not in place]
    if missing:
        raise FlintError(f"mesh {mesh} has no axis {missing[0]!r}")
    return StridedGroups(mesh.size, canonical(place[axis] for axis in axes))


def from_iota(
    shape: tuple[int, int], reshape: tuple[int, ...], transpose: tuple[int, ...]
) -> Groups:
    """Groups from HLO's ``[groups, size] <= [reshape] T(transpose)``.

    The last dims of the transposed iota that multiply to ``size`` are the members; a dim across the
    boundary is split.

    Raises:
        FlintError: sizes that do not multiply to the same number of ranks.
    """
    world = math.prod(reshape)
    transpose = transpose or tuple(range(len(reshape)))
    if math.prod(shape) != world or sorted(transpose) != list(range(len(reshape))):
        raise FlintError(f"replica groups {shape} <= {reshape} T{transpose} do not fit together")
    strides = [math.prod(reshape[i + 1 :]) for i in range(len(reshape))]
    ordered = [(reshape[i], strides[i]) for i in transpose]
    left, members = shape[1], []
    for size, stride in reversed(ordered):
        if left == 1:
            break
        take = math.gcd(left, size)
        if take != min(left, size):
            rows = np.arange(world).reshape(reshape).transpose(transpose).reshape(shape)
            return from_table(world, rows)
        members.append((take, stride))
        left //= take
    return StridedGroups(world, canonical(reversed(members)))


def from_table(world: int, rows: Ranks) -> Groups:
    """Groups from a dense table, interned as strides if they fit.

    Args:
        world: number of ranks.
        rows: shape [groups, longest], ragged rows padded with -1.

    Raises:
        FlintError: a rank outside the world or in two groups.
    """
    rows = np.asarray(rows, dtype=np.int64)
    listed = rows[rows >= 0]
    if listed.size and int(listed.max()) >= world:
        raise FlintError(f"a replica group names device {int(listed.max())} of {world}")
    if np.bincount(listed, minlength=1).max(initial=0) > 1:
        twice = int(np.argmax(np.bincount(listed) > 1))
        raise FlintError(f"device {twice} is in more than one replica group")
    dims = _strides_of(rows[0]) if rows.size == world and listed.size == world else None
    if dims is not None and _fits(world, dims):
        groups = StridedGroups(world, dims)
        ordered = rows[np.argsort(rows.min(axis=1))]
        if np.array_equal(groups.table(), ordered):
            return groups
    return TableGroups(world, rows)


def _strides_of(row: Ranks) -> tuple[tuple[int, int], ...] | None:
    """(size, stride) pairs that produce ``row`` from its first element, or None."""
    offsets = row - row[0]
    dims: list[tuple[int, int]] = []
    while offsets.size > 1:
        stride = int(offsets[1])
        if stride <= 0:
            return None
        steps = np.arange(offsets.size) * stride
        run = int(np.argmin(offsets == steps)) if not np.array_equal(offsets, steps) else 0
        size = run or offsets.size
        if offsets.size % size:
            return None
        dims.append((size, stride))
        offsets = offsets[::size]
    return canonical(reversed(dims))


def _fits(world: int, dims: tuple[tuple[int, int], ...]) -> bool:
    below = 1
    for size, stride in sorted(dims, key=lambda pair: pair[1]):
        if stride % below:
            return False
        below = stride * size
    return world % below == 0
