"""Groups of collectives that no trace names, from several ranks' traces together.

The idea: members of a communicator run the same collectives on it in the same order, none leaves
one before the last has arrived (a broadcast before its sender has), and all leave at nearly the
same time.  So the sequence that a rank
runs on one stream (on a host: of one kind and size) is searched for in the other ranks' traces.
Among the groups that the traces list, or the rows of a regular grid if they list none, the largest
whose members' times overlap in every collective is taken, unless the members of a smaller one leave
much closer together.  If several are equally good, none is taken.

    groups = groups_across({0: [Ungrouped(...)], 1: [Ungrouped(...)]}, known, world=8)
    groups[0][17]       # ranks of unit 17 of rank 0
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.mesh.ragged import Ints

Group: TypeAlias = tuple[int, ...]
#: Possible error of times on one machine, in nanoseconds: profilers fit devices' clocks to hosts'.
BLUR = 20_000
#: Spreads below this many nanoseconds count as equal.
_SHARP = 5_000
#: How much closer together the members of a group must leave than those of another of equal size.
_CLEARLY = 2
#: How much closer than those of a larger group, corrected for their number.
_MUCH = 3
#: Number of collectives needed to infer the difference of two clocks, and to prefer a group over
#: others that are parts of it: that many do not overlap by chance.
ENOUGH = 4
#: Kinds that a member may leave before others arrive: who sends does not wait for who receives.
_LEFT_EARLY = frozenset({"collective_broadcast", "broadcast"})
#: The most ranks for which grids are tried.
_MOST = 1 << 16


class Ungrouped(NamedTuple):
    """A collective whose group its own trace does not record.

    Attributes:
        unit: its number in its rank's step.
        kind: StableHLO op name.
        size: bytes that each member contributes; -1 if unknown or not equal.
        members: number of ranks in the group; -1 if unknown.
        lane: the stream; -1 on a host.
        start, end: nanoseconds; the end is -1 if unknown.
        root: for a broadcast, the sender's position in the group; -1 if unknown, or no broadcast.
    """

    unit: int
    kind: str
    size: int
    members: int
    lane: int
    start: int
    end: int
    root: int = -1


#: Properties that are equal on all members: number of members, kinds, sizes and roots, and the
#: number of such runs before.
_Key: TypeAlias = tuple[int, tuple[tuple[str, int, int], ...], int]


class _Run(NamedTuple):
    """Collectives of one rank that share a group, in order."""

    units: list[int]
    start: Ints
    end: Ints
    root: Ints  # of a broadcast, the sender's position in the group; else -1


def groups_across(
    ranks: Mapping[int, Sequence[Ungrouped]],
    known: Mapping[int, frozenset[Group]],
    world: int | None,
) -> dict[int, dict[int, Group]]:
    """Groups by rank and unit, for the collectives whose group can be inferred.

    Args:
        ranks: for each traced rank, its collectives without a group, in order of issue.
        known: for each traced rank, the groups of two or more that it is known to be in.
        world: number of ranks of the run.
    """
    found: dict[int, dict[int, Group]] = {rank: {} for rank in ranks}
    alike: dict[_Key, dict[int, _Run]] = defaultdict(dict)
    for rank, items in ranks.items():
        for key, run in _runs(items):
            alike[key][rank] = run
    for (members, what, _), runs in alike.items():
        waits = np.array([kind not in _LEFT_EARLY for kind, _, _ in what], np.bool_)
        about = members, waits, set(ranks), known, world
        chosen = _Choice(runs, *about).groups()
        if not chosen and len(runs) > 1:  # perhaps on machines with different clocks
            chosen = _Choice(_on_one_clock(runs), *about).groups()
        for rank, group in chosen.items():
            found[rank].update(dict.fromkeys(runs[rank].units, group))
    return found


def _runs(items: Sequence[Ungrouped]) -> Iterator[tuple[_Key, _Run]]:
    """Runs of one rank, by the properties that are equal on all members."""
    lanes: dict[tuple[int, int, str, int, int], list[Ungrouped]] = defaultdict(list)
    for item in items:
        by = ("", -1, -1) if item.lane >= 0 else (item.kind, item.size, item.root)
        lanes[(item.members, item.lane, *by)].append(item)
    counts: dict[object, int] = defaultdict(int)
    for (members, *_), lane in lanes.items():
        what = tuple((item.kind, item.size, item.root) for item in lane)
        counts[members, what] += 1
        yield (
            (members, what, counts[members, what]),
            _Run(
                [item.unit for item in lane],
                np.array([item.start for item in lane], np.int64),
                np.array([item.end for item in lane], np.int64),
                np.array([item.root for item in lane], np.int64),
            ),
        )


def _on_one_clock(runs: Mapping[int, _Run]) -> dict[int, _Run]:
    """The runs by the clock of the lowest rank, if members leave a collective together."""
    first = runs[min(runs)]
    if len(first.units) < ENOUGH:
        return {}
    ahead = {rank: int(np.median(run.end - first.end)) for rank, run in runs.items()}
    return {
        rank: run._replace(start=run.start - ahead[rank], end=run.end - ahead[rank])
        for rank, run in runs.items()
    }


@dataclass(frozen=True, slots=True)
class _Choice:
    """Search for the group in which some ranks run the same collectives.

    Attributes:
        runs: the runs of each of these ranks.
        members: number of ranks in each group; -1 if unknown.
        waits: of each collective, whether no member leaves it before all have arrived.
        traced, known, world: as for ``groups_across``.
    """

    runs: Mapping[int, _Run]
    members: int
    waits: NDArray[np.bool_]
    traced: Set[int]
    known: Mapping[int, frozenset[Group]]
    world: int | None

    def groups(self) -> dict[int, Group]:
        """The group of each rank; {} if nothing fits, or several groups fit equally well."""
        if len(self.runs) < 2:
            return {}
        listed = {rank: self.known.get(rank, frozenset()) for rank in self.runs}
        if any(listed.values()):
            own = {rank: self._best([(group,) for group in some]) for rank, some in listed.items()}
            found = {rank: choice[0] for rank, choice in own.items() if choice is not None}
            # All traced members must have found the same group.
            return {
                rank: group
                for rank, group in found.items()
                if all(found.get(other) == group for other in group if other in self.traced)
            }
        rows = self._best(list(_grids(self.members, self.world)))
        return {rank: row for row in rows or () for rank in row if rank in self.runs}

    def _best(self, candidates: Sequence[tuple[Group, ...]]) -> tuple[Group, ...] | None:
        """The candidate whose members meet, and leave together.

        The largest groups are taken unless smaller ones leave so much closer together that the
        others coincide only roughly in time.  A few collectives are not enough.
        """
        fitting: dict[int, list[tuple[float, tuple[Group, ...]]]] = defaultdict(list)
        for groups in candidates:
            size = len(groups[0])
            least = 1 + max(run.root.max() for run in self.runs.values())
            if size >= least and (self.members < 0 or size == self.members):
                apart = self._apart(groups)
                if apart is not None:
                    fitting[size].append((apart, groups))
        if not self.waits.any():  # that nothing contradicts a group says little
            fits = [groups for same in fitting.values() for _, groups in same]
            return fits[0] if len(fits) == 1 else None
        if len(fitting) > 1 and min(len(run.units) for run in self.runs.values()) < ENOUGH:
            return None
        found: tuple[float, tuple[Group, ...]] | None = None
        for _, same in sorted(fitting.items(), reverse=True):
            (least, best), *others = sorted(same)
            if found is not None and not 0 <= least * _MUCH < found[0]:
                continue
            if least < 0 or (others and others[0][0] < _CLEARLY * max(least, 1.0)):
                return None
            found = least, best
        return None if found is None else found[1]

    def _apart(self, groups: tuple[Group, ...]) -> float | None:
        """Spread of the times when members leave, in nanoseconds, as a median of standard
        deviations.

        Returns:
            -1 if a rank has no traced partner; None if a partner ran something else, one left a
            collective before another arrived, or no times are known.
        """
        found: list[NDArray[np.float64]] = []
        alone = False
        for group in groups:
            traced = [rank for rank in group if rank in self.traced]
            here = [self.runs[rank] for rank in traced if rank in self.runs]
            if not here:
                continue
            if len(here) < len(traced):
                return None
            alone |= len(here) == 1
            starts = np.array([run.start for run in here])
            ends = np.array([run.end for run in here])
            known = (ends >= 0).all(axis=0)
            if any(self._early(group, rank) for rank in traced):
                return None
            known &= self.waits
            if (starts.max(axis=0) > ends.min(axis=0) + BLUR)[known].any():
                return None
            spread = (ends.max(axis=0) - ends.min(axis=0))[known]
            found.append(np.maximum(spread, _SHARP) / _expected_range(len(here)))
        if not self.waits.any():
            return 0.0
        times = np.concatenate([*found, np.zeros(0)])
        if alone:
            return -1.0
        return float(np.median(times)) if len(times) else None

    def _early(self, group: Group, rank: int) -> bool:
        """Whether a rank left a broadcast before the sender began it."""
        run = self.runs[rank]
        early = False
        for place in np.unique(run.root[run.root >= 0]).tolist():
            sender = self.runs.get(group[place])
            if sender is not None:
                sent = (run.root == place) & (run.end >= 0)
                early |= bool((run.end + BLUR < sender.start)[sent].any())
        return early


def _expected_range(count: int) -> float:
    """Expected distance between the first and the last of n normal values, in standard deviations.

    1.13 of two, 2.06 of four, 2.85 of eight, 4.74 of 64 (the d2 of quality control), within 4%.
    """
    return 3.0 * math.sqrt(math.log(count)) - 1.4


def _grids(members: int, world: int | None) -> Iterator[tuple[Group, ...]]:
    """All divisions of the ranks into evenly spaced groups, the largest groups first."""
    if world is None or world > _MOST:
        return
    for size in range(world, 1, -1):
        if world % size or (members >= 0 and size != members):
            continue
        for stride in range(1, world // size + 1):
            if world % (size * stride) == 0:
                yield tuple(
                    tuple(range(base + low, base + low + size * stride, stride))
                    for base in range(0, world, size * stride)
                    for low in range(stride)
                )


def rows_of_grids(rank: int, world: int) -> Iterator[Group]:
    """A rank's row of each division of the ranks into evenly spaced groups of two and more."""
    sizes = [size for size in range(2, world + 1) if world % size == 0] if world <= _MOST else []
    for size in sizes:
        for stride in range(1, world // size + 1):
            if world % (size * stride) == 0:
                low = rank - rank // stride % size * stride
                yield tuple(range(low, low + size * stride, stride))
