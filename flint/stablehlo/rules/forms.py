"""Which elements of its operands an op combines: the parameters that a graph keeps of it.

The idea: sizes say how much an op computes; what a compiler does with it also depends on dims. A
product of square matrices contracts one dim or the other, a transpose moves the last dim or not.
These parameters are part of an op's entry in the graph's table of ops (``Tables.forms``), as plain
numbers:

    transpose, reverse, broadcast_in_dim    dimensions
    reduce               dimensions, -1, the operand's shape (a reshape before it leaves no node)
    concatenate, iota, sort                 dimension
    slice                start, limit and strides, one after the other
    dot_general          contracted dims of the left operand, then as many of the right one
    convolution          feature dim of the input, input and output feature dims of the kernel, then
                         low and high padding of each spatial dim
    reduce_window        sizes of the window, low and high padding of each dim, and the product of
                         all strides and dilations
    compare              number of the direction (``DIRECTIONS``)
    scatter              dims of updates, of the operand and of indices, and what is done with both
    gather               the roles of its dims, and sizes of a window
    constant             the bits of its value as an f64, if all its elements have one value

    >>> form_of(Op("transpose", (0,), (1,), {"dimensions": (1, 0)}))
    (1, 0)
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from flint.graph.graph import ADDS, REPLACES, SHAPE, Form
from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op

#: Directions of a comparison.
DIRECTIONS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE")


def form_of(op: Op, operands: Sequence[TensorType] = ()) -> Form:
    """The parameters of an op; () if it has none that are kept."""
    kept = _KEPT.get(op.name)
    form = () if kept is None or op.attrs is None else kept(op)
    return (*form, SHAPE, *operands[0].shape) if op.name == "reduce" and form and operands else form


def _dimensions(op: Op) -> Form:
    return tuple(map(int, op.attr("dimensions", ())))


def _slice(op: Op) -> Form:
    return tuple(int(n) for name in ("start", "limit", "strides") for n in op.attr(name, ()))


def _dot(op: Op) -> Form:
    sides = (op.attr("lhs_contracting", ()), op.attr("rhs_contracting", ()))
    return tuple(int(dim) for side in sides for dim in side)


def _convolution(op: Op) -> Form:
    names = ("input_feature", "kernel_input_feature", "kernel_output_feature")
    dims = [int(op.attr(name, -1)) for name in names]
    rank = len(op.attr("input_spatial", ()))
    padding = op.attr("padding") or ((0, 0),) * rank
    return (*dims, *(int(n) for pair in padding for n in pair))


def _window(op: Op) -> Form:
    sizes = tuple(int(size) for size in op.attr("window_dimensions", ()))
    padding = op.attr("padding") or ((0, 0),) * len(sizes)
    moves = ("window_strides", "strides", "base_dilations", "window_dilations")
    steps = [int(step) for name in moves for step in op.attr(name) or ()]
    return (*sizes, *(int(n) for pair in padding for n in pair), math.prod(steps))


def splat(op: Op) -> int | None:
    """The bits of the one value of a constant's elements as an f64; None if they differ, or if it
    has no such number.
    """
    value = op.attr("value", None)
    if value is None or np.ndim(value) or np.iscomplexobj(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _constant(op: Op) -> Form:
    bits = splat(op)
    return () if bits is None else (bits,)


def _scatter(op: Op) -> Form:
    names = (
        "update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "scatter_dims_to_operand_dims",
    )  # fmt: skip
    if len(op.regions) != 1:
        return ()
    dims = [int(dim) for name in names for dim in (*op.attr(name, ()), SHAPE)]
    region = op.regions[0]
    places = {value: at for at, value in enumerate(region.args)}
    done = []
    for inner in region.ops:
        done.append((inner.name, *(places.get(value, -1) for value in inner.operands)))
        places |= {value: len(places) for value in inner.results}
    last = [places.get(value, -1) for value in region.yields]
    known = {repr(([("add", 0, 1)], [2])): ADDS, repr(([], [1])): REPLACES}
    text = repr((done, last))
    kind = known.get(text, zlib.crc32(text.encode()))
    return (*dims, int(op.attr("index_vector_dim", -1)), kind)


def _gather(op: Op) -> Form:
    names = (
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map", "slice_sizes",
    )  # fmt: skip
    dims = (int(dim) for name in names for dim in (*op.attr(name, ()), SHAPE))
    return (*dims, int(op.attr("index_vector_dim", -1)))


def _compare(op: Op) -> Form:
    direction = str(op.attr("direction", ""))
    return (DIRECTIONS.index(direction),) if direction in DIRECTIONS else ()


_KEPT: Final[Mapping[str, Callable[[Op], Form]]] = {
    **dict.fromkeys(("transpose", "reverse", "reduce", "broadcast_in_dim"), _dimensions),
    **dict.fromkeys(("concatenate", "iota", "sort"), lambda op: (int(op.attr("dimension", 0)),)),
    "slice": _slice,
    "dot_general": _dot,
    "convolution": _convolution,
    "reduce_window": _window,
    "compare": _compare,
    "scatter": _scatter,
    "gather": _gather,
    "constant": _constant,
}

#: Ops whose rows differ where their types do not.
WITH_FORM: Final = frozenset(_KEPT)
