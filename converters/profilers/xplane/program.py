"""An executed HLO module as instructions that know who calls and who reads them.

The idea: XLA puts instructions into fused computations and loops' bodies; to follow a value from
its producer to its readers or back means to pass these borders, which is done here.

    program = Program(module)
    program.readers(program.by_name["multiply.3"], set())
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from flint.hlo import hlo_pb2 as pb

_MAX_DEPTH = 64
#: Ops that stand for what is in their computation.
CALLS = ("fusion", "call")


class Program:
    """Instructions of a module.

    Attributes:
        by_id, by_name: each instruction.
    """

    def __init__(self, module: pb.HloModuleProto) -> None:
        self.by_id: dict[int, Any] = {}
        self.by_name: dict[str, Any] = {}
        self._computations = {item.id: item for item in module.computations}
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

    def inside(self, instruction: Any, depth: int = 0) -> list[Any]:
        """An instruction, or those that a fusion or a call stands for, in order."""
        if instruction.opcode not in CALLS or depth > _MAX_DEPTH:
            return [instruction]
        return [
            item
            for number in instruction.called_computation_ids
            if number in self._computations
            for inner in self._computations[number].instructions
            for item in self.inside(inner, depth + 1)
        ]

    def readers(self, instruction: Any, seen: set[int]) -> list[Any]:
        """What reads a value, in the computation it is in and behind or inside of fusions.

        Args:
            instruction: the value.
            seen: instructions that are not looked at again; added to.
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
                for inner in self._computations[number].instructions:
                    if inner.opcode == "parameter" and inner.parameter_number in places:
                        found += self.readers(inner, seen)
        return found

    def source(self, instruction: Any) -> Any | None:
        """The value that this one is, across one border of a fusion, a tuple or a loop.

        None where a value begins: a parameter of the module, an op that computes, or a loop that
        changes it.
        """
        if instruction.opcode in CALLS:
            numbers = instruction.called_computation_ids
            return self.by_id[self._computations[numbers[0]].root_id] if numbers else None
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
        """Whether a loop gives itself another value at this place of what it carries.

        Args:
            tuple_: a loop, or the parameter of one's body or condition; of others it is not asked.
            place: in the tuple.
        """
        if tuple_.opcode == "parameter":
            calls = self._calls[self._home[tuple_.id]]
            tuple_ = calls[0] if calls else tuple_
        if tuple_.opcode != "while":
            return False
        body = self._computations[tuple_.called_computation_ids[0]]
        root = self.by_id[body.root_id]
        if root.opcode != "tuple":
            return True  # nothing is known of it
        value = self.by_id[root.operand_ids[place]]
        for _ in range(_MAX_DEPTH):
            if value.opcode not in ("copy", "bitcast"):
                break
            value = self.by_id[value.operand_ids[0]]
        if value.opcode != "get-tuple-element" or value.tuple_index != place:
            return True
        return bool(self.by_id[value.operand_ids[0]].opcode != "parameter")


def _operand(call: Any, parameter: Any) -> int:
    """Which value a call gives for a parameter."""
    number: int = call.operand_ids[0 if call.opcode == "while" else parameter.parameter_number]
    return number
