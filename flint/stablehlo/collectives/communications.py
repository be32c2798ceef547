"""Collective records -> communications.

The idea: operand and result types determine what is exchanged, and groups or pairs determine among
which ranks; an op has one of the two.
"""

from __future__ import annotations

from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.graph.tensor_types import TensorType, tensor_type
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation
from flint.stablehlo.collectives.world import PARTITION_IDS, World
from flint.stablehlo.read.records import Block, Module, Op, ReplicaGroups
from flint.stablehlo.values.arrays import Arrays, is_constant

#: Record name -> communication kind.
KINDS = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "all_to_all": "all_to_all",
    "collective_broadcast": "collective_broadcast",
    "collective_permute": "collective_permute",
    "cross-replica-sum": "all_reduce",
    "ragged_all_to_all": "ragged_all_to_all",
    "recv": "recv",
    "reduce_scatter": "reduce_scatter",
    "send": "send",
}

#: Ragged all-to-all: operands are input, output buffer, then offsets and sizes.
_RAGGED_OPERANDS = 1
#: Which of them have the numbers of rows sent to, and received from, every member.
_SENT, _RECEIVED = 3, 5


def kind_of(op: Op) -> str | None:
    """The communication kind of a record; None if it is not a communication."""
    if op.name == "custom_call":
        target = str(op.attr("target", ""))
        return KINDS.get(target.rpartition(".")[2])
    return KINDS.get(op.name.removeprefix("mhlo."))


class Collectives:
    """Turns records into communications of one module; groups are resolved once each."""

    def __init__(self, module: Module, world: World) -> None:
        self.module = module
        self.world = world
        self._groups: dict[tuple[int, bool, bool, bool], Groups] = {}
        self._permutations: dict[tuple[int, int], Permutation] = {}
        self._kept: list[object] = []

    def communication(self, op: Op, kind: str, arrays: Arrays) -> Communication:
        """The communication of a record.

        Args:
            op: the record.
            kind: of ``kind_of``.
            arrays: small arrays by value id.

        Raises:
            FlintError: groups or pairs are missing or do not fit the devices.
        """
        type_of = self.module.type_of
        operands = [t for t in map(type_of, op.operands) if _is_data(t)]
        results = [t for t in map(type_of, op.results) if _is_data(t)]
        exact = True
        if kind == "ragged_all_to_all":
            operands, results = operands[:_RAGGED_OPERANDS], results[:_RAGGED_OPERANDS]
            sent, received = (_rows(op, place, arrays) for place in (_SENT, _RECEIVED))
            exact = sent is not None and received is not None
            if sent is not None and received is not None:
                operands = [_of_rows(item, sent) for item in operands]
                results = [_of_rows(item, received) for item in results]
        groups, peers = self._among(op, kind)
        carried = operands or results
        return Communication(
            kind=kind,
            reduction=_reduction(op.regions[0]) if op.regions else op.attr("reduction"),
            groups=groups,
            permutation=peers,
            operand_bytes=tuple(t.bytes for t in operands),
            result_bytes=tuple(t.bytes for t in results),
            dtypes=tuple(t.dtype for t in carried),
            channel=int(op.attr("channel_id", 0) or 0),
            exact=exact and not any(t.dynamic for t in carried),
        )

    def _among(self, op: Op, kind: str) -> tuple[Groups | None, Permutation | None]:
        channel = int(op.attr("channel_id", 0) or 0)
        if kind in ("collective_permute", "send", "recv"):
            pairs = op.attr("pairs")
            if pairs is None:
                raise FlintError(f"a {kind} without source_target_pairs: its peers are unknown")
            key = (id(pairs), channel)
            if key not in self._permutations:
                self._permutations[key] = self.world.permutation(pairs, channel=channel)
                self._kept.append(pairs)
            return None, self._permutations[key]
        written = op.attr("groups") or ReplicaGroups()
        global_ids = bool(op.attr("use_global_device_ids", False))
        entry = (id(written), channel > 0, global_ids, kind in PARTITION_IDS)
        if entry not in self._groups:
            self._groups[entry] = self.world.groups(
                written, kind, channel=channel, global_ids=global_ids
            )
            self._kept.append(written)
        return self._groups[entry], None


def _rows(op: Op, place: int, arrays: Arrays) -> int | None:
    """Rows that a ragged exchange moves according to one of its lists of sizes; None if that is
    data.
    """
    sizes = arrays(op.operands[place]) if place < len(op.operands) else None
    return int(sizes.sum()) if sizes is not None and is_constant(sizes) else None


def _of_rows(item: TensorType, rows: int) -> TensorType:
    """The part of ``item`` with the moved rows; all of it if the program would move more."""
    return tensor_type((min(rows, item.shape[0]), *item.shape[1:]), item.dtype, item.dynamic)


def _is_data(item: TensorType) -> bool:
    return item.dtype not in ("token", "future", "tuple")


def _reduction(block: Block) -> str:
    """The op of a one-op reduction, ignoring conversions, else "computation"."""
    names = [op.name for op in block.ops if op.name != "convert"]
    return names[0] if len(names) == 1 else "computation"
