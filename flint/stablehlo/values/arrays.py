"""Small constant arrays of integers, which programs index by loop counters and ranks.

The idea: JAX loops over ``jnp.arange(n)`` by slicing it with the counter, and partitioners look up
offsets in tables by partition id.  Where such an array is made of iotas and constants it is folded
here, so that what is looked up in it becomes a scalar expression.

    %0 = stablehlo.iota dim = 0 : tensor<4xi32>;  %1 = stablehlo.add %0, %ones     ->  [1, 2, 3, 4]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flint.graph.scalars import Place, evaluate, iteration
from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Module, Op
from flint.stablehlo.values.elementwise import ELEMENTWISE, expression, is_integer

Array = NDArray[np.int64]
#: Value id -> its array, None where it has none.
Arrays = Callable[[int], Array | None]

#: Larger arrays are not made; constants of the input may be larger (see ``attributes.py``).
MAX_ELEMENTS = 2**16


def is_array(item: TensorType) -> bool:
    """Whether values of this type may be kept as arrays."""
    return (
        is_integer(item.dtype)
        and bool(item.shape)
        and 0 < item.elements <= MAX_ELEMENTS
        and not item.dynamic
    )


def array_of(op: Op, module: Module, arrays: Arrays) -> Array | None:
    """The array that ``op`` makes as its first result, None where it cannot be folded.

    Args:
        op: an op whose first result is of a type that ``is_array`` admits, or a constant.
        module: for types.
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
    operands = [arrays(value) for value in op.operands]
    known = [item for item in operands if item is not None]
    if len(known) != len(operands) or not known:
        return None
    move = _MOVEMENT.get(op.name)
    if move is not None:
        return move(op, known, kind.shape)
    return _elementwise(op, module, known, kind.shape)


def _elementwise(op: Op, module: Module, args: list[Array], shape: tuple[int, ...]) -> Array | None:
    """An elementwise op, by its scalar expression: operand ``i`` stands as iteration of a loop."""
    if op.name not in ELEMENTWISE or any(item.shape != shape for item in args):
        return None
    scalar = expression(op, module, tuple(map(iteration, range(len(args)))))
    if scalar is None:
        return None
    made = evaluate(scalar, Place(iterations=dict(enumerate(args))))
    return np.broadcast_to(np.asarray(made).astype(np.int64), shape)


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
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "mhlo.copy": _reshape,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
