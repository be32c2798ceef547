"""An executed HLO module as instructions with their callers and readers.

The idea: a profiler names instructions; this is the index of them, with their types and source
lines.  XLA puts instructions into fused computations and loop bodies; following a value from its
producer to its readers or back means crossing these boundaries, which is done here.

    program = Program(parse_module(proto), "trace")
    program.readers(program.by_name["multiply.3"], set())
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from flint.graph.tensor_types import TensorType
from flint.hlo import hlo_pb2 as pb
from flint.hlo.context import Context
from flint.hlo.locations import Locations
from flint.hlo.messages import signature
from flint.hlo.shapes import TypeTable, flatten
from flint.stablehlo.collectives.world import World
from flint.stablehlo.read.records import SourceInfo

_MAX_DEPTH = 64
#: Ops that are replaced by their computation's content.
CALLS = ("fusion", "call")


class Program:
    """Instructions of a module.

    Attributes:
        name: the module's name.
        signature: types of its arguments and results.
        where: the file, for errors.
        by_id, by_name: each instruction.
        computations: by id.
        entry: names of the instructions of the entry computation, which run once per run.
        root: the instruction that the entry ends with; None without an entry.
        types: types of the module.
        context: what attributes of instructions refer to.
        world: ranks according to the module's device assignment.
        devices: number of ranks in the device assignment; None if it has none.
    """

    def __init__(self, module: pb.HloModuleProto, where: str) -> None:
        self.name, self.where, self.signature = module.name, where, signature(module)
        replicas = module.device_assignment.replica_count
        partitions = module.device_assignment.computation_count
        self.devices = replicas * partitions if replicas else None
        self.world = World(partitions or 1, replicas or 1)
        self.context = Context(tuple(module.payloads))
        self.types = TypeTable(where)
        self._locations = Locations(module.stack_frame_index, tuple(module.payloads))
        self.by_id: dict[int, Any] = {}
        self.by_name: dict[str, Any] = {}
        self.computations = {item.id: item for item in module.computations}
        self._users: dict[int, list[Any]] = defaultdict(list)
        self._root_of: dict[int, int] = {}
        self._home: dict[int, int] = {}
        self._calls: dict[int, list[Any]] = defaultdict(list)
        for computation in module.computations:
            self._root_of[computation.root_id] = computation.id
            for instruction in computation.instructions:
                self.by_id[instruction.id] = instruction
                self.by_name[instruction.name] = instruction
                self._home[instruction.id] = computation.id
                for number in instruction.operand_ids:
                    self._users[number].append(instruction)
                if instruction.opcode in (*CALLS, "while"):
                    for number in instruction.called_computation_ids:
                        self._calls[number].append(instruction)
        self.entry = frozenset(self.names_in(module.entry_computation_id))
        entry = self.computations.get(module.entry_computation_id)
        self.root = self.by_id.get(entry.root_id) if entry is not None else None

    def with_opcode(self, opcode: str) -> list[Any]:
        """The instructions of an opcode, in the order of the module."""
        return [one for one in self.by_name.values() if one.opcode == opcode]

    def names_in(self, computation: int) -> list[str]:
        """Names of the instructions of a computation; [] if the module has none of that id."""
        found = self.computations.get(computation)
        return [one.name for one in found.instructions] if found is not None else []

    def home(self, instruction: Any) -> int:
        """The computation of an instruction."""
        return self._home[instruction.id]

    def place(self, instruction: Any) -> SourceInfo:
        """An instruction's place in the source."""
        numbers = self._locations.numbers
        return self._locations(numbers.setdefault(instruction.metadata, len(numbers)))

    def tensors(self, instruction: Any) -> list[TensorType]:
        """The types of an instruction's result, those of a tuple one by one."""
        return [self.types.types[leaf] for leaf in flatten(self.types.tree(instruction.shape))]

    def tensor(self, instruction: Any) -> TensorType | None:
        """The type of an instruction's result; None for a tuple."""
        tree = self.types.tree(instruction.shape)
        return self.types.types[tree] if isinstance(tree, int) else None

    def inside(self, instruction: Any, depth: int = 0) -> list[Any]:
        """An instruction, or those inside a fusion or a call, in order."""
        if instruction.opcode not in CALLS or depth > _MAX_DEPTH:
            return [instruction]
        return [
            item
            for number in instruction.called_computation_ids
            if number in self.computations
            for inner in self.computations[number].instructions
            for item in self.inside(inner, depth + 1)
        ]

    def readers(self, instruction: Any, seen: set[int]) -> list[Any]:
        """The readers of a value, in its computation and after or inside fusions.

        Args:
            instruction: the value.
            seen: instructions that are not visited again; extended here.
        """
        found: list[Any] = []
        if instruction.id in seen:
            return found
        seen.add(instruction.id)
        for call in self._calls[self._root_of.get(instruction.id, -1)]:
            found += self.readers(call, seen) if call.opcode in CALLS else [call]
        for user in self._users[instruction.id]:
            if user.opcode not in CALLS:
                found.append(user)
                continue
            places = [n for n, one in enumerate(user.operand_ids) if one == instruction.id]
            for number in user.called_computation_ids:
                for inner in self.computations[number].instructions:
                    if inner.opcode == "parameter" and inner.parameter_number in places:
                        found += self.readers(inner, seen)
        return found

    def source(self, instruction: Any) -> Any | None:
        """The value that this one equals, across one boundary of a fusion, a tuple or a loop.

        None at a value's origin: a parameter of the module, an op that computes, or a loop that
        changes it.
        """
        if instruction.opcode in CALLS:
            numbers = instruction.called_computation_ids
            return self.by_id[self.computations[numbers[0]].root_id] if numbers else None
        if instruction.opcode == "parameter":
            calls = self._calls[self._home[instruction.id]]
            return self.by_id[_operand(calls[0], instruction)] if calls else None
        if instruction.opcode != "get-tuple-element":
            return None
        place = instruction.tuple_index
        tuple_ = self.by_id[instruction.operand_ids[0]]
        for _ in range(_MAX_DEPTH):
            if tuple_.opcode == "tuple":
                return self.by_id[tuple_.operand_ids[place]]
            if self._changes(tuple_, place):
                return None
            before = self.by_id[tuple_.operand_ids[0]] if tuple_.opcode == "while" else None
            before = self.source(tuple_) if before is None else before
            if before is None:
                return None
            tuple_ = before
        return None

    def _changes(self, tuple_: Any, place: int) -> bool:
        """Whether a loop changes the carried value at this position.

        Args:
            tuple_: a loop, or the parameter of its body or condition.
            place: position in the tuple.
        """
        if tuple_.opcode == "parameter":
            calls = self._calls[self._home[tuple_.id]]
            tuple_ = calls[0] if calls else tuple_
        if tuple_.opcode != "while":
            return False
        body = self.computations[tuple_.called_computation_ids[0]]
        root = self.by_id[body.root_id]
        if root.opcode != "tuple":
            return True  # nothing is known about it
        value = self.by_id[root.operand_ids[place]]
        for _ in range(_MAX_DEPTH):
            if value.opcode not in ("copy", "bitcast"):
                break
            value = self.by_id[value.operand_ids[0]]
        if value.opcode != "get-tuple-element" or value.tuple_index != place:
            return True
        return bool(self.by_id[value.operand_ids[0]].opcode != "parameter")


def _operand(call: Any, parameter: Any) -> int:
    """The value that a call passes for a parameter."""
    number: int = call.operand_ids[0 if call.opcode == "while" else parameter.parameter_number]
    return number
