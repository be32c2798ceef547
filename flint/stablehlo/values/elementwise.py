"""Expressions of elementwise ops on integers over those of their operands.

The idea: StableHLO's integer arithmetic, op by op, in the form that ``flint.graph.scalars``
evaluates for all ranks and iterations at once.  Results wrap around at the width of their type, as
StableHLO's do; ``ui64`` has no expressions.
"""

from __future__ import annotations

from flint.graph.scalars import FOLDABLE, Scalar, combine, constant, wrap
from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Module, Op

#: Ops whose exact result may lie outside the operands' type.
_WRAPPING = frozenset({"add", "subtract", "multiply", "divide", "negate", "abs"})
_SHIFTS = frozenset({"shift_left", "shift_right_arithmetic", "shift_right_logical"})
#: What ops on booleans are called on integers.
_ON_BOOLEANS = {
    "add": "or",
    "and": "and",
    "maximum": "or",
    "minimum": "and",
    "multiply": "and",
    "not": "not",
    "or": "or",
    "select": "select",
    "xor": "xor",
}

#: Ops whose result has the elements of their operand, in order; what Shardy says of a value does
#: not change it.
SAME_ELEMENTS = frozenset(
    {"mhlo.copy", "reshape", "sdy.propagation_barrier", "sdy.reshard", "sdy.sharding_constraint"}
)
#: Ops that ``expression`` knows.
ELEMENTWISE = (FOLDABLE - {"to_bool", "to_int", "wrap"}) | {"convert", "bitcast_convert"}


def is_integer(dtype: str) -> bool:
    """Whether elements of this type are integers or booleans that expressions can hold."""
    return dtype.startswith(("i", "ui")) and dtype != "ui64"


def is_scalar_integer(item: TensorType) -> bool:
    """Whether a value of this type is one integer or boolean that an expression can stand for."""
    return is_integer(item.dtype) and item.elements == 1 and not item.dynamic


def expression(op: Op, module: Module, args: tuple[Scalar, ...]) -> Scalar | None:
    """The expression of an elementwise op on integers over those of its operands."""
    name, dtype = op.name, module.type_of(op.results[0]).dtype
    if name in ("convert", "bitcast_convert"):
        return _convert(name, args[0], module.type_of(op.operands[0]).dtype, dtype)
    if name == "compare":
        return combine("compare", args, op.attr("direction"))
    if dtype == "i1":
        return combine(_ON_BOOLEANS[name], args) if name in _ON_BOOLEANS else None
    if name == "not":
        return wrap(combine("subtract", (constant(-1), *args)), dtype)
    if name in _SHIFTS:
        return combine(name, args, dtype)
    made = combine(name, args)
    return wrap(made, dtype) if name in _WRAPPING else made


def _convert(name: str, scalar: Scalar, source: str, target: str) -> Scalar | None:
    if not all(is_integer(dtype) for dtype in (source, target)):
        return None
    if source == target:
        return scalar
    if target == "i1":
        return combine("to_bool", (scalar,))
    number = combine("to_int", (scalar,)) if source == "i1" else scalar
    return number if source == "i1" and name == "convert" else wrap(number, target)
