"""Reduce-scatters that are still written as all-reduce + slice.

The idea: XLA's partitioner writes "all-reduce, then keep my own shard" and leaves it to the GPU and
TPU backends to make a reduce-scatter of it.  An all-reduce is one if its only use, looking through
reshape, transpose and convert, is a dynamic_slice whose offsets are, for *every* rank, the rank's
own position in its group.  The offsets are evaluated for all ranks; nothing is matched by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from flint.graph.communication import Communication
from flint.graph.scalars import Scalar, evaluate, levels
from flint.mesh.groups import Groups
from flint.stablehlo.collectives.world import World
from flint.stablehlo.read.records import Block, Module, Op

#: Ops allowed between the all-reduce and the slice: elementwise ops or permutations of elements.
_SEEN_THROUGH = frozenset({"reshape", "transpose", "convert", "mhlo.copy"})


#: A sliced dim: its size, the size of the kept part, and its start.
Cut = tuple[int, int, Scalar]


@dataclass(frozen=True, slots=True)
class Scattered:
    """An all-reduce that is a reduce-scatter.

    Attributes:
        between: ops between it and the slice, which now work on a shard.
        slice: the slice, which now does nothing.
        shard: its result's shape.
    """

    between: tuple[Op, ...]
    slice: Op
    shard: tuple[int, ...]


class Uses:
    """Uses of a module's values: counts everywhere, and the op for uses in the same block."""

    def __init__(self, module: Module) -> None:
        blocks = list(module.blocks())
        uses = [op.operands for block in blocks for op in block.ops]
        uses += [block.yields for block in blocks]
        used = np.fromiter(chain.from_iterable(uses), np.int64)
        self.count = np.bincount(used, minlength=len(module.value_type))
        self._users: dict[int, dict[int, Op]] = {}

    def only_user(self, value: int, block: Block) -> Op | None:
        """The one op of ``block`` that uses ``value`` when nothing else does."""
        if self.count[value] != 1:
            return None
        users = self._users.get(id(block))
        if users is None:
            users = {operand: op for op in block.ops for operand in op.operands}
            self._users[id(block)] = users
        return users.get(value)


class Finder:
    """Recognises the reduce-scatters of a module; results are cached."""

    def __init__(self, module: Module, world: World) -> None:
        self.module = module
        self.uses = Uses(module)
        self.ranks = np.arange(world.size, dtype=np.int64)
        self.place = world.place(self.ranks)
        self._own: dict[Hashable, bool] = {}
        self._makers: dict[int, dict[int, Op]] = {}

    def makers(self, block: Block) -> dict[int, Op]:
        """Value -> the op of ``block`` that makes it."""
        makers = self._makers.get(id(block))
        if makers is None:
            makers = {value: op for op in block.ops for value in op.results}
            self._makers[id(block)] = makers
        return makers

    def find(
        self,
        op: Op,
        block: Block,
        communication: Communication,
        scalar: Callable[[int], Scalar | None],
    ) -> Scattered | None:
        """Whether the all-reduce ``op`` is a reduce-scatter.

        Args:
            op: the all-reduce.
            block: the block that contains it.
            communication: what ``op`` exchanges.
            scalar: expression of a value, computed on demand.
        """
        if len(op.results) != 1 or communication.groups is None:
            return None
        between: list[Op] = []
        value = op.results[0]
        user = self.uses.only_user(value, block)
        while user is not None and user.name in _SEEN_THROUGH:
            between.append(user)
            value = user.results[0]
            user = self.uses.only_user(value, block)
        if user is None or user.name != "dynamic_slice" or user.operands[0] != value:
            return None
        whole = self.module.type_of(value).shape
        shard = self.module.type_of(user.results[0]).shape
        cuts: list[Cut] = []
        for size, kept, index in zip(whole, shard, user.operands[1:], strict=True):
            if kept == size:
                continue
            offset = scalar(index)
            if kept == 0 or size % kept or offset is None or levels(offset):
                return None
            cuts.append((size, kept, offset))
        key = (communication.groups, *[(size, kept, offset.key) for size, kept, offset in cuts])
        own = self._own.get(key)
        if own is None:
            own = self._own[key] = self._is_own_shard(communication.groups, cuts)
        return Scattered(tuple(between), user, shard) if own else None

    def _is_own_shard(self, groups: Groups, cuts: list[Cut]) -> bool:
        """Whether every rank's offsets are those of its own position in its group."""
        shards = math.prod(size // kept for size, kept, _ in cuts)
        if shards == 1 or shards != groups.size:
            return False
        index = np.zeros(len(self.ranks), dtype=np.int64)
        for size, kept, offset in cuts:
            starts = np.clip(evaluate(offset, self.place), 0, size - kept)
            if (starts % kept).any():
                return False
            index = index * (size // kept) + starts // kept
        whole_groups = bool((groups.group_size(self.ranks) == shards).all())
        return whole_groups and np.array_equal(index, groups.position(self.ranks))
