"""Scalar expressions of ops: what an integer value is in terms of rank, counters and constants.

The idea: when the walker passes an op whose result is one integer, it looks up the op's expression
over its operands' expressions here.  Everything else has none, which is always safe.
"""

from __future__ import annotations

from flint.graph.scalars import Scalar, constant
from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.values.arrays import Array, Arrays, Lookup, array_of, element, is_array
from flint.stablehlo.values.elementwise import (
    ELEMENTWISE,
    SAME_ELEMENTS,
    expression,
    is_scalar_integer,
)

_FORWARDED = SAME_ELEMENTS | {"broadcast_in_dim", "broadcast"}
#: Ops that are looked at in search of one block's expressions.
MAX_OPS = 2**16


def scalar_of(op: Op, module: Module, lookup: Lookup, arrays: Arrays) -> Scalar | None:
    """The expression of ``op``'s first result, or None.

    Args:
        op: an op whose result is one integer.
        module: for types and callees.
        lookup: expression of an operand, or None.
        arrays: small arrays by value id.
    """
    name = op.name
    if name == "constant":
        value = op.attr("value")
        return constant(int(value.reshape(-1)[0])) if value is not None and value.size else None
    if name in ("partition_id", "replica_id"):
        return Scalar(name)
    if name in _FORWARDED and len(op.operands) == 1:
        known = lookup(op.operands[0])
        array = arrays(op.operands[0]) if known is None else None
        return known if array is None or array.size != 1 else element(array)
    if name in ("dynamic_slice", "slice"):
        if module.type_of(op.operands[0]).elements == 1 and arrays(op.operands[0]) is None:
            return lookup(op.operands[0])
        made = array_of(op, module, lookup, arrays)
        return None if made is None else element(made)
    if name not in ELEMENTWISE:
        return None
    args = _all(op.operands, lookup)
    return None if args is None else expression(op, module, args)


def _all(operands: tuple[int, ...], lookup: Lookup) -> tuple[Scalar, ...] | None:
    found = []
    for operand in operands:
        scalar = lookup(operand)
        if scalar is None:
            return None
        found.append(scalar)
    return tuple(found)


def block_scalars(
    block: Block,
    module: Module,
    known: dict[int, Scalar],
    outer: Lookup,
    arrays: Arrays,
    budget: list[int] | None = None,
) -> dict[int, Scalar]:
    """Expressions of all scalar integers of a block, calls opened.

    Args:
        block: for example a loop condition.
        module: for types and callees.
        known: expressions of the block's arguments by value id.
        outer: expressions of values defined outside.
        arrays: small arrays of the block's arguments and of values defined outside.
        budget: ops that may still be looked at, ``MAX_OPS`` at first; calls that lead beyond it
            are not opened.
    """
    left = [MAX_OPS] if budget is None else budget
    left[0] -= len(block.ops)
    # None: a value of this block without an expression; the result of an earlier walk of the same
    # block must not be used.
    scalars: dict[int, Scalar | None] = dict.fromkeys(block.args)
    scalars |= known
    tables: dict[int, Array | None] = {}

    def lookup(value: int) -> Scalar | None:
        return scalars[value] if value in scalars else outer(value)

    def table(value: int) -> Array | None:
        return tables[value] if value in tables else arrays(value)

    for op in block.ops:
        scalars.update(dict.fromkeys(op.results))
        tables.update(dict.fromkeys(op.results))
        if op.name == "call" and left[0] > 0:
            callee = module.functions[op.attr("callee")]
            passed = dict(zip(callee.args, op.operands, strict=True))
            bound = {a: s for a, v in passed.items() if (s := lookup(v)) is not None}
            names = _renamed(table, passed)
            inside = block_scalars(callee, module, bound, lookup, names, left)
            for result, value in zip(op.results, callee.yields, strict=True):
                scalars[result] = inside.get(value)
        elif op.results and is_scalar_integer(module.type_of(op.results[0])):
            scalars[op.results[0]] = scalar_of(op, module, lookup, table)
        if op.results and is_array(module.type_of(op.results[0])):
            tables[op.results[0]] = array_of(op, module, lookup, table)
    return {value: scalar for value, scalar in scalars.items() if scalar is not None}


def _renamed(arrays: Arrays, names: dict[int, int]) -> Arrays:
    """``arrays`` of values under other names."""
    return lambda value: arrays(names.get(value, value))
