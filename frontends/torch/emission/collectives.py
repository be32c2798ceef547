"""Communication ops of torch.distributed as StableHLO collectives with every rank's groups.

The idea: the in-place ops of ``c10d`` and the functional ones of ``_c10d_functional`` are a few
collectives with tensors in other places of the schema; a row per op says which tensors go in and
where results are written.  What torch lays out otherwise than StableHLO (lists of outputs, flat
buffers) is reshaped around the collective, which costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.emission import exchanges as exchanged
from flint.frontends.torch.emission import group_collectives as shared
from flint.frontends.torch.emission.emitter import Emitter
from flint.frontends.torch.emission.replica_groups import Table, evenly, full_groups, full_pairs
from flint.frontends.torch.emission.rooted import barrier, gather_to_root, scatter_from_root
from flint.frontends.torch.emission.storages import Storages
from flint.frontends.torch.recording.recording import Op, Recording
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.bindings import stablehlo as hlo

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")


def is_communication(op: Op) -> bool:
    """Whether an op is a communication (and no wait for one)."""
    namespace, base, *_ = op.name.split(".")
    return namespace in _NAMESPACES and base not in ("wait_tensor", "_wrap_tensor_autograd")


class Collectives:
    """Emits the communications of a recording."""

    def __init__(self, recording: Recording, storages: Storages) -> None:
        self.recording = recording
        self.storages = storages
        #: What was assumed, and for how many ops.
        self.warnings: Counter[str] = Counter()
        self.shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
        self._channel = 0
        self._tables: dict[tuple[int, str, int], Any] = {}
        self._pairs: dict[tuple[int, int], Any] = {}

    def emit(self, op: Op, attributes: dict[str, Any], location: Any) -> None:
        """One communication.

        Args:
            op: of one of torch.distributed's namespaces.
            attributes: the discardable ones.
            location: where it was called.

        Raises:
            FlintError: an op that is not known here: a lost communication would be worse.
        """
        base = op.name.split(".")[1].rstrip("_")
        handler = _HANDLERS.get(base.removeprefix("_"))
        if handler is None:
            raise FlintError("this communication cannot be written as a StableHLO collective")
        handler(Emitter(self, op, attributes, location))

    def groups(self, op: Op) -> Any:
        """Replica groups of an op's process group, every rank's, lone ones filled up with -1."""
        return self._attribute(op, full_groups)

    def even_groups(self, op: Op) -> Any:
        """The same in groups of one size, which all collectives but all-reduces want.

        Ranks of whose groups nothing is known are put together in order: their programs, if they
        communicate, are others.  None where that does not go.
        """
        return self._attribute(op, lambda ranks, shape: evenly(full_groups(ranks, shape)))

    def rooted_groups(self, op: Op, root: int) -> Any:
        """The same with ``root`` (a position) first, without lone ranks."""

        def table(ranks: Sequence[int], shape: Sequence[int]) -> Table:
            found = full_groups((ranks[root], *ranks[:root], *ranks[root + 1 :]), shape)
            whole: Table = found[(found >= 0).all(1)]
            return whole

        return self._attribute(op, table, root)

    def _attribute(
        self,
        op: Op,
        table: Callable[[Sequence[int], Sequence[int]], Table | None],
        root: int = -1,
    ) -> Any:
        if op.group < 0:
            raise FlintError("the recording names no process group")
        key = (op.group, table.__qualname__, root)
        if key not in self._tables:
            found = table(self.recording.groups[op.group].ranks, self.shape)
            self._tables[key] = None if found is None else _integers(found)
        return self._tables[key]

    def size(self, op: Op) -> int:
        """How many ranks an op's process group has."""
        if op.group < 0:
            raise FlintError("the recording names no process group")
        return len(self.recording.groups[op.group].ranks)

    def pairs(self, source: int, target: int) -> Any:
        """A message's source-target pairs, every rank's."""
        if (source, target) not in self._pairs:
            self._pairs[source, target] = _integers(full_pairs(source, target, self.shape))
        return self._pairs[source, target]

    def channel(self) -> Any:
        """A channel of its own for a collective among devices."""
        self._channel += 1
        return hlo.ChannelHandle.get(self._channel, 1)


def _integers(table: Table) -> Any:
    dense: Any = np.ascontiguousarray(table)
    return ir.DenseIntElementsAttr.get(dense)


_HANDLERS: dict[str, Callable[[Emitter], None]] = {
    "allreduce": shared.all_reduce_in_place,
    "allreduce_coalesced": shared.all_reduce_in_place,
    "all_reduce": shared.all_reduce,
    "all_reduce_coalesced": shared.all_reduce,
    "broadcast": shared.broadcast,
    "allgather_base": shared.all_gather_base,
    "allgather_into_tensor_coalesced": shared.all_gather_base,
    "allgather": shared.all_gather_lists,
    "allgather_coalesced": shared.all_gather_coalesced,
    "all_gather_into_tensor": shared.all_gather_functional,
    "all_gather_into_tensor_out": shared.all_gather_functional,
    "all_gather_into_tensor_coalesced": shared.all_gather_functional,
    "reduce_scatter_base": shared.reduce_scatter_base,
    "reduce_scatter": shared.reduce_scatter_lists,
    "reduce_scatter_tensor_coalesced": shared.reduce_scatter_functional,
    "reduce_scatter_tensor": shared.reduce_scatter_functional,
    "reduce_scatter_tensor_out": shared.reduce_scatter_functional,
    "alltoall_base": exchanged.all_to_all_base,
    "alltoall": exchanged.all_to_all_lists,
    "all_to_all_single": exchanged.all_to_all_functional,
    "shard_dim_alltoall": exchanged.shard_dim_all_to_all,
    "gather": gather_to_root,
    "scatter": scatter_from_root,
    "send": exchanged.send,
    "recv": exchanged.receive,
    "barrier": barrier,
    "reduce": shared.reduce,
}
