"""Reduce-scatters that are still written as all-reduce + slice.

The idea: XLA's partitioner writes "all-reduce, then keep my own shard" and leaves it to the GPU and
TPU backends to make a reduce-scatter of it.  An all-reduce is one when its single use, seen through
reshape, transpose and convert, is a dynamic_slice whose offsets are, for *every* rank, the rank's
own position in its group.  The offsets are evaluated for all ranks; nothing is matched by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flint.communication import Communication
from flint.scalars import Place, Scalar, evaluate, levels
from flint.stablehlo.records import Block, Module, Op
from flint.stablehlo.world import World

#: What may stand between the all-reduce and the slice: elementwise or a permutation of elements.
_SEEN_THROUGH = frozenset({"reshape", "transpose", "convert", "mhlo.copy"})


@dataclass(frozen=True, slots=True)
class Scattered:
    """An all-reduce that is a reduce-scatter.

    Attributes:
        between: ops between it and the slice, which work on a shard from now on.
        slice: the slice, which does nothing from now on.
        shard: its result's shape.
    """

    between: tuple[Op, ...]
    slice: Op
    shard: tuple[int, ...]


class Uses:
    """Who uses the values of a module: counts everywhere, the op for uses in the same block."""

    def __init__(self, module: Module) -> None:
        self.count: dict[int, int] = {}
        self._users: dict[int, dict[int, Op]] = {}
        blocks = list(module.functions.values())
        while blocks:
            block = blocks.pop()
            for value in block.yields:
                self.count[value] = self.count.get(value, 0) + 1
            for op in block.ops:
                for value in op.operands:
                    self.count[value] = self.count.get(value, 0) + 1
                blocks.extend(op.regions)

    def only_user(self, value: int, block: Block) -> Op | None:
        """The one op of ``block`` that uses ``value`` when nothing else does."""
        if self.count.get(value, 0) != 1:
            return None
        users = self._users.get(id(block))
        if users is None:
            users = {operand: op for op in block.ops for operand in op.operands}
            self._users[id(block)] = users
        return users.get(value)


def find(
    op: Op,
    block: Block,
    uses: Uses,
    module: Module,
    communication: Communication,
    world: World,
    scalar: Callable[[int], Scalar | None],
) -> Scattered | None:
    """Whether the all-reduce ``op`` is a reduce-scatter.

    Args:
        op: the all-reduce.
        block: where it stands.
        uses: uses in the module.
        module: for types.
        communication: what ``op`` exchanges.
        world: device ids.
        scalar: expression of a value, computed on demand.
    """
    if len(op.results) != 1 or communication.groups is None:
        return None
    between: list[Op] = []
    user = uses.only_user(op.results[0], block)
    while user is not None and user.name in _SEEN_THROUGH:
        between.append(user)
        user = uses.only_user(user.results[0], block)
    value = between[-1].results[0] if between else op.results[0]
    if user is None or user.name != "dynamic_slice" or user.operands[0] != value:
        return None
    shape, shard = module.type_of(value).shape, module.type_of(user.results[0]).shape
    ranks = np.arange(world.size, dtype=np.int64)
    place = Place(partitions=ranks % world.partitions, replicas=ranks // world.partitions)
    block_index = np.zeros(world.size, dtype=np.int64)
    shards = 1
    for dim, (whole, kept) in enumerate(zip(shape, shard, strict=True)):
        if kept == whole:
            continue
        offset = scalar(user.operands[1 + dim])
        if kept == 0 or whole % kept or offset is None or levels(offset):
            return None
        starts = np.broadcast_to(np.asarray(evaluate(offset, place)), ranks.shape)
        if (starts % kept).any():
            return None
        block_index = block_index * (whole // kept) + starts // kept
        shards *= whole // kept
    groups = communication.groups
    own = shards == groups.size and bool((groups.group_size(ranks) == shards).all())
    if shards == 1 or not own or not np.array_equal(block_index, groups.position(ranks)):
        return None
    return Scattered(tuple(between), user, shard)
