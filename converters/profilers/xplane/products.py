"""Matrix products that XLA has turned into multiplications, found in the executed HLO.

The idea: a product without a sum (an outer product, a scaled matrix) becomes a multiplication of
two broadcasts, with the product's name or none at all; a product of vectors becomes a
multiplication, which has no name, and a sum, which has the product's; a multiplication by zeros
and ones (a one-hot) becomes a choice between zero and the other value.  All are fused with
neighbouring ops.  Their sizes are read from the HLO itself: the number of elements of each side of
the multiplication before it is repeated.

    Multiplied(program).of("broadcast_multiply_fusion")    # gemms (1, 64, 32, 1)
"""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.program import Program
from flint.errors import FlintError
from flint.hlo.literals import constant_value
from flint.observed.classes import OpClass
from flint.observed.columns import Gemm, OpFacts, origin_of
from flint.stablehlo.read.records import SourceInfo
from flint.stablehlo.sources.phases import source_of

_MAX_DEPTH = 64
#: How JAX names a matrix product; XLA joins the names of merged ops by semicolons.
_PRODUCT = "/dot_general"
#: Ops that are looked through on a side of a multiplication: they change neither the number of
#: elements nor their values.
_SAME = frozenset({"bitcast", "reshape", "transpose", "copy", "convert"})


class Multiplied:
    """Multiplications in a module that were matrix products."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def of(self, name: str) -> tuple[OpFacts, ...]:
        """The products that an executed instruction computes by multiplying.

        Each has the class of element-wise work and its ``gemms``: (batch, m, n, 1), or (batch, 1,
        1, k) for a product of vectors.  If the sum is not named, or was joined with another sum,
        that is (elements, 1, 1, 0).

        Raises:
            FlintError: damaged HLO.
        """
        instruction = self._program.by_name.get(name)
        if instruction is None:
            return ()
        try:
            inside = self._program.inside(instruction)
            return tuple(
                filter(None, (self._facts(item, name) for item in inside if self._factors(item)))
            )
        except (ValueError, LookupError, RecursionError, DecodeError) as error:
            raise FlintError(f"{self._program.where}: damaged HLO at {name} ({error})") from error

    def _factors(self, instruction: Any) -> list[int]:
        """The two values that an instruction multiplies; [] if it does not."""
        operands = list(instruction.operand_ids)
        if instruction.opcode == "multiply":
            return operands
        if instruction.opcode != "select":
            return []
        chosen = [one for one in operands[1:] if not self._is_zero(one)]
        return [operands[0], *chosen] if len(chosen) == 1 else []

    def _is_zero(self, number: int) -> bool:
        """Whether a value is zeros."""
        instruction = self._program.by_id[number]
        for _ in range(_MAX_DEPTH):
            if instruction.opcode not in (*_SAME, "broadcast"):
                break
            instruction = self._program.by_id[instruction.operand_ids[0]]
        known = constant_value(instruction.literal) if instruction.opcode == "constant" else None
        return known is not None and not known.any()

    def _facts(self, multiply: Any, name: str) -> OpFacts | None:
        place, whole = self._program.place(multiply), self._program.tensor(multiply)
        if whole is None:
            return None
        total = math.prod(whole.shape)
        size = self._sizes(multiply, total)
        if not _is_product(place):
            if place.name or place.file:
                return None
            if sums := self._summed(multiply, set()):
                size = total, 1, 1, 0
                place = next(
                    (one for one in map(self._program.place, sums) if _is_product(one)), place
                )
                batches = {self._batch(one) for one in sums}
                if len(batches) == 1 and (batch := batches.pop()) and total % batch == 0:
                    size = batch, 1, 1, total // batch
            elif size is not None and min(size[1:3]) == 1:
                return None  # any multiplication by a repeated value
        if size is None:
            return None
        return OpFacts(
            OpClass.ELEMENTWISE, name, ((whole.shape, whole.dtype),), dtype=whole.dtype,
            gemms=(size,), source=f"{place.file}:{place.line}" if place.file else "",
            origin=origin_of(source_of(place)),
        )  # fmt: skip

    def _batch(self, sum_: Any) -> int:
        """Elements of a sum that belongs only to a product; 0 for others."""
        found = self._program.tensor(sum_)
        names = self._program.place(sum_).name.split(";")
        alone = all(name.endswith(_PRODUCT) for name in names)
        return math.prod(found.shape) if found is not None and alone else 0

    def _sizes(self, multiply: Any, total: int) -> Gemm | None:
        """Each dim of the result is one of both sides (batch) or of one of them (m, n)."""
        sides = [self._elements(number, 0) for number in self._factors(multiply)]
        if len(sides) != 2 or not total or sides[0] * sides[1] % total:
            return None
        batch = sides[0] * sides[1] // total
        if not batch or sides[0] % batch or sides[1] % batch:
            return None
        return batch, sides[0] // batch, sides[1] // batch, 1

    def _elements(self, number: int, depth: int) -> int:
        """Elements of a value before it is repeated."""
        instruction = self._program.by_id[number]
        if depth < _MAX_DEPTH and instruction.opcode in (*_SAME, "broadcast"):
            return self._elements(instruction.operand_ids[0], depth + 1)
        found = self._program.tensor(instruction)
        return math.prod(found.shape) if found is not None else 0

    def _summed(self, instruction: Any, seen: set[int]) -> list[Any]:
        """The sums that read a value; none if anything else reads it."""
        found: list[Any] = []
        for user in self._program.readers(instruction, seen):
            if user.opcode == "reduce":
                found.append(user)
                continue
            known = user.opcode in (*_SAME, "reduce-window")
            sums = self._summed(user, seen) if known else []
            if not sums:
                return []
            found += sums
        return found


def _is_product(place: SourceInfo) -> bool:
    return any(part.endswith(_PRODUCT) for part in place.name.split(";"))
