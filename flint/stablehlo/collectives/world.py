"""How many devices a module is for, and what its device ids mean.

The idea: StableHLO collectives use replica ids, partition ids or flattened ids; a workload uses
ranks.  With ``replicas`` x ``partitions`` devices the rank is
``replica * partitions + partition`` (row-major, as XLA flattens ids).  Groups of either kind of id
become groups of ranks here, symbolically.

A module may also run several times side by side, as jobs that know nothing of each other:
``copies``.  Then the ranks of a copy are consecutive and its ids begin at 0 in each.

    world = World(partitions=512)
    groups = ReplicaGroups(iota=((8, 64), (64, 8), (1, 0)))
    world.groups(groups, "all_reduce", channel=1, global_ids=True)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError, UsageError
from flint.graph.scalars import Place, place_of
from flint.mesh.groups import Groups, StridedGroups, canonical, everybody, from_iota, from_table
from flint.mesh.mesh import MAX_RANKS, Mesh
from flint.mesh.permutation import Permutation, permutation
from flint.stablehlo.read.records import Module, ReplicaGroups

#: XLA's sharding text: ``{devices=[8,64]<=[512]T(1,0) last_tile_dim_replicate}``.
_IOTA_SHARDING = re.compile(r"devices=\[[\d,]+\]<=\[([\d,]+)\]")
_LISTED_SHARDING = re.compile(r"devices=\[([\d,]+)\]\d")


#: Devices of which a table can be made.
_MOST_LISTED = 1 << 24
#: Collectives whose ids are partition ids when they have a channel.
PARTITION_IDS = frozenset({"all_to_all", "collective_broadcast", "ragged_all_to_all"})


#: What to do about a mesh of another size, by whether copies are allowed.
_REMEDIES = {
    False: ": partition the program for this mesh first, or say with --replicas that the mesh runs "
    "independent copies of it",
    True: ", which does not divide it",
}


@dataclass(frozen=True, slots=True)
class World:
    """The devices of a module.

    Attributes:
        partitions: partitions of one replica.
        replicas: replicas.
        copies: how many independent runs of the module stand side by side.
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
        """Groups of ranks for groups as a module writes them.

        The modes of the StableHLO specification, whose ids are ranks with ``global_ids``
        (flattened_ids).  Without, and without a channel, they are replica ids, once per partition
        (cross_replica).  With a channel they are partition ids, once per replica, for
        ``PARTITION_IDS`` (cross_partition), and else replica ids whose every partition takes part
        (cross_replica_and_partition).  A mesh always holds ranks.

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
                f"a permute among {self.size:,} devices: at most {_MOST_LISTED:,} can be listed"
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
                f"replica groups are for {groups.world} devices, the module for {size}"
            )
        return groups
    if written.mesh is not None:
        return _along_mesh(written.mesh, size)
    return everybody(size)


def _ids_are_ranks(written: ReplicaGroups, world: World) -> bool:
    """Whether ids can only be meant as ranks: a module with one kind of device and ids of many.

    Hand-written modules often leave out channel, flag or counts; where the ids do not fit the mode
    and one of the two kinds has one member, there is only one reading left.
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


def world_of(module: Module, mesh: Mesh | None, *, replicate: bool = False) -> World:
    """The devices that ``module`` is for.

    Taken, in this order, from the module's partition and replica counts, its meshes, its
    shardings, the ids in its collectives.  Where those leave it open (a group of all devices,
    however many there are), the given mesh says it.

    Args:
        module: op records.
        mesh: the mesh that the user gives.
        replicate: the mesh may hold several copies of the module, which know nothing of each other.

    Raises:
        UsageError: the given mesh has another number of devices than the module is for.
        FlintError: the module is for no devices, or for more than there can be.
    """
    stated = World(module.num_partitions, module.num_replicas)
    if stated.size == 1:
        stated = World(_implied_devices(module))
    counts = stated.partitions, stated.replicas
    if min(counts) < 1 or math.prod(counts) > MAX_RANKS:
        raise FlintError(
            f"the module is for {counts[0]} partitions and {counts[1]} replicas; "
            f"there are 1 to {MAX_RANKS:,} devices"
        )
    if mesh is None or mesh.size == stated.size:
        return stated
    world = _open_world(module, stated.size, mesh.size)
    if world is not None:
        return world
    if replicate and mesh.size % stated.size == 0:
        return replace(stated, copies=mesh.size // stated.size)
    raise UsageError(
        f"mesh {mesh} has {mesh.size} devices; the module is for {stated.size}"
        + (f" ({stated.replicas} replicas)" if stated.replicas > 1 else "")
        + _REMEDIES[replicate]
    )


def mesh_of(module: Module, world: World) -> Mesh:
    """The module's own mesh, else one axis (with replicas, a ``replica`` axis before it)."""
    candidates = {
        tuple((name, size) for name, size in axes if size > 1)
        for axes in module.meshes.values()
        if math.prod(size for _, size in axes) == world.size
    }
    by_shape = {tuple(size for _, size in axes): axes for axes in sorted(candidates, reverse=True)}
    fewest = min(map(len, by_shape), default=0)
    shapes = [shape for shape in by_shape if len(shape) == fewest]
    if world.size > 1 and len(shapes) == 1:
        axes = by_shape[shapes[0]]
        return Mesh(tuple(size for _, size in axes), tuple(name for name, _ in axes))
    if world.replicas > 1 and world.partitions > 1:
        return Mesh((world.replicas, world.partitions), ("replica", "partition"))
    return Mesh((world.size,), ("axis_0",))


def _implied_devices(module: Module) -> int:
    sizes = {math.prod(size for _, size in axes) for axes in module.meshes.values()}
    if sizes:
        return max(sizes)
    for text in (*module.input_shardings, *module.output_shardings):
        found = _IOTA_SHARDING.findall(text) + _LISTED_SHARDING.findall(text)
        sizes |= {math.prod(map(int, match.split(","))) for match in found}
    if sizes and max(sizes) > 1:
        return max(sizes)
    return _devices_in_collectives(module)


def _open_world(module: Module, implied: int, given: int) -> World | None:
    """``given`` devices, where the module names no device but in permute pairs; else None.

    A module for one device, as far as it says, must at least have an op that only makes sense among
    several.  These are replicas where a collective without a channel, or an id, says so.
    """
    if module.num_partitions * module.num_replicas > 1 or module.meshes or given < implied:
        return None
    texts = (*module.input_shardings, *module.output_shardings)
    if any("devices=" in text for text in texts):
        return None
    ops = [op for block in module.blocks() for op in block.ops]
    among = [op for op in ops if op.attrs and op.attr("groups") is not None]
    if any(op.attr("groups").table is not None and op.attr("groups").table.size for op in among):
        return None
    names = {op.name for op in ops}
    of_replicas = "replica_id" in names or any(
        op.attr("channel_id", 0) <= 0 and not op.attr("use_global_device_ids", False)
        for op in among
    )
    if implied == 1 and not (among or of_replicas or "partition_id" in names):
        return None
    return World(1, replicas=given) if of_replicas else World(given)


def _devices_in_collectives(module: Module) -> int:
    largest = 0
    exchanges = [
        op
        for block in module.blocks()
        for op in block.ops
        if op.attrs and ("groups" in op.attrs or "pairs" in op.attrs)
    ]
    for op in exchanges:
        groups: ReplicaGroups | None = op.attr("groups")
        if groups is not None:
            if groups.iota is not None:
                largest = max(largest, math.prod(groups.iota[1]) - 1)
            elif groups.mesh is not None:
                largest = max(largest, math.prod(size for _, size in groups.mesh[0]) - 1)
            elif groups.table is not None and groups.table.size:
                largest = max(largest, int(groups.table.max()))
        pairs = op.attr("pairs")
        if pairs is not None and pairs.size:
            largest = max(largest, int(pairs.max()))
    return largest + 1
