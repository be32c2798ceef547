"""How many devices a module is for, and the mesh that they make."""

from __future__ import annotations

import math
from dataclasses import replace

from flint.errors import FlintError, UsageError
from flint.mesh.mesh import MAX_RANKS, Mesh
from flint.stablehlo.collectives.world import World
from flint.stablehlo.read.annotations import devices_in
from flint.stablehlo.read.records import Module, ReplicaGroups

#: Advice about a mesh of another size, by whether copies are allowed.
_REMEDIES = {
    False: (
        ": partition the program for this mesh first, or use --replicas if the mesh runs "
        "independent copies of it"
    ),
    True: ", which does not divide it",
}


def world_of(module: Module, mesh: Mesh | None, *, replicate: bool = False) -> World:
    """The devices that ``module`` is for.

    They are taken, in this order, from the module's partition and replica counts, its meshes, its
    shardings, and the ids in its collectives.  If these leave it open (a group of all devices, of
    any number), the given mesh decides.

    Args:
        module: op records.
        mesh: the mesh that the user gives.
        replicate: the mesh may hold several independent copies of the module.

    Raises:
        UsageError: the given mesh has another number of devices than the module is for.
        FlintError: the module is for no devices, or for too many.
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
    texts = (*module.input_shardings, *module.output_shardings)
    stated = max(map(devices_in, texts), default=1)
    return stated if stated > 1 else _devices_in_collectives(module)


def _open_world(module: Module, implied: int, given: int) -> World | None:
    """``given`` devices, if the module names devices only in permute pairs; else None.

    A module that seems to be for one device must at least have an op that makes sense only among
    several.  These are replicas if a collective without a channel, or an id, shows it.
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
