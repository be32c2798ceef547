"""The devices of a module, and what its device ids mean.

The idea: StableHLO collectives use replica ids, partition ids or flattened ids; a workload uses
ranks.  With ``replicas`` x ``partitions`` devices the rank is
``replica * partitions + partition`` (row-major, as XLA flattens ids).  Groups of either kind of id
become groups of ranks here, symbolically.

A module may also run several times in parallel, as independent jobs: ``copies``.  Then the ranks of
a copy are consecutive and its ids begin at 0 in each.

    world = World(partitions=512)
    groups = ReplicaGroups(iota=((8, 64), (64, 8), (1, 0)))
    world.groups(groups, "all_reduce", channel=1, global_ids=True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.scalars import Place, place_of
from flint.mesh.groups import Groups, StridedGroups, canonical, everybody, from_iota, from_table
from flint.mesh.permutation import Permutation, permutation
from flint.stablehlo.read.records import ReplicaGroups

#: The most devices for which a table can be made.
_MOST_LISTED = 1 << 24
#: Collectives whose ids are partition ids when they have a channel.
PARTITION_IDS = frozenset({"all_to_all", "collective_broadcast", "ragged_all_to_all"})


@dataclass(frozen=True, slots=True)
class World:
    """The devices of a module.

    Attributes:
        partitions: partitions of one replica.
        replicas: replicas.
        copies: number of independent runs of the module in parallel.
    """

    partitions: int
    replicas: int = 1
    copies: int = 1

    @property
    def devices(self) -> int:
        """Number of ranks of one copy."""
        return self.partitions * self.replicas

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.devices * self.copies

    def place(self, ranks: NDArray[np.int64]) -> Place:
        """Partition and replica ids of ranks, shape and order as given."""
        return place_of(ranks, self.partitions, self.replicas)

    def groups(
        self, written: ReplicaGroups, kind: str, *, channel: int, global_ids: bool
    ) -> Groups:
        """Groups of ranks for groups as written in a module.

        These are the modes of the StableHLO specification: with ``global_ids``, ids are ranks
        (flattened_ids).  Otherwise, without a channel, they are replica ids, once per partition
        (cross_replica).  With a channel they are partition ids, once per replica, for
        ``PARTITION_IDS`` (cross_partition), and else replica ids, all of whose partitions take part
        (cross_replica_and_partition).  A mesh always contains ranks.

        Args:
            written: the groups.
            kind: the communication's kind.
            channel: the channel id, 0 or less for none.
            global_ids: ``use_global_device_ids``.

        Raises:
            FlintError: ids outside the world or in two groups.
        """
        one = self._groups_of_a_copy(written, kind, channel=channel, global_ids=global_ids)
        return one if self.copies == 1 else _repeat(one, self.copies, outside=True)

    def _groups_of_a_copy(
        self, written: ReplicaGroups, kind: str, *, channel: int, global_ids: bool
    ) -> Groups:
        if global_ids or written.mesh is not None or _ids_are_ranks(written, self):
            return _resolve(written, self.devices)
        if channel <= 0:
            return _repeat(_resolve(written, self.replicas), self.partitions, outside=False)
        if kind in PARTITION_IDS:
            return _repeat(_resolve(written, self.partitions), self.replicas, outside=True)
        return _widen(_resolve(written, self.replicas), self.partitions)

    def permutation(self, pairs: NDArray[np.int64], *, channel: int) -> Permutation:
        """The permutation of ranks for pairs of partition ids (with a channel) or replica ids.

        Raises:
            FlintError: ids outside the world, or too many devices for a table of them all.
        """
        if self.size > _MOST_LISTED:
            raise FlintError(
                f"a permute among {self.size:,} devices; the limit is {_MOST_LISTED:,}"
            )
        if self.replicas == 1 or self.partitions == 1:
            spread = pairs[None]
        elif channel > 0:
            shifts = np.arange(self.replicas, dtype=np.int64) * self.partitions
            spread = pairs[None, :, :] + shifts[:, None, None]
        else:
            ids = np.arange(self.partitions, dtype=np.int64)
            spread = pairs[None, :, :] * self.partitions + ids[:, None, None]
        if self.copies > 1:
            starts = np.arange(self.copies, dtype=np.int64) * self.devices
            spread = spread.reshape(1, -1, 2) + starts[:, None, None]
        return permutation(self.size, spread.reshape(-1, 2))


def _resolve(written: ReplicaGroups, size: int) -> Groups:
    if written.table is not None and written.table.size:
        return from_table(size, written.table)
    if written.iota is not None:
        groups = from_iota(*written.iota)
        if groups.world != size:
            raise FlintError(
                f"replica groups are for {groups.world} devices, but the module is for {size}"
            )
        return groups
    if written.mesh is not None:
        return _along_mesh(written.mesh, size)
    return everybody(size)


def _ids_are_ranks(written: ReplicaGroups, world: World) -> bool:
    """Whether ids can only be ranks: a module with one kind of device and ids of many.

    Hand-written modules often leave out channel, flag or counts; if the ids do not fit the mode and
    one of the two kinds has one member, only one interpretation is left.
    """
    if world.replicas > 1 and world.partitions > 1:
        return False
    if written.table is not None and written.table.size:
        return int(written.table.max()) > 0
    return written.iota is not None and math.prod(written.iota[1]) > 1


def _widen(groups: Groups, partitions: int) -> Groups:
    """Groups of replica ids with all partitions of each replica: partition by partition."""
    if partitions == 1:
        return groups
    if isinstance(groups, StridedGroups):
        dims = [(size, stride * partitions) for size, stride in groups.dims]
        return StridedGroups(groups.world * partitions, canonical([(partitions, 1), *dims]))
    rows = groups.rows[:, None, :]
    spread = rows * partitions + np.arange(partitions, dtype=np.int64)[None, :, None]
    spread = np.where(rows >= 0, spread, -1)
    return from_table(groups.world * partitions, spread.reshape(len(groups.rows), -1))


def _along_mesh(written: tuple[object, ...], size: int) -> Groups:
    axes: tuple[tuple[str, int], ...] = written[0]  # type: ignore[assignment]  # see ReplicaGroups
    along: tuple[tuple[str, tuple[int, int] | None], ...] = written[1]  # type: ignore[assignment]
    sizes = [length for _, length in axes]
    if math.prod(sizes) != size:
        raise FlintError(f"replica groups use a mesh of {math.prod(sizes)} devices, not {size}")
    place = {name: (length, math.prod(sizes[i + 1 :])) for i, (name, length) in enumerate(axes)}
    dims = []
    for name, sub_axis in along:
        if name not in place:
            raise FlintError(f"replica groups name mesh axis {name!r}, which is not in {axes}")
        length, stride = place[name]
        if sub_axis is None:
            dims.append((length, stride))
            continue
        before, taken = sub_axis
        if length % (before * taken):
            raise FlintError(f"sub-axis ({before}){taken} does not divide axis {name}={length}")
        dims.append((taken, stride * (length // (before * taken))))
    groups = StridedGroups(size, canonical(dims))
    if len(written) > 2:
        devices: NDArray[np.int64] = written[2]  # type: ignore[assignment]
        return from_table(size, devices[groups.table()])
    return groups


def _repeat(groups: Groups, times: int, *, outside: bool) -> Groups:
    """Groups of one id kind over ``times`` values of the other, as groups of ranks."""
    world = groups.world * times
    if isinstance(groups, StridedGroups):
        factor = 1 if outside else times
        dims = [(size, stride * factor) for size, stride in groups.dims]
        return StridedGroups(world, canonical(dims))
    other = np.arange(times, dtype=np.int64)[:, None, None]
    rows = groups.rows[None]
    spread = rows + other * groups.world if outside else rows * times + other
    spread = np.where(rows >= 0, spread, -1)
    return from_table(world, spread.reshape(-1, groups.rows.shape[1]))
