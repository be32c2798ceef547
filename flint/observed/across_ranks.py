"""Groups of collectives that no trace names, from several ranks' traces together.

The idea: members of a communicator run the same collectives on it in the same order, none leaves
one before the last has come, and all leave nearly together.  So what a rank runs one after another
on one stream (on a host: of one kind and size) is looked for in the other ranks' traces.  Of the
groups that the traces list, or of the rows of a regular grid where they list none, the largest is
taken whose members' times overlap in every collective, unless those of a smaller one leave much
closer together.  Where several are as good, none is taken.

    groups = groups_across({0: [Untold(...)], 1: [Untold(...)]}, known, world=8)
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
#: Nanoseconds by which times of one machine may be wrong: profilers fit devices' clocks to hosts'.
BLUR = 20_000
#: Nanoseconds below which no spread is closer than another.
_SHARP = 5_000
#: So much closer together must the members of a group leave than those of another as large.
_CLEARLY = 2
#: So much closer than those of a larger group, as far as that is not a matter of their number.
_MUCH = 3
#: Collectives from which the difference of two clocks is concluded, and the size of a group of
#: which others that fit are parts: so many overlap by chance nowhere.
ENOUGH = 4
#: More ranks than grids are tried for.
_MOST = 1 << 16


class Untold(NamedTuple):
    """A collective whose group its own trace does not tell.

    Attributes:
        unit: its number in its rank's step.
        kind: StableHLO op name.
        size: bytes that each member puts in; -1 unknown, or not the same on all.
        members: ranks in the group; -1 unknown.
        lane: the stream; -1 on a host.
        start, end: nanoseconds; the end is -1 where it is not known.
    """

    unit: int
    kind: str
    size: int
    members: int
    lane: int
    start: int
    end: int


#: What is the same on all members: number of members, kinds and sizes, the how many-th such run.
_Key: TypeAlias = tuple[int, tuple[tuple[str, int], ...], int]


class _Run(NamedTuple):
    """Collectives of one rank that share a group, in order."""

    units: list[int]
    start: Ints
    end: Ints


def groups_across(
    ranks: Mapping[int, Sequence[Untold]], known: Mapping[int, frozenset[Group]], world: int | None
) -> dict[int, dict[int, Group]]:
    """Groups by rank and unit, of those collectives whose group follows.

    Args:
        ranks: of each traced rank its collectives without a group, in order of issue.
        known: of each traced rank the groups of two and more that it is known to be in.
        world: number of ranks of the run.
    """
    found: dict[int, dict[int, Group]] = {rank: {} for rank in ranks}
    alike: dict[_Key, dict[int, _Run]] = defaultdict(dict)
    for rank, items in ranks.items():
        for key, run in _runs(items):
            alike[key][rank] = run
    for (members, _, _), runs in alike.items():
        chosen = _Choice(runs, members, set(ranks), known, world).groups()
        if not chosen and len(runs) > 1:  # on machines with clocks of their own, perhaps
            chosen = _Choice(_on_one_clock(runs), members, set(ranks), known, world).groups()
        for rank, group in chosen.items():
            found[rank].update(dict.fromkeys(runs[rank].units, group))
    return found


def _runs(items: Sequence[Untold]) -> Iterator[tuple[_Key, _Run]]:
    """Runs of one rank, each under what is the same of it on all members."""
    lanes: dict[tuple[int, int, str, int], list[Untold]] = defaultdict(list)
    for item in items:
        by = ("", -1) if item.lane >= 0 else (item.kind, item.size)
        lanes[(item.members, item.lane, *by)].append(item)
    counts: dict[object, int] = defaultdict(int)
    for (members, *_), lane in lanes.items():
        what = tuple((item.kind, item.size) for item in lane)
        counts[members, what] += 1
        yield (
            (members, what, counts[members, what]),
            _Run(
                [item.unit for item in lane],
                np.array([item.start for item in lane], np.int64),
                np.array([item.end for item in lane], np.int64),
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
    """Which group it is that some ranks run the same collectives in.

    Attributes:
        runs: of each of these ranks.
        members: number of ranks in each group; -1 unknown.
        traced, known, world: as for ``groups_across``.
    """

    runs: Mapping[int, _Run]
    members: int
    traced: Set[int]
    known: Mapping[int, frozenset[Group]]
    world: int | None

    def groups(self) -> dict[int, Group]:
        """The group of each rank; {} where nothing fits, or several groups fit as well."""
        if len(self.runs) < 2:
            return {}
        listed = {rank: self.known.get(rank, frozenset()) for rank in self.runs}
        if any(listed.values()):
            own = {rank: self._best([(group,) for group in some]) for rank, some in listed.items()}
            found = {rank: choice[0] for rank, choice in own.items() if choice is not None}
            # All members that were traced must have come to the same.
            return {
                rank: group
                for rank, group in found.items()
                if all(found.get(other) == group for other in group if other in self.traced)
            }
        rows = self._best(list(_grids(self.members, self.world)))
        return {rank: row for row in rows or () for rank in row if rank in self.runs}

    def _best(self, candidates: Sequence[tuple[Group, ...]]) -> tuple[Group, ...] | None:
        """Of the candidates the one whose members meet, and leave together.

        The largest groups are taken unless smaller ones leave so much closer together that what
        the others have in common is only the time of day.  Few collectives do not tell.
        """
        fitting: dict[int, list[tuple[float, tuple[Group, ...]]]] = defaultdict(list)
        for groups in candidates:
            size = len(groups[0])
            if self.members < 0 or size == self.members:
                apart = self._apart(groups)
                if apart is not None:
                    fitting[size].append((apart, groups))
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
        """Nanoseconds by which the members' leaving spreads, as a median of standard deviations.

        Returns:
            -1 where a rank has no traced partner; None where a partner ran something else, one
            left a collective before another came, or no times are known.
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
            if (starts.max(axis=0) > ends.min(axis=0) + BLUR)[known].any():
                return None
            spread = (ends.max(axis=0) - ends.min(axis=0))[known]
            found.append(np.maximum(spread, _SHARP) / _expected_range(len(here)))
        told = np.concatenate([*found, np.zeros(0)])
        if alone:
            return -1.0
        return float(np.median(told)) if len(told) else None


def _expected_range(count: int) -> float:
    """Standard deviations between the first and the last of so many, as they are spread normally.

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
