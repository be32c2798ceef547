"""An executed HLO module -> what is known of each instruction, by its name.

The idea: a profiler names instructions; this is the dictionary.  An instruction that calls a fused
computation stands for what is in there: the contractions and collectives one by one, and the rest
as one op.

    module_facts(proto, "trace").of("all-reduce.3", rank=0)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.hlo import hlo_pb2 as pb
from flint.hlo.attributes import backend_config, convolution
from flint.hlo.collectives import replica_groups
from flint.hlo.context import Context
from flint.hlo.locations import Locations
from flint.hlo.messages import parse_module
from flint.hlo.shapes import Tree, TypeTable
from flint.observed.classes import OpClass, hlo_class
from flint.observed.columns import Gemm, OpFacts, Tensor, origin_of
from flint.stablehlo.collectives.world import World
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.contraction import convolution_item
from flint.stablehlo.sources.phases import source_of

_MAX_DEPTH = 64


def module_facts(data: bytes, where: str) -> ModuleFacts:
    """The module of a serialised ``HloProto`` or ``HloModuleProto``.

    Raises:
        FlintError: it is none.
    """
    try:
        return ModuleFacts(parse_module(data), where)
    except DecodeError as error:
        raise FlintError(f"{where}: damaged HLO ({error})") from error


class ModuleFacts:
    """Instructions of a module by name.

    Attributes:
        name: the module's.
        entry: instructions of its entry computation, which run once per run.
        root: the id of the one that this ends with; -1 without an entry.
        devices: number of ranks that its device assignment names; None where it has none.
    """

    def __init__(self, proto: pb.HloModuleProto, where: str) -> None:
        self.name = proto.name
        self._where = where
        assignment = proto.device_assignment
        replicas, partitions = _counts(assignment)
        self.devices = replicas * partitions if replicas else None
        self._world = World(partitions or 1, replicas or 1)
        self._context = Context(tuple(proto.payloads))
        self._types = TypeTable(where, {})
        self._locations = Locations(proto.stack_frame_index, tuple(proto.payloads))
        self._computations = {item.id: item for item in proto.computations}
        entry = self._computations.get(proto.entry_computation_id)
        self.entry = frozenset(
            instruction.name for instruction in (entry.instructions if entry is not None else ())
        )
        self.root = entry.root_id if entry is not None else -1
        self._by_name: dict[str, Any] = {}
        self._by_id: dict[int, Any] = {}
        for computation in proto.computations:
            for instruction in computation.instructions:
                self._by_id[instruction.id] = instruction
                self._by_name[instruction.name] = instruction

    def of(self, name: str, rank: int) -> tuple[OpFacts, ...]:
        """What an executed instruction did; () where the module has none of that name.

        Raises:
            FlintError: groups or types that make no sense.
        """
        instruction = self._by_name.get(name)
        if instruction is None:
            return ()
        try:
            inner = self._inside(instruction, 0)
            facts = [self._facts(item, rank, name) for item in inner]
            own = self._facts(instruction, rank, name)
        except (ValueError, LookupError, RecursionError, DecodeError) as error:
            raise FlintError(f"{self._where}: damaged HLO at {name} ({error})") from error
        if own.kind.must_match or not facts:
            return (own,)
        return tuple(facts)

    def _inside(self, instruction: Any, depth: int) -> list[Any]:
        """Contractions and collectives in the computations that a fusion or a call stands for."""
        if instruction.opcode not in ("fusion", "call", "async-start") or depth > _MAX_DEPTH:
            return []
        found = []
        for number in instruction.called_computation_ids:
            computation = self._computations.get(number)
            for inner in computation.instructions if computation is not None else ():
                call = inner.opcode == "custom-call"
                kind = library_class(inner.custom_call_target) if call else hlo_class(inner.opcode)
                if kind.must_match:
                    found.append(inner)
                found += self._inside(inner, depth + 1)
        return found

    def _facts(self, instruction: Any, rank: int, name: str) -> OpFacts:
        kind = hlo_class(instruction.opcode)
        if instruction.opcode == "custom-call":
            kind = library_class(instruction.custom_call_target)
        operands = [
            tensor
            for number in instruction.operand_ids
            if number in self._by_id
            for tensor in self._tensors(self._by_id[number].shape)
        ]
        if kind == OpClass.CONVOLUTION and instruction.opcode == "custom-call":
            operands = operands[:2]  # a bias and what is added come behind
        place = self._place(instruction)
        if not place.file and not place.name:  # an op that a fusion was built around
            place = self._place(self._by_name[name])
        source = f"{place.file}:{place.line}" if place.file else ""
        origin = origin_of(source_of(place))
        tensors: tuple[Tensor, ...] = tuple((t.shape, t.dtype) for t in operands)
        dtype = operands[0].dtype if operands else ""
        if kind == OpClass.GEMM:
            if instruction.opcode == "custom-call":
                gemms = _library_dot(backend_config(instruction, self._context), operands)
            else:
                gemms = _dot(instruction, operands)
            return OpFacts(
                kind, name, tensors, dtype=dtype, gemms=gemms, source=source, origin=origin
            )
        if kind.collective:
            if instruction.opcode in ("all-gather-start", "collective-permute-start"):
                operands = operands[: len(instruction.operand_ids)]
            return OpFacts(
                kind, name, tensors, tuple(t.bytes for t in operands), dtype,
                self._group(instruction, kind, rank), None, source, origin,
                reduction=self._reduction(instruction, kind),
            )  # fmt: skip
        return OpFacts(
            kind, name, tensors, dtype=dtype, source=source, origin=origin,
            convolved=self._convolved(instruction, operands),
        )  # fmt: skip

    def _convolved(self, instruction: Any, operands: Sequence[TensorType]) -> tuple[int, ...]:
        """What a convolution makes and its FLOPs; () of a library's, whose window is elsewhere."""
        if instruction.opcode != "convolution":
            return ()
        op = Op("convolution", (), (), convolution(instruction, self._context))
        [result] = self._tensors(instruction.shape)
        flops = convolution_item(op, operands[0], operands[1], result).flops
        return math.prod(result.shape), flops

    def _reduction(self, instruction: Any, kind: OpClass) -> str:
        """The op of a reduction of one op, conversions left aside."""
        if kind not in (OpClass.ALL_REDUCE, OpClass.REDUCE_SCATTER):
            return ""
        names = [
            inner.opcode
            for number in instruction.called_computation_ids
            if number in self._computations
            for inner in self._computations[number].instructions
            if inner.opcode not in ("parameter", "convert")
        ]
        return names[0] if len(names) == 1 else "computation" if names else ""

    def _place(self, instruction: Any) -> Any:
        number = self._locations.numbers.setdefault(
            instruction.metadata, len(self._locations.numbers)
        )
        return self._locations(number)

    def _tensors(self, shape: bytes) -> list[TensorType]:
        found: list[TensorType] = []

        def walk(tree: Tree) -> None:
            if isinstance(tree, tuple):
                for part in tree:
                    walk(part)
            else:
                found.append(self._types.types[tree])

        walk(self._types.tree(shape))
        return found

    def _group(self, instruction: Any, kind: OpClass, rank: int) -> tuple[int, ...]:
        """The ranks of a collective's group; of a permute, whom the rank sends to."""
        if kind in (OpClass.COLLECTIVE_PERMUTE, OpClass.SEND, OpClass.RECV):
            pairs = [(pair.source, pair.target) for pair in instruction.source_target_pairs]
            return tuple(target for source, target in pairs if source == rank)
        written = replica_groups(instruction, self._context)
        groups = self._world.groups(
            written,
            instruction.opcode.removesuffix("-start").replace("-", "_"),
            channel=max(instruction.channel_id, 0),
            global_ids=instruction.use_global_device_ids,
        )
        return tuple(sorted(groups.members(rank).tolist()))


def _counts(assignment: Any) -> tuple[int, int]:
    return assignment.replica_count, assignment.computation_count


#: Beginning of a custom call's target -> what it computes.
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
    """The product of a call of cuBLAS, whose dims stand in its configuration."""
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
