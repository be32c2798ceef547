"""Matrix products that XLA has turned into multiplications, found in the executed HLO.

The idea: a product without a sum (an outer product, a scaled matrix) becomes a multiplication of
two broadcasts, which keeps the product's name; a product of vectors becomes a multiplication, which
has no name at all, and a sum, which has the product's.  Both are fused with what stands around
them.  Their sizes are read from the HLO itself: how many elements each side of the multiplication
has before it is repeated.

    Multiplied(module, "trace").of("broadcast_multiply_fusion")     # of gemms (1, 64, 32, 1)
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb
from flint.hlo.locations import Locations
from flint.hlo.shapes import TypeTable
from flint.phases import source_of
from flint.stablehlo.records import SourceInfo
from flint.tensor_types import TensorType
from flint.validation.classes import OpClass
from flint.validation.observed import Gemm, OpFacts, origin_of

_MAX_DEPTH = 64
_CALLS = ("fusion", "call")
#: How JAX names a matrix product; XLA joins the names of merged ops by semicolons.
_PRODUCT = "/dot_general"
#: A side of a multiplication is looked at through these: they change neither how many elements
#: there are nor what they are worth.
_SAME = frozenset({"bitcast", "reshape", "transpose", "copy", "convert"})


class Multiplied:
    """Multiplications of a module that were matrix products.

    Args:
        module: what was executed.
        where: the file, for errors.
    """

    def __init__(self, module: pb.HloModuleProto, where: str) -> None:
        self._where = where
        self._types = TypeTable(where, {})
        self._locations = Locations(module.stack_frame_index, tuple(module.payloads))
        self._computations = {item.id: item for item in module.computations}
        self._by_id: dict[int, Any] = {}
        self._by_name: dict[str, Any] = {}
        self._users: dict[int, list[Any]] = defaultdict(list)
        self._root_of: dict[int, int] = {}
        self._calls: dict[int, list[Any]] = defaultdict(list)
        for computation in module.computations:
            self._root_of[computation.root_id] = computation.id
            for instruction in computation.instructions:
                self._by_id[instruction.id] = instruction
                self._by_name[instruction.name] = instruction
                for number in instruction.operand_ids:
                    self._users[number].append(instruction)
                if instruction.opcode in _CALLS:
                    for number in instruction.called_computation_ids:
                        self._calls[number].append(instruction)

    def of(self, name: str) -> tuple[OpFacts, ...]:
        """The products that an executed instruction computes by multiplying.

        Each is of the class of element-wise work, which it is, and has its ``gemms``: (batch, m, n,
        1), and (elements, 1, 1, 1) of a product of vectors, whose batch and sum XLA may have put
        together.  Where XLA has also put its sum together with another one, it has no source.

        Raises:
            FlintError: damaged HLO.
        """
        instruction = self._by_name.get(name)
        if instruction is None:
            return ()
        try:
            multiplies = [
                item for item in self._inside(instruction, 0) if item.opcode == "multiply"
            ]
            return tuple(filter(None, (self._facts(item, name) for item in multiplies)))
        except (ValueError, LookupError, RecursionError, DecodeError) as error:
            raise FlintError(f"{self._where}: damaged HLO at {name} ({error})") from error

    def _inside(self, instruction: Any, depth: int) -> list[Any]:
        """An instruction, or those that a fusion or a call stands for."""
        if instruction.opcode not in _CALLS or depth > _MAX_DEPTH:
            return [instruction]
        return [
            item
            for number in instruction.called_computation_ids
            if number in self._computations
            for inner in self._computations[number].instructions
            for item in self._inside(inner, depth + 1)
        ]

    def _facts(self, multiply: Any, name: str) -> OpFacts | None:
        place, whole = self._place(multiply), self._type(multiply)
        if whole is None:
            return None
        total = math.prod(whole.shape)
        size: Gemm | None
        if _is_product(place):
            size = self._sizes(multiply, total)
        elif not place.name and not place.file and (sums := self._summed(multiply, set())):
            size = total, 1, 1, 1
            place = next((where for where in map(self._place, sums) if _is_product(where)), place)
        else:
            return None
        if size is None:
            return None
        return OpFacts(
            OpClass.ELEMENTWISE, name, ((whole.shape, whole.dtype),), dtype=whole.dtype,
            gemms=(size,), source=f"{place.file}:{place.line}" if place.file else "",
            origin=origin_of(source_of(place)),
        )  # fmt: skip

    def _sizes(self, multiply: Any, total: int) -> Gemm | None:
        """Each dim of the result is one of both sides (batch) or of one of them (m, n)."""
        sides = [self._elements(number, 0) for number in multiply.operand_ids]
        if len(sides) != 2 or not total or sides[0] * sides[1] % total:
            return None
        batch = sides[0] * sides[1] // total
        if not batch or sides[0] % batch or sides[1] % batch:
            return None
        return batch, sides[0] // batch, sides[1] // batch, 1

    def _elements(self, number: int, depth: int) -> int:
        """Elements of a value before it is repeated."""
        instruction = self._by_id[number]
        if depth < _MAX_DEPTH and instruction.opcode in (*_SAME, "broadcast"):
            return self._elements(instruction.operand_ids[0], depth + 1)
        found = self._type(instruction)
        return math.prod(found.shape) if found is not None else 0

    def _summed(self, instruction: Any, seen: set[int]) -> list[Any]:
        """The sums that a value goes into; none where it goes anywhere else as well."""
        found: list[Any] = []
        for user in self._readers(instruction, seen):
            if user.opcode == "reduce":
                found.append(user)
                continue
            known = user.opcode in (*_SAME, "reduce-window")
            sums = self._summed(user, seen) if known else []
            if not sums:
                return []
            found += sums
        return found

    def _readers(self, instruction: Any, seen: set[int]) -> list[Any]:
        """What reads a value, in the computation it is in and behind or inside of fusions."""
        found: list[Any] = []
        if instruction.id in seen:
            return found
        seen.add(instruction.id)
        for call in self._calls[self._root_of.get(instruction.id, -1)]:
            found += self._readers(call, seen)
        for user in self._users[instruction.id]:
            if user.opcode not in _CALLS:
                found.append(user)
                continue
            places = [n for n, one in enumerate(user.operand_ids) if one == instruction.id]
            for number in user.called_computation_ids:
                for inner in self._computations[number].instructions:
                    if inner.opcode == "parameter" and inner.parameter_number in places:
                        found += self._readers(inner, seen)
        return found

    def _type(self, instruction: Any) -> TensorType | None:
        tree = self._types.tree(instruction.shape)
        return self._types.types[tree] if isinstance(tree, int) else None

    def _place(self, instruction: Any) -> SourceInfo:
        numbers = self._locations.numbers
        return self._locations(numbers.setdefault(instruction.metadata, len(numbers)))


def _is_product(place: SourceInfo) -> bool:
    return any(part.endswith(_PRODUCT) for part in place.name.split(";"))
