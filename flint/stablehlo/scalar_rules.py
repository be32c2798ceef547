"""Scalar expressions of ops: what an integer value is in terms of rank, counters and constants.

The idea: as the walker passes an op whose result is one integer, it asks here for the op's
expression over its operands' expressions.  Everything else has none, which is always a safe answer.
Results wrap around at the width of their type, as StableHLO's do; ``ui64`` has no expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from flint.scalars import FOLDABLE, Scalar, combine, constant, take, wrap
from flint.stablehlo.records import Block, Module, Op
from flint.tensor_types import TensorType

Lookup = Callable[[int], Scalar | None]
Tables = Mapping[int, NDArray[np.int64]]

_FORWARDED = frozenset({"reshape", "mhlo.copy", "broadcast_in_dim", "broadcast"})
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


def is_scalar_integer(item: TensorType) -> bool:
    """Whether a value of this type is one integer or boolean that an expression can stand for."""
    return (
        item.dtype.startswith(("i", "ui"))
        and item.dtype != "ui64"
        and item.elements == 1
        and not item.dynamic
    )


def scalar_of(op: Op, module: Module, lookup: Lookup, tables: Tables) -> Scalar | None:
    """The expression of ``op``'s first result, or None.

    Args:
        op: an op whose result is one integer.
        module: for types and callees.
        lookup: expression of an operand, or None.
        tables: constant arrays by value id.
    """
    name = op.name
    dtype = module.type_of(op.results[0]).dtype
    if name == "constant":
        value = op.attr("value")
        return constant(int(value.reshape(-1)[0])) if value is not None and value.size else None
    if name in ("partition_id", "replica_id"):
        return Scalar(name)
    if name in _FORWARDED and len(op.operands) == 1:
        return lookup(op.operands[0])
    if name in ("convert", "bitcast_convert"):
        return _convert(op, module, lookup)
    if name == "dynamic_slice":
        return _element(op, module, lookup, tables)
    if name == "slice" and op.operands[0] in tables:
        picked = tables[op.operands[0]][
            tuple(
                slice(*bounds)
                for bounds in zip(
                    op.attr("start"), op.attr("limit"), op.attr("strides"), strict=True
                )
            )
        ]
        return constant(int(picked.reshape(-1)[0]))
    if name not in FOLDABLE:
        return None
    args = _all(op.operands, lookup)
    if args is None:
        return None
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


def _all(operands: tuple[int, ...], lookup: Lookup) -> tuple[Scalar, ...] | None:
    found = []
    for operand in operands:
        scalar = lookup(operand)
        if scalar is None:
            return None
        found.append(scalar)
    return tuple(found)


def _convert(op: Op, module: Module, lookup: Lookup) -> Scalar | None:
    source, target = module.type_of(op.operands[0]), module.type_of(op.results[0]).dtype
    scalar = lookup(op.operands[0])
    if scalar is None or not is_scalar_integer(source):
        return None
    if source.dtype == target:
        return scalar
    if target == "i1":
        return combine("to_bool", (scalar,))
    if source.dtype == "i1":
        scalar = combine("to_int", (scalar,))
        return wrap(scalar, target) if op.name == "bitcast_convert" else scalar
    return wrap(scalar, target)


def _element(op: Op, module: Module, lookup: Lookup, tables: Tables) -> Scalar | None:
    """One element of a constant array at computed indices."""
    table = tables.get(op.operands[0])
    if table is None:
        return lookup(op.operands[0]) if module.type_of(op.operands[0]).elements == 1 else None
    indices = _all(op.operands[1:], lookup)
    if indices is None or len(indices) != table.ndim:
        return None
    flat: Scalar | None = constant(0)
    for size, index in zip(table.shape, indices, strict=True):
        inside = combine("clamp", (constant(0), index, constant(size - 1)))
        if inside is None or flat is None:
            return None
        scaled = combine("multiply", (flat, constant(size)))
        flat = None if scaled is None else combine("add", (scaled, inside))
    return None if flat is None else take(table.reshape(-1), flat)


def block_scalars(
    block: Block, module: Module, known: dict[int, Scalar], outer: Lookup, tables: Tables
) -> dict[int, Scalar]:
    """Expressions of all scalar integers of a block, calls opened.

    Args:
        block: a loop condition, say.
        module: for types and callees.
        known: expressions of the block's arguments by value id.
        outer: expressions of values defined outside.
        tables: constant arrays by value id.
    """
    constants: dict[int, NDArray[np.int64]] = dict(tables)
    # None: a value of this block without an expression; what an earlier walk of the same block
    # said of it must not be taken.
    scalars: dict[int, Scalar | None] = dict.fromkeys(block.args)
    scalars |= known

    def lookup(value: int) -> Scalar | None:
        return scalars[value] if value in scalars else outer(value)

    for op in block.ops:
        scalars.update(dict.fromkeys(op.results))
        if op.name == "constant" and op.attr("value") is not None and op.attr("value").ndim:
            constants[op.results[0]] = op.attr("value")
        if op.name == "call":
            callee = module.functions[op.attr("callee")]
            bound = {
                argument: scalar
                for argument, operand in zip(callee.args, op.operands, strict=True)
                if (scalar := lookup(operand)) is not None
            }
            passed = dict(constants)
            for argument, operand in zip(callee.args, op.operands, strict=True):
                passed.pop(argument, None)
                if operand in constants:
                    passed[argument] = constants[operand]
            inside = block_scalars(callee, module, bound, lookup, passed)
            for result, value in zip(op.results, callee.yields, strict=True):
                scalars[result] = inside.get(value)
        elif op.results and is_scalar_integer(module.type_of(op.results[0])):
            scalars[op.results[0]] = scalar_of(op, module, lookup, constants)
    return {value: scalar for value, scalar in scalars.items() if scalar is not None}
