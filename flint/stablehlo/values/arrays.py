"""Small arrays of integers, which programs index by loop counters and ranks.

The idea: JAX loops over ``jnp.arange(n)`` by slicing it with the counter, and partitioners look up
offsets in tables by partition id.  If such an array is made from iotas and constants it is folded
here, so that an element looked up in it becomes a scalar expression.  A part of it at computed
indices (two rows of a loop that is unrolled by two) is an array of such expressions.

    %0 = stablehlo.iota dim = 0 : tensor<4xi32>;  %1 = stablehlo.add %0, %ones     ->  [1, 2, 3, 4]
    %2 = stablehlo.dynamic_slice %1, %i, sizes = [2]       ->  [%1[clamp(%i)], %1[clamp(%i) + 1]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.graph.scalars import Place, Scalar, combine, constant, evaluate, iteration, take
from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Module, Op
from flint.stablehlo.values.elementwise import ELEMENTWISE, SAME_ELEMENTS, expression, is_integer

#: Of int64, or of objects where elements are expressions: each is a number or a ``Scalar``.
Array = NDArray[Any]
#: Value id -> its array, None where it has none.
Arrays = Callable[[int], Array | None]
#: Value id -> the expression of an integer, None where it has none.
Lookup = Callable[[int], Scalar | None]

#: Larger arrays are not made; constants of the input may be larger (see ``attributes.py``).
MAX_ELEMENTS = 2**16
#: Nor are larger ones of expressions.
MAX_EXPRESSIONS = 64


def is_array(item: TensorType) -> bool:
    """Whether values of this type may be kept as arrays."""
    return (
        is_integer(item.dtype)
        and bool(item.shape)
        and 0 < item.elements <= MAX_ELEMENTS
        and not item.dynamic
    )


def is_constant(array: Array) -> bool:
    """Whether the elements are numbers."""
    return array.dtype.kind != "O"


def element(array: Array) -> Scalar:
    """The expression of the first element."""
    item = array.reshape(-1)[0]
    return item if isinstance(item, Scalar) else constant(int(item))


def array_of(op: Op, module: Module, lookup: Lookup, arrays: Arrays) -> Array | None:
    """The array that ``op`` makes as its first result, None where it cannot be folded.

    Args:
        op: an op whose first result is of a type that ``is_array`` admits, or a constant.
        module: for types.
        lookup: expressions of integers.
        arrays: arrays of operands.
    """
    kind = module.type_of(op.results[0])
    if op.name == "constant":
        value = op.attr("value")
        if value is None or value.dtype.kind not in "iub":
            return None
        if value.ndim:
            given: Array = value
            return given
        return np.full(kind.shape, int(value), dtype=np.int64) if is_array(kind) else None
    if op.name == "iota":
        dim = int(op.attr("dimension", 0))
        steps = np.arange(kind.shape[dim], dtype=np.int64)
        shape = [-1 if i == dim else 1 for i in range(len(kind.shape))]
        return np.broadcast_to(steps.reshape(shape), kind.shape)
    if op.name == "dynamic_slice":
        return _part(op, kind.shape, lookup, arrays)
    known = []
    for value in op.operands:
        found = arrays(value)
        single = lookup(value) if found is None and not module.type_of(value).shape else None
        if single is not None:
            found = _expressions([single], ())
        if found is None:
            return None
        known.append(found)
    move = _MOVEMENT.get(op.name)
    if not known or (move is None and op.name not in ELEMENTWISE):
        return None
    numbers = all(map(is_constant, known))
    if not numbers and kind.elements > MAX_EXPRESSIONS:
        return None
    if move is not None:
        return move(op, known, kind.shape)
    return (_elementwise if numbers else _each)(op, module, known, kind.shape)


def _elementwise(op: Op, module: Module, args: list[Array], shape: tuple[int, ...]) -> Array | None:
    """An elementwise op, by its scalar expression: operand ``i`` stands as iteration of a loop."""
    if any(item.shape != shape for item in args):
        return None
    scalar = expression(op, module, tuple(map(iteration, range(len(args)))))
    if scalar is None:
        return None
    made = evaluate(scalar, Place(iterations=dict(enumerate(args))))
    return np.broadcast_to(np.asarray(made).astype(np.int64), shape)


def _each(op: Op, module: Module, args: list[Array], shape: tuple[int, ...]) -> Array | None:
    """An elementwise op on expressions, element by element."""
    if any(item.shape != shape for item in args):
        return None
    rows = zip(*(item.reshape(-1, 1) for item in args), strict=True)
    return _expressions([expression(op, module, tuple(map(element, row))) for row in rows], shape)


def _expressions(found: list[Scalar | None], shape: tuple[int, ...]) -> Array | None:
    """An array of expressions, of numbers if all are constant; None if one is missing."""
    known = [item for item in found if item is not None]
    if len(known) < len(found):
        return None
    if all(item.op == "constant" for item in known):
        return np.array([item.value for item in known], np.int64).reshape(shape)
    made = np.empty(len(known), object)
    made[:] = known
    return made.reshape(shape)


def _part(op: Op, shape: tuple[int, ...], lookup: Lookup, arrays: Arrays) -> Array | None:
    """A part of an array at computed indices, which are clamped so that it lies inside."""
    table = arrays(op.operands[0])
    if table is None or table.ndim != len(op.operands) - 1:
        return None
    first: Scalar | None = constant(0)
    for value, size, length in zip(op.operands[1:], table.shape, shape, strict=True):
        index = lookup(value)
        if index is None or first is None:
            return None
        inside = combine("clamp", (constant(0), index, constant(size - length)))
        scaled = combine("multiply", (first, constant(size)))
        first = combine("add", (scaled, inside)) if scaled and inside else None
    if first is None:
        return None
    offsets = np.ravel_multi_index(np.indices(shape), table.shape).reshape(-1)
    flat = table.reshape(-1)
    if first.op == "constant":
        part: Array = flat[first.value + offsets].reshape(shape)
        return part
    if len(offsets) > MAX_EXPRESSIONS:
        return None
    places = [combine("add", (first, constant(offset))) for offset in offsets.tolist()]
    return _expressions([place and _at(flat, place) for place in places], shape)


def _at(flat: Array, place: Scalar) -> Scalar | None:
    """The element at a computed place; of expressions, the one whose place it is."""
    if is_constant(flat):
        return take(flat, place)
    found: Scalar | None = element(flat[-1:])
    for number in range(len(flat) - 1):
        here = combine("compare", (place, constant(number)), "EQ")
        if here is None or found is None:
            return None
        found = combine("select", (here, element(flat[number:]), found))
    return found


def _reshape(_op: Op, args: list[Array], shape: tuple[int, ...]) -> Array | None:
    return args[0].reshape(shape)


def _transpose(op: Op, args: list[Array], _shape: tuple[int, ...]) -> Array | None:
    return args[0].transpose(op.attr("dimensions"))


def _broadcast(op: Op, args: list[Array], shape: tuple[int, ...]) -> Array | None:
    dims = op.attr("dimensions", ())
    spread = [1] * len(shape)
    for dim, size in zip(dims, args[0].shape, strict=True):
        spread[dim] = size
    return np.broadcast_to(args[0].reshape(spread), shape)


def _slice(op: Op, args: list[Array], _shape: tuple[int, ...]) -> Array | None:
    bounds = zip(op.attr("start"), op.attr("limit"), op.attr("strides"), strict=True)
    return args[0][tuple(slice(*item) for item in bounds)]


def _concatenate(op: Op, args: list[Array], _shape: tuple[int, ...]) -> Array | None:
    return np.concatenate(args, axis=op.attr("dimension", 0))


def _reverse(op: Op, args: list[Array], _shape: tuple[int, ...]) -> Array | None:
    return np.flip(args[0], op.attr("dimensions", ()))


_MOVEMENT: dict[str, Callable[[Op, list[Array], tuple[int, ...]], Array | None]] = {
    **dict.fromkeys(SAME_ELEMENTS, _reshape),
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
