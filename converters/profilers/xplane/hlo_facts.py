"""Facts about each instruction of an executed HLO module, by its name.

The idea: an instruction that calls a fused computation is replaced by its content: the contractions
and collectives one by one, and the rest as one op.

    facts_of(program, "all-reduce.3", rank=0)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.program import Program
from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.hlo import hlo_pb2 as pb
from flint.hlo.attributes import backend_config, convolution
from flint.hlo.collectives import replica_groups
from flint.observed.classes import OpClass, hlo_class
from flint.observed.columns import Gemm, OpFacts, Tensor, origin_of
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.contraction import convolution_item
from flint.stablehlo.sources.phases import source_of

_MAX_DEPTH = 64


def facts_of(program: Program, name: str, rank: int) -> tuple[OpFacts, ...]:
    """What an executed instruction did; () if the module has none of that name.

    Raises:
        FlintError: invalid groups or types.
    """
    instruction = program.by_name.get(name)
    if instruction is None:
        return ()
    try:
        facts = [_facts(program, item, rank, name) for item in _inside(program, instruction, 0)]
        own = _facts(program, instruction, rank, name)
    except (ValueError, LookupError, RecursionError, DecodeError) as error:
        raise FlintError(f"{program.where}: damaged HLO at {name} ({error})") from error
    if own.kind.must_match or not facts:
        return (own,)
    return tuple(facts)


def _inside(program: Program, instruction: Any, depth: int) -> list[Any]:
    """Contractions and collectives in the computations of a fusion or a call."""
    if instruction.opcode not in ("fusion", "call", "async-start") or depth > _MAX_DEPTH:
        return []
    found = []
    for number in instruction.called_computation_ids:
        computation = program.computations.get(number)
        for inner in computation.instructions if computation is not None else ():
            if _class(inner).must_match:
                found.append(inner)
            found += _inside(program, inner, depth + 1)
    return found


def _class(instruction: Any) -> OpClass:
    if instruction.opcode == "custom-call":
        return library_class(instruction.custom_call_target)
    return hlo_class(instruction.opcode)


def _facts(program: Program, instruction: Any, rank: int, name: str) -> OpFacts:
    kind = _class(instruction)
    operands = [
        tensor
        for number in instruction.operand_ids
        if number in program.by_id
        for tensor in program.tensors(program.by_id[number])
    ]
    if kind == OpClass.CONVOLUTION and instruction.opcode == "custom-call":
        operands = operands[:2]  # a bias and added values come after them
    place = program.place(instruction)
    if not place.file and not place.name:  # the op that a fusion was built around
        place = program.place(program.by_name[name])
    source = f"{place.file}:{place.line}" if place.file else ""
    origin = origin_of(source_of(place))
    tensors: tuple[Tensor, ...] = tuple((t.shape, t.dtype) for t in operands)
    dtype = operands[0].dtype if operands else ""
    if kind == OpClass.GEMM:
        if instruction.opcode == "custom-call":
            gemms = _library_dot(backend_config(instruction, program.context), operands)
        else:
            gemms = _dot(instruction, operands)
        return OpFacts(kind, name, tensors, dtype=dtype, gemms=gemms, source=source, origin=origin)
    if kind.collective:
        if instruction.opcode in ("all-gather-start", "collective-permute-start"):
            operands = operands[: len(instruction.operand_ids)]
        return OpFacts(
            kind, name, tensors, tuple(t.bytes for t in operands), dtype,
            _group(program, instruction, kind, rank), None, source, origin,
            reduction=_reduction(program, instruction, kind),
        )  # fmt: skip
    return OpFacts(
        kind, name, tensors, dtype=dtype, source=source, origin=origin,
        convolved=_convolved(program, instruction, operands),
    )  # fmt: skip


def _convolved(
    program: Program, instruction: Any, operands: Sequence[TensorType]
) -> tuple[int, ...]:
    """A convolution's number of results and its FLOPs; () for a library's, whose window is
    elsewhere.
    """
    if instruction.opcode != "convolution":
        return ()
    op = Op("convolution", (), (), convolution(instruction, program.context))
    [result] = program.tensors(instruction)
    flops = convolution_item(op, operands[0], operands[1], result).flops
    return math.prod(result.shape), flops


def _reduction(program: Program, instruction: Any, kind: OpClass) -> str:
    """The op of a one-op reduction, ignoring conversions."""
    if kind not in (OpClass.ALL_REDUCE, OpClass.REDUCE_SCATTER):
        return ""
    names = [
        inner.opcode
        for number in instruction.called_computation_ids
        if number in program.computations
        for inner in program.computations[number].instructions
        if inner.opcode not in ("parameter", "convert")
    ]
    return names[0] if len(names) == 1 else "computation" if names else ""


def _group(program: Program, instruction: Any, kind: OpClass, rank: int) -> tuple[int, ...]:
    """The ranks of a collective's group; for a permute, the rank's target."""
    if kind in (OpClass.COLLECTIVE_PERMUTE, OpClass.SEND, OpClass.RECV):
        pairs = [(pair.source, pair.target) for pair in instruction.source_target_pairs]
        return tuple(target for source, target in pairs if source == rank)
    written = replica_groups(instruction, program.context)
    groups = program.world.groups(
        written,
        instruction.opcode.removesuffix("-start").replace("-", "_"),
        channel=max(instruction.channel_id, 0),
        global_ids=instruction.use_global_device_ids,
    )
    return tuple(sorted(groups.members(rank).tolist()))


#: Prefix of a custom call's target -> what it computes.
_LIBRARIES = (
    ("__cublas$triangularSolve", OpClass.OTHER),
    ("__cublas$", OpClass.GEMM),
    ("__rocblas$", OpClass.GEMM),
    ("__cudnn$conv", OpClass.CONVOLUTION),
    ("__cudnn$fmha", OpClass.ATTENTION),
)


def library_class(target: str) -> OpClass:
    """The class of a custom call."""
    return next((kind for begin, kind in _LIBRARIES if target.startswith(begin)), OpClass.OTHER)


def _library_dot(config: str, operands: Sequence[TensorType]) -> tuple[Gemm, ...] | None:
    """The product of a cuBLAS call, whose dims are in its configuration."""
    try:
        entries = json.loads(config)
        entries = entries.get("gemm_backend_config", entries)
        numbers = entries["dot_dimension_numbers"]
        lhs, rhs = operands[0].shape, operands[1].shape
        batch = math.prod(lhs[int(dim)] for dim in numbers.get("lhs_batch_dimensions", ()))
        k, rhs_k = (
            math.prod(shape[int(dim)] for dim in numbers.get(f"{side}_contracting_dimensions", ()))
            for side, shape in (("lhs", lhs), ("rhs", rhs))
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    if min(batch, k, rhs_k) <= 0:
        return ((batch, 0, 0, 0),)
    return ((batch, math.prod(lhs) // batch // k, math.prod(rhs) // batch // rhs_k, k),)


def _dot(instruction: Any, operands: list[TensorType]) -> tuple[Gemm, ...]:
    numbers = pb.DotDimensionNumbers.FromString(instruction.dot_dimension_numbers)
    lhs, rhs = operands[0].shape, operands[1].shape
    batch = math.prod(lhs[dim] for dim in numbers.lhs_batch_dimensions)
    k = math.prod(lhs[dim] for dim in numbers.lhs_contracting_dimensions)
    rhs_k = math.prod(rhs[dim] for dim in numbers.rhs_contracting_dimensions)
    if min(batch, k, rhs_k) <= 0:
        return ((batch, 0, 0, 0),)
    return ((batch, math.prod(lhs) // batch // k, math.prod(rhs) // batch // rhs_k, k),)
