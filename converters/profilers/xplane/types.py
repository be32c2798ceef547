"""Element types of an executed program other than those that it computes with.

The idea: XLA's CPU backend multiplies matrices in float32 and int32, sends floats of 8 bits as
float16, and converts narrower values first; the conversions are in the executed HLO, perhaps in
another fusion or before a loop.  The program's arguments and results keep their types.

    narrower(program, program.by_name["dot.3"])      # (("f16", "f8E4M3FN"), ())
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flint.converters.profilers.xplane.program import Program
from flint.graph.tensor_types import DTYPE_BITS
from flint.observed.columns import Tensor

_MAX_STEPS = 256
#: A value is followed back through the first operand of these ops, which only move it.
_MOVES = frozenset(
    {
        "convert", "bitcast", "reshape", "transpose", "copy", "broadcast", "slice", "pad",
        "dynamic-slice", "gather", "all-gather", "collective-permute", "all-to-all",
    }
)  # fmt: skip
_CONVERTED = ("f8", "f16", "bf16", "f32", "f64", "i4", "ui4", "i8", "ui8", "i16", "ui16")


def narrower(program: Program, reader: Any) -> tuple[tuple[str, ...], ...]:
    """Narrower types that the operands of a product or a collective had before.

    Args:
        program: the program.
        reader: the instruction.

    Returns:
        Per operand, sorted.
    """
    return tuple(_on_its_way(program, number) for number in reader.operand_ids)


def _on_its_way(program: Program, number: int) -> tuple[str, ...]:
    found: set[str] = set()
    value: Any | None = program.by_id[number]
    own = _dtype(program, value)
    for _ in range(_MAX_STEPS):
        if value is None:
            break
        dtype = _dtype(program, value)
        if dtype.startswith(_CONVERTED) and DTYPE_BITS[dtype] < DTYPE_BITS.get(own, 0):
            found.add(dtype)
        moved = value.opcode in _MOVES
        value = program.by_id[value.operand_ids[0]] if moved else program.source(value)
    return tuple(sorted(found))


def parameters(program: Program) -> tuple[Tensor, ...]:
    """The argument tensors of a module."""
    found = [program.by_name[name] for name in program.entry]
    return _tensors(program, [one for one in found if one.opcode == "parameter"])


def results(program: Program) -> tuple[Tensor, ...]:
    """The tensors that a module returns."""
    return _tensors(program, [program.root] if program.root is not None else [])


def _tensors(program: Program, instructions: Collection[Any]) -> tuple[Tensor, ...]:
    tensors = [tensor for one in instructions for tensor in program.tensors(one)]
    return tuple(sorted((one.shape, one.dtype) for one in tensors))


def _dtype(program: Program, instruction: Any) -> str:
    tensor = program.tensor(instruction)
    return tensor.dtype if tensor is not None else ""
