"""A module's inputs and outputs: shardings and donated buffers.

HLO uses parameter numbers and paths into tuples; records use flattened positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError

from flint.hlo import hlo_pb2 as pb
from flint.hlo.shapes import Tree, flatten
from flint.hlo.sharding import devices_of, sharding_text
from flint.stablehlo.read.annotations import devices_stated

_TUPLE = 2
#: Targets of the custom calls that stand for Shardy's ops in HLO.
_SHARDY = "xla.sdy."


def donated_buffers(
    alias: pb.HloInputOutputAliasProto, parameters: Sequence[Tree], root: Tree
) -> dict[int, int]:
    """Flattened entry parameter -> flattened entry output that takes its buffer.

    Entries that point at nothing are left out.
    """
    inputs = _positions(tuple(parameters))
    outputs = _positions(root)
    donated: dict[int, int] = {}
    for entry in alias.entries:
        source = inputs.get((entry.parameter_number, *entry.parameter_shape_index))
        target = outputs.get(tuple(entry.output_shape_index))
        if source is not None and target is not None:
            donated[source] = target
    return donated


def donors(listed: pb.HloBufferDonorProto, parameters: Sequence[Tree]) -> frozenset[int]:
    """Flattened entry parameters whose buffers any output may take."""
    inputs = _positions(tuple(parameters))
    found = (
        inputs.get((entry.parameter_number, *entry.parameter_shape_index))
        for entry in listed.entries
    )
    return frozenset(number for number in found if number is not None)


def _positions(tree: Tree) -> dict[tuple[int, ...], int]:
    """Path into the tree -> flattened position of that leaf, or of the first leaf below it."""
    positions: dict[tuple[int, ...], int] = {}
    leaves = 0

    def visit(part: Tree, path: tuple[int, ...]) -> None:
        nonlocal leaves
        positions[path] = leaves
        if isinstance(part, int):
            leaves += 1
        else:
            for index, item in enumerate(part):
                visit(item, (*path, index))

    visit(tree, ())
    return positions


def parameter_shardings(
    proto: pb.HloModuleProto, written: Sequence[Any], parameters: Sequence[Tree]
) -> tuple[str, ...]:
    """XLA's sharding text per flattened entry parameter, "" if none is stated.

    Args:
        proto: the module.
        written: the entry's parameter instructions.
        parameters: their values, in the order of their numbers.
    """
    stated: dict[int, pb.OpSharding] = dict(enumerate(proto.spmd_parameters_shardings))
    if not stated:
        for instruction in written:
            if instruction.HasField("sharding"):
                try:
                    sharding = pb.OpSharding.FromString(instruction.sharding)
                except DecodeError:
                    continue
                stated[instruction.parameter_number] = sharding
    texts: list[str] = []
    for number, tree in enumerate(parameters):
        texts += _per_leaf(stated.get(number), len(flatten(tree)))
    return tuple(texts)


def devices_annotated(
    proto: pb.HloModuleProto, meshes: Mapping[str, tuple[tuple[str, int], ...]]
) -> int:
    """The most devices over which an instruction that is not a parameter spreads a tensor.

    HLO that JAX writes states no number of devices elsewhere.

    Args:
        proto: the module.
        meshes: as in ``Module``.
    """
    found = 1
    for computation in proto.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                continue
            if instruction.custom_call_target.startswith(_SHARDY):
                found = max(found, devices_stated(1, meshes))
            if instruction.HasField("sharding"):
                with suppress(DecodeError):
                    sharding = pb.OpSharding.FromString(instruction.sharding)
                    parts = sharding.tuple_shardings or [sharding]
                    found = max(found, *map(devices_of, parts))
    return found


def output_shardings(proto: pb.HloModuleProto, root: Tree) -> tuple[str, ...]:
    """XLA's sharding text per flattened entry output; empty if the module states none."""
    if not proto.HasField("spmd_output_sharding"):
        return ()
    return tuple(_per_leaf(proto.spmd_output_sharding, len(flatten(root))))


def _per_leaf(sharding: pb.OpSharding | None, leaves: int) -> list[str]:
    if sharding is None:
        return [""] * leaves
    if sharding.type == _TUPLE and len(sharding.tuple_shardings) == leaves:
        return [sharding_text(part) for part in sharding.tuple_shardings]
    return [sharding_text(sharding)] * leaves
