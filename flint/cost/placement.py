"""Placement: where the members of a group are in the network.

The idea: ranks fill the network in order, so blocks of consecutive ranks are nodes, racks and pods.
Only counts of a group matter: how many members share a block, how many blocks there are, and in a
torus how far the members reach along each of its dims.  Groups with the same counts cost the same.
In a torus or a full mesh of nodes, the links of a node's devices work in parallel.

    placement = place(StridedGroups(512, ((64, 8),)), load_system("dgx-h100"))
    placement.profiles[0]      # 1 member per node, 64 nodes
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import System, Tier
from flint.graph.distinct import distinct
from flint.graph.graph import Ints
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation

#: Up to this many ranks along a dim of a torus, slabs of every width are tried.
_SHORT: Final = 32


@dataclass(frozen=True, slots=True)
class TierUse:
    """One level of a hierarchy: a number of parties that meet on one tier.

    Attributes:
        tier: the tier that they meet on.
        parties: number of parties; above 1.
        members: ranks of the group in each party; the fewest, if parties differ.
        reached: ranks of the group that meet; the most, if there are several such meetings.
        lanes: how many times the tier's bandwidth each rank can use.
        reach: for a torus, (parties, hops between neighbours, whole ring) along each dim in use.
        cuts: for a torus, the part of a buffer that each link of the busiest cut carries: if all
            groups gather, and if all groups exchange data all-to-all.
    """

    tier: Tier
    parties: int
    members: int
    reached: int
    lanes: float = 1.0
    reach: tuple[tuple[int, int, bool], ...] = ()
    cuts: tuple[float, float] = (0.0, 0.0)

    @property
    def bandwidth(self) -> float:
        """Bytes per second that each rank can send."""
        return self.tier.rate * self.lanes

    @property
    def share(self) -> float:
        """The share of the data of all meeting ranks that the smallest party lacks."""
        return (self.reached - self.members) / self.reached


Profile = tuple[TierUse, ...]
"""The levels of a group, innermost first."""


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Where groups are.

    Attributes:
        profiles: the distinct profiles.
        number: profile of each rank's group, -1 for ranks in none, shape [world].
    """

    profiles: tuple[Profile, ...]
    number: Ints


def place(groups: Groups, system: System) -> Placement:
    """Where the groups are."""
    table = np.sort(groups.table(), axis=1)
    columns: list[Ints] = []
    inner = 1
    cuts: dict[Tier, tuple[float, float]] = {}
    for tier in system.network:
        columns += _counts(table, inner, tier.size)
        if tier.topology == "Ring":
            columns += _reaches(table, tier, groups.world, inner)
            cuts[tier] = _cuts(table, tier, groups.world, inner)
        inner = tier.size
    key = np.stack(columns, axis=1)
    _, first, of_group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    profiles = tuple(
        tuple(
            replace(level, cuts=cuts.get(level.tier, level.cuts))
            for level in _profile(table[row], system, groups.world)
        )
        for row in first.tolist()
    )
    ranks = np.arange(groups.world, dtype=np.int64)
    number = groups.number(ranks)
    found = np.where(number >= 0, of_group.reshape(-1)[np.maximum(number, 0)], -1)
    return Placement(profiles, found)


def torus(tier: Tier, world: int, inner: int = 1) -> tuple[int, ...]:
    """The torus that ``world`` ranks get: as near to a cube as their number allows.

    Ranks run along its last dim first.

    Args:
        tier: a tier with topology Ring.
        world: number of ranks.
        inner: size of the tier below, which is the number of devices per place of the torus; 1 if
            there is no tier below.
    """
    left = -(-(min(world, tier.size) if tier.size else world) // inner)
    shape = []
    for dims in range(tier.rings, 0, -1):
        side = round(left ** (1 / dims))
        while left % side:
            side -= 1
        shape.append(side)
        left //= side
    return tuple(sorted(shape))


def hops(permutation: Permutation, system: System) -> tuple[Ints, list[tuple[Tier, int]]]:
    """The path from each rank to its target.

    Returns:
        The number of each rank's path (-1 for none), and for each path its tier and number of
        links. A full mesh of nodes has the size of a full mesh with one device per node.
    """
    ranks = np.arange(permutation.world, dtype=np.int64)
    target = permutation.target
    sends = (target >= 0) & (target != ranks)
    tier_of = np.full(len(ranks), -1, np.int64)
    links = np.ones(len(ranks), np.int64)
    tiers = list(system.network)
    for index in range(len(tiers) - 1, -1, -1):
        tier = system.network[index]
        inner = system.network[index - 1].size if index else 1
        if tier.topology == "FullyConnected":
            tiers[index] = replace(tier, size=-(-tier.size // inner))
        near = sends if tier.size == 0 else sends & (ranks // tier.size == target // tier.size)
        tier_of[near] = index
        links[near] = 1
        if tier.topology == "Ring":
            shape = torus(tier, permutation.world, inner)
            total = np.zeros(len(ranks), np.int64)
            here, there = (_coordinates(side // inner, shape) for side in (ranks, target))
            for a, b, side in zip(here, there, shape, strict=True):
                apart = np.abs(a - b)
                total += apart if side % tier.closed else np.minimum(apart, side - apart)
            links[near] = np.maximum(total, 1)[near]
    key = np.where(tier_of >= 0, tier_of * (len(ranks) + 1) + links, -1)
    ways = distinct(key[key >= 0])
    number = np.where(key >= 0, np.searchsorted(ways, key), -1)
    span = len(ranks) + 1
    return number, [(tiers[way // span], way % span) for way in ways.tolist()]


def _counts(table: Ints, inner: int, size: int) -> list[Ints]:
    """How each group uses a tier, three arrays of shape [groups].

    Args:
        table: members of each group, ascending, -1 in front of those of a smaller group.
        inner: size of the tier below.
        size: size of the tier; 0 for any number.

    Returns:
        The most parties that meet on it, the fewest members that one of them has and the most
        members that meet.
    """
    present = table >= 0
    outer = table // size if size else np.zeros_like(table)
    party_starts = present & _fresh(np.where(present, table // inner, -1))
    meeting_starts = present & _fresh(np.where(present, outer, -1))
    number = np.cumsum(party_starts, axis=1)
    before = np.maximum.accumulate(np.where(meeting_starts, number - 1, 0), axis=1)
    parties = np.where(present, number - before, 0).max(axis=1)
    fewest = _lengths(party_starts, present, np.minimum, np.iinfo(np.int64).max)
    return [parties, fewest, _lengths(meeting_starts, present, np.maximum, 0)]


def _fresh(block: Ints) -> NDArray[np.bool_]:
    """Where each row's block differs from the previous one."""
    fresh = np.ones(block.shape, np.bool_)
    fresh[:, 1:] = block[:, 1:] != block[:, :-1]
    return fresh


def _lengths(
    starts: NDArray[np.bool_], present: NDArray[np.bool_], extreme: np.ufunc, start: int
) -> Ints:
    """The longest, or shortest, run that begins at ``starts`` in each row."""
    at = np.arange(starts.shape[1])
    inside = at - np.maximum.accumulate(np.where(starts, at, 0), axis=1)
    ends = present.copy()
    ends[:, :-1] &= starts[:, 1:]
    found: Ints = extreme.reduce(np.where(ends, inside + 1, start), axis=1)
    return found


def _reaches(table: Ints, tier: Tier, world: int, inner: int) -> list[Ints]:
    """Distinct coordinates and spacing of each group along each dim of the torus."""
    columns = []
    for coordinate in _coordinates(table // inner, torus(tier, world, inner)):
        sorted_ = np.sort(np.where(table >= 0, coordinate, -1), axis=1)
        step = np.diff(sorted_, axis=1, prepend=-1)
        fresh = (sorted_ >= 0) & (step > 0)
        fresh[:, 0] = sorted_[:, 0] >= 0
        columns.append(fresh.sum(axis=1))
        spacing = np.where(fresh[:, 1:] & (sorted_[:, :-1] >= 0), step[:, 1:], 1 << 40)
        columns.append(spacing.min(axis=1, initial=1 << 40))
    return columns


def _cuts(table: Ints, tier: Tier, world: int, inner: int) -> tuple[float, float]:
    """The part of a buffer that each link of a torus' busiest cut carries (see ``TierUse.cuts``).

    A slab of the torus with i of a group's n members receives (n - i)/n of a buffer that the group
    gathers, or i (n - i)/n of a buffer that each of them exchanges, over the links at its two
    faces. Slabs of every width are tried at every place; for long dims, a half, a third and a
    quarter of them.
    """
    shape = torus(tier, world, inner)
    ranks = math.prod(shape) * inner
    here = (table >= 0) & (table < ranks)  # one pod: the others are like it
    met = here.any(axis=1)
    table, here = table[met], here[met]
    members = here.sum(axis=1)
    group = np.nonzero(here)[0]
    gathers = exchanges = 0.0
    for coordinate, side in zip(_coordinates(table[here] // inner, shape), shape, strict=True):
        if side < 2:
            continue
        closed = side > 2 and side % tier.closed == 0
        along = np.bincount(group * side + coordinate, minlength=len(table) * side)
        # Members up to each plane, going around twice.
        upto = np.cumsum(np.tile(along.reshape(-1, side), 2), axis=1)
        upto = np.concatenate([np.zeros((len(table), 1), np.int64), upto], axis=1)
        few = range(1, side) if side <= _SHORT else (side // 2, side // 3, side // 4)
        for width in few:
            places = np.arange(side if closed else side - width + 1)
            faces = 2 if closed else np.add(places > 0, places + width < side, dtype=np.int64)
            inside = upto[:, places + width] - upto[:, places]
            both = (inside > 0) & (inside < members[:, None])
            part = np.where(both, (members[:, None] - inside) / np.maximum(members, 1)[:, None], 0)
            links = faces * (ranks // side)
            gathers = max(gathers, float((part.sum(axis=0) / links).max()))
            exchanges = max(exchanges, float(((inside * part).sum(axis=0) / links).max()))
    return gathers, exchanges


def _coordinates(ranks: Ints, shape: tuple[int, ...]) -> list[Ints]:
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return [ranks // stride % side for side, stride in zip(shape, strides, strict=True)]


def _profile(row: Ints, system: System, world: int) -> Profile:
    members = row[row >= 0]
    levels: list[TierUse] = []
    inner = 1
    for tier in system.network:
        counts = _counts(members[None], inner, tier.size)
        parties, fewest, reached = (int(column[0]) for column in counts)
        below, inner = inner, tier.size
        if parties > 1:
            levels.append(_level(TierUse(tier, parties, fewest, reached), members, world, below))
    return tuple(levels)


def _level(level: TierUse, members: Ints, world: int, inner: int) -> TierUse:
    """A level with the links that its tier's topology gives it."""
    tier = level.tier
    if tier.topology == "FullyConnected":
        return replace(level, lanes=(level.parties - 1) / (-(-tier.size // inner) - 1))
    if tier.topology != "Ring":
        return level
    shape = torus(tier, world, inner)
    block = members // tier.size if tier.size else np.zeros_like(members)
    mine = members[block == block[0]]
    reach = []
    for coordinate, side in zip(_coordinates(mine // inner, shape), shape, strict=True):
        places = distinct(coordinate)
        if len(places) > 1:
            spacing = int(np.diff(places).min())
            whole = len(places) * spacing == side and side > 2 and side % tier.closed == 0
            reach.append((len(places), spacing, whole))
    # A ring has two directions; a piece of a ring has ends that only one link leads to. Neighbours
    # several hops apart share each link with the groups between them.
    lanes = sum((2 if whole else 1) / spacing for _, spacing, whole in reach)
    return replace(level, lanes=max(lanes, 1 / world), reach=tuple(reach))
