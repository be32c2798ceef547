"""Communication ops of torch.distributed as StableHLO collectives with every rank's groups.

The idea: the table of collectives (``recording/collectives.py``) gives the input tensors of an op
and the targets of its results; a handler per kind and layout writes them.  Where torch's layout
differs from StableHLO's (lists of outputs, flat buffers), tensors are reshaped around the
collective, which costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.emission import exchanges, group_collectives
from flint.frontends.torch.emission.emitter import Emitter
from flint.frontends.torch.emission.storages import Storages
from flint.frontends.torch.ranks.replica_groups import Table, evenly, full_groups, full_pairs
from flint.frontends.torch.recording.collectives import Collective, collective_of
from flint.frontends.torch.recording.recording import Op, Recording, View, views_in
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.bindings import stablehlo as hlo


class Collectives:
    """Emits the communications of a recording."""

    def __init__(self, recording: Recording, storages: Storages) -> None:
        self.recording = recording
        self.storages = storages
        #: Assumptions, with the number of ops.
        self.warnings: Counter[str] = Counter()
        self.shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
        self._channel = 0
        self._tables: dict[tuple[int, str, int | tuple[int, int]], Any] = {}
        self._pairs: dict[tuple[int, int], Any] = {}

    def emit(self, op: Op, attributes: dict[str, Any], location: Any) -> None:
        """One communication.

        Args:
            op: of one of torch.distributed's namespaces.
            attributes: the discardable ones.
            location: where it was called.

        Raises:
            FlintError: the op is not known here; losing a communication would be worse.
        """
        row = collective_of(op.name)
        if row is None:
            raise FlintError("this communication cannot be written as a StableHLO collective")
        own = (row.kind, row.layout)
        handler = _HANDLERS[own if own in _HANDLERS else (row.kind, "tensor")]
        handler(Emitter(self, op, attributes, location), *_tensors(row, op))

    def groups(self, op: Op) -> Any:
        """Replica groups of an op's process group, every rank's, lone ones filled up with -1."""
        return self._attribute(op, full_groups)

    def even_groups(self, op: Op) -> Any:
        """The same in groups of one size, which all collectives but all-reduces require.

        Ranks with unknown groups are combined in order: if they communicate, they have other
        programs.  None if that is not possible.
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
        places: int | tuple[int, int] = -1,
    ) -> Any:
        if op.group < 0:
            raise FlintError("the recording names no process group")
        key = (op.group, table.__qualname__, places)
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

    def pairs_within(self, op: Op, source: int, target: int) -> Any:
        """The same of a message between two positions in an op's process group.

        Of a group along several mesh axes, a message that crosses one of them is no other member's.
        """

        def table(ranks: Sequence[int], shape: Sequence[int]) -> Table:
            found = full_groups(ranks, shape)[:, [source, target]]
            whole: Table = found[(found >= 0).all(1)]
            return whole

        return self._attribute(op, table, (source, target))

    def channel(self) -> Any:
        """A separate channel for a collective among devices."""
        self._channel += 1
        return hlo.ChannelHandle.get(self._channel, 1)


def _tensors(row: Collective, op: Op) -> tuple[list[View], list[View]]:
    """The input tensors of a collective, and those that it writes."""
    inputs = [] if row.inputs is None else list(views_in(op.args[row.inputs : row.inputs + 1]))
    if row.outputs is not None:
        return inputs, list(views_in(op.args[row.outputs : row.outputs + 1]))
    return inputs, list(views_in(op.kwargs.get("out"))) or list(views_in(op.results))


def _integers(table: Table) -> Any:
    dense: Any = np.ascontiguousarray(table)
    return ir.DenseIntElementsAttr.get(dense)


#: Kind and layout -> the function that writes a call; "tensor" serves layouts without an entry.
_HANDLERS: dict[tuple[str, str], Callable[[Emitter, list[View], list[View]], None]] = {
    ("all_reduce", "tensor"): group_collectives.all_reduce,
    ("reduce", "tensor"): group_collectives.reduce,
    ("broadcast", "tensor"): group_collectives.broadcast,
    ("all_gather", "tensor"): group_collectives.all_gather,
    ("all_gather", "list"): group_collectives.all_gather_list,
    ("all_gather", "coalesced lists"): group_collectives.all_gather_coalesced,
    ("reduce_scatter", "tensor"): group_collectives.reduce_scatter,
    ("reduce_scatter", "list"): group_collectives.reduce_scatter_list,
    ("all_to_all", "rows"): exchanges.all_to_all,
    ("all_to_all", "list"): exchanges.all_to_all_list,
    ("shard_dim_all_to_all", "tensor"): exchanges.shard_dim_all_to_all,
    ("gather", "list"): group_collectives.gather,
    ("scatter", "list"): group_collectives.scatter,
    ("send", "tensor"): exchanges.send,
    ("receive", "tensor"): exchanges.receive,
    ("barrier", "tensor"): group_collectives.barrier,
}
