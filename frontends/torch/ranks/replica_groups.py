"""Replica groups of the whole world from one rank's group, and pairs from one rank's message.

The idea: a program is written for one rank, but its module is every rank's.  A group whose members
vary along whole mesh axes has a translate for each place along the other axes.  A group that is
part of an axis is taken to be one of the equal parts that tile it; if it cannot tile, ranks outside
its translates are alone.

    full_groups((0, 1), (2, 2))    # [[0, 1], [2, 3]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError

Table = NDArray[np.int64]


def full_groups(ranks: Sequence[int], shape: Sequence[int]) -> Table:
    """Every rank's group, given one.

    Args:
        ranks: one group's global ranks, in its own order.
        shape: of the mesh; ranks are row-major.

    Returns:
        int64 [groups, members]; rows of lone ranks are filled with -1.

    Raises:
        FlintError: a rank outside the mesh, or twice in the group.
    """
    world = math.prod(shape)
    members = np.array(ranks, np.int64)
    if len(set(ranks)) != len(members) or not len(members):
        raise FlintError(f"a process group with repeated or no ranks: {list(ranks)[:8]}")
    if members.min() < 0 or members.max() >= world:
        raise FlintError(f"process group {list(ranks)[:8]} has ranks outside 0 to {world - 1}")
    own = np.stack(np.unravel_index(members, tuple(shape)))
    present = [np.unique(row) for row in own]
    box = math.prod(map(len, present)) == len(members)
    shifts = [
        # For a group that is not a box of the mesh only shifts along other axes are known.
        _shifts(values, size) if box or len(values) == 1 else np.zeros(1, np.int64)
        for values, size in zip(present, shape, strict=True)
    ]
    places = own[:, None, :] + _product(shifts)[:, :, None]
    table = np.ravel_multi_index(tuple(places), tuple(shape)).astype(np.int64)
    return _with_lone(table, world)


def _shifts(values: Table, size: int) -> Table:
    """The shifts of positions along an axis to their translates, which do not overlap.

    The positions are decomposed into nested strides (0 1 4 5: two of 1, two of 4); if these tile
    the axis, every tile's start is a shift, otherwise only the positions' own.
    """
    digits: list[tuple[int, int]] = []
    rest = values - values[0]
    while len(rest) > 1:
        step = int(rest[1])
        breaks = np.flatnonzero(np.diff(rest) != step)
        count = int(breaks[0]) + 1 if len(breaks) else len(rest)
        inner, outer = rest[:count], rest[::count]
        if len(inner) * len(outer) != len(rest):
            return np.zeros(1, np.int64)
        if (np.add.outer(outer, inner).reshape(-1) != rest).any():
            return np.zeros(1, np.int64)
        digits.append((step, count))
        rest = outer
    place = np.arange(size)
    begins = np.ones(size, bool)
    block = 1
    for step, count in digits:
        if step % block:
            return np.zeros(1, np.int64)
        block = step * count
        begins &= place // step % count == 0
    if size % block or not begins[values[0]]:
        return np.zeros(1, np.int64)
    found: Table = np.flatnonzero(begins) - values[0]
    return found


def _product(items: list[Table]) -> Table:
    """Every combination, [axes, combinations]."""
    return np.stack([item.reshape(-1) for item in np.meshgrid(*items, indexing="ij")])


def _with_lone(table: Table, world: int) -> Table:
    """The groups, and a separate row for every rank that is in none."""
    seen = np.zeros(world, bool)
    seen[table.reshape(-1)] = True
    lone = np.flatnonzero(~seen)
    if not len(lone):
        return table[np.argsort(table.min(1), kind="stable")]
    rows = np.full((len(lone), table.shape[1]), -1, np.int64)
    rows[:, 0] = lone
    return np.concatenate([table[np.argsort(table.min(1), kind="stable")], rows])


def evenly(table: Table) -> Table | None:
    """Groups with the lone ranks combined, in order, into groups as large as the others.

    Args:
        table: as ``full_groups`` returns it.

    Returns:
        int64 [groups, members] without -1; None if the lone ranks do not divide.
    """
    lone = table[:, -1] < 0 if table.shape[1] > 1 else np.zeros(len(table), bool)
    if int(lone.sum()) % table.shape[1]:
        return None
    return np.concatenate([table[~lone], table[lone, 0].reshape(-1, table.shape[1])])


def full_pairs(source: int, target: int, shape: Sequence[int]) -> Table:
    """A message and its translates along the mesh axes that it does not cross, int64 [pairs, 2].

    Raises:
        FlintError: a rank outside the mesh.
    """
    world = math.prod(shape)
    if not (0 <= source < world and 0 <= target < world):
        raise FlintError(f"a message from rank {source} to {target} in a world of {world}")
    places: Any = np.stack(np.unravel_index(np.array([source, target]), tuple(shape)))
    starts = [
        np.arange(size) if row[0] == row[1] else row[:1]
        for row, size in zip(places, shape, strict=True)
    ]
    from_ = _product(starts)
    to = from_ + (places[:, 1] - places[:, 0])[:, None]
    ends = [np.ravel_multi_index(tuple(item), tuple(shape)) for item in (from_, to)]
    return np.stack(ends, axis=1).astype(np.int64)
