"""StableHLO ops with the defaults that lowerings need: each function adds ops and returns a value.

The idea: shapes and dtypes are read from the values; dtypes are torch's names; dims may be negative
nowhere.  Ops go to MLIR's current insertion point.

    total = reduce(multiply(x, x), (1,), "add")

Longer than 300 lines because it is one list of ops, a few lines each.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flint.frontends.torch.lowerings import dtypes
from flint.stablehlo.read.bindings import chlo, ir
from flint.stablehlo.read.bindings import stablehlo as hlo

Value = Any
Shape = tuple[int, ...]

add, subtract, multiply, divide = hlo.add, hlo.subtract, hlo.multiply, hlo.divide
maximum, minimum, negate, power = hlo.maximum, hlo.minimum, hlo.negate, hlo.power
exponential, log, sqrt, rsqrt, logistic = (
    hlo.exponential,
    hlo.log,
    hlo.sqrt,
    hlo.rsqrt,
    hlo.logistic,
)
select, and_, or_, xor, not_ = hlo.select, hlo.and_, hlo.or_, hlo.xor, hlo.not_


def shape_of(value: Value) -> Shape:
    """A value's shape."""
    return tuple(value.type.shape)


def dtype_of(value: Value) -> str:
    """A value's dtype."""
    return dtypes.name_of(value.type.element_type)


def tensor(shape: Sequence[int], dtype: str) -> Any:
    """An MLIR tensor type."""
    return ir.RankedTensorType.get(list(shape), dtypes.element(dtype))


def integers(values: Sequence[int]) -> Any:
    """An array attribute of 64-bit integers."""
    return ir.DenseI64ArrayAttr.get([int(value) for value in values])


def number(value: int) -> Any:
    """A 64-bit integer attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def constant(value: Any, shape: Sequence[int], dtype: str) -> Value:
    """A tensor whose elements are all ``value`` (a Python number)."""
    if dtypes.is_complex(dtype):
        part = dtypes.PARTS[dtype]
        whole = complex(value)
        return hlo.complex(constant(whole.real, shape, part), constant(whole.imag, shape, part))
    kind = dtypes.element(dtype)
    attribute: Any
    if dtypes.is_float(dtype):
        attribute = ir.FloatAttr.get(kind, float(value))
    elif dtype == "bool":
        attribute = ir.IntegerAttr.get(kind, int(bool(value)))
    else:
        attribute = ir.IntegerAttr.get(kind, int(value))
    return hlo.constant(ir.DenseElementsAttr.get_splat(tensor(shape, dtype), attribute))


def literal(values: Any, dtype: str) -> Value:
    """A tensor of the values of a (small) numpy array."""
    kind = dtypes.element(dtype)
    values = np.ascontiguousarray(values)
    return hlo.constant(ir.DenseElementsAttr.get(values, type=kind))


def like(value: Any, other: Value) -> Value:
    """A constant of another value's shape and dtype."""
    return constant(value, shape_of(other), dtype_of(other))


def convert(value: Value, dtype: str) -> Value:
    """``value`` as another dtype; to bool it is ``value != 0``, as in torch."""
    own = dtype_of(value)
    if own == dtype:
        return value
    if dtype == "bool":
        return compare("NE", value, like(0, value))
    if dtypes.is_complex(own) and not dtypes.is_complex(dtype):
        return convert(hlo.real(value), dtype)
    if dtypes.is_complex(dtype) and not dtypes.is_complex(own):
        real = convert(value, dtypes.PARTS[dtype])
        return hlo.complex(real, like(0, real))
    return hlo.convert(tensor(shape_of(value), dtype), value)


def broadcast(value: Value, shape: Sequence[int], dims: Sequence[int] | None = None) -> Value:
    """``value`` with its dim i at ``dims[i]`` of the result; by default aligned at the end.

    Dims of size 1 repeat.
    """
    own = shape_of(value)
    shape = tuple(shape)
    if own == shape and dims is None:
        return value
    if dims is None:
        dims = range(len(shape) - len(own), len(shape))
    return hlo.broadcast_in_dim(tensor(shape, dtype_of(value)), value, integers(dims))


def keep(value: Value, shape: Sequence[int], dropped: Sequence[int]) -> Value:
    """A reduced value spread over the dims that the reduction dropped: back to ``shape``."""
    left = [dim for dim in range(len(shape)) if dim not in dropped]
    return broadcast(value, shape, left)


def reshape(value: Value, shape: Sequence[int]) -> Value:
    """``value`` in another shape of as many elements."""
    if shape_of(value) == tuple(shape):
        return value
    return hlo.reshape(tensor(shape, dtype_of(value)), value)


def transpose(value: Value, order: Sequence[int]) -> Value:
    """Dim i of the result is dim ``order[i]`` of ``value``."""
    if list(order) == list(range(len(order))):
        return value
    return hlo.transpose(value, integers(order))


def slice_(
    value: Value, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None
) -> Value:
    """A static slice."""
    if step is None and not any(start) and tuple(stop) == shape_of(value):
        return value
    step = step or [1] * len(start)
    return hlo.slice(value, integers(start), integers(stop), integers(step))


def slice_dim(value: Value, dim: int, start: int, stop: int, step: int = 1) -> Value:
    """A static slice along one dim."""
    shape = shape_of(value)
    first, last, steps = [0] * len(shape), list(shape), [1] * len(shape)
    first[dim], last[dim], steps[dim] = start, stop, step
    return slice_(value, first, last, steps if step != 1 else None)


def pad(
    value: Value, low: Sequence[int], high: Sequence[int], fill: Any = 0,
    interior: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """``value`` with ``fill`` before, after and between its elements; negative sizes crop."""
    if not any(low) and not any(high) and not any(interior or ()):
        return value
    inside = integers(interior or [0] * len(low))
    filler = constant(fill, (), dtype_of(value))
    return hlo.pad(value, filler, integers(low), integers(high), inside)


def concatenate(values: Sequence[Value], dim: int) -> Value:
    """Values one after another along a dim."""
    return values[0] if len(values) == 1 else hlo.concatenate(list(values), number(dim))


def reverse(value: Value, dims: Sequence[int]) -> Value:
    """``value`` backwards along dims."""
    return hlo.reverse(value, integers(dims))


def iota(shape: Sequence[int], dim: int, dtype: str = "int64") -> Value:
    """Positions along a dim."""
    return hlo.iota(tensor(shape, dtype), number(dim))


def compare(direction: str, left: Value, right: Value) -> Value:
    """EQ, NE, LT, LE, GT or GE; bool."""
    return hlo.compare(left, right, hlo.ComparisonDirectionAttr.get(direction))


def erf(value: Value) -> Value:
    """The error function."""
    return chlo.erf(value)


_REDUCERS = {
    "add": (hlo.add, 0), "multiply": (hlo.multiply, 1), "maximum": (hlo.maximum, -math.inf),
    "minimum": (hlo.minimum, math.inf), "and": (hlo.and_, 1), "or": (hlo.or_, 0),
    "xor": (hlo.xor, 0),
}  # fmt: skip


def body_of(region: Any, kinds: Sequence[str], kind: str) -> None:
    """Fill an op's region with a reduction of scalars: "add", "maximum", ..., or "second"."""
    types = [tensor((), dtype) for dtype in kinds]
    block = region.blocks.append(*types, *types)
    arguments = list(block.arguments)
    half = len(kinds)
    with ir.InsertionPoint(block):
        if kind == "second":
            hlo.return_(arguments[half:])
        else:
            function = _REDUCERS[kind][0]
            pairs = zip(arguments[:half], arguments[half:], strict=True)
            hlo.return_([function(left, right) for left, right in pairs])


def initial(kind: str, dtype: str) -> Value:
    """The neutral element of a reduction."""
    value = _REDUCERS[kind][1]
    if isinstance(value, float) and not dtypes.is_float(dtype):
        if dtype == "bool":
            value = int(value > 0)
        else:
            bits = 8 * dtypes.size(dtype)
            signed = not dtype.startswith("u")
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            value = high if value > 0 else low
    return constant(value, (), dtype)


def reduce(value: Value, dims: Sequence[int], kind: str = "add") -> Value:
    """``value`` reduced over dims, which are dropped."""
    if not dims and shape_of(value):
        return value
    dtype = dtype_of(value)
    dropped = sorted(dims)
    left = [size for dim, size in enumerate(shape_of(value)) if dim not in dropped]
    if not dropped:
        return value
    op = hlo.ReduceOp([tensor(left, dtype)], [value], [initial(kind, dtype)], integers(dropped))
    body_of(op.regions[0], [dtype], kind)
    return op.results[0]


def dot(
    left: Value, right: Value, contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()), dtype: str | None = None,
) -> Value:  # fmt: skip
    """A generalised matrix product: batch dims, then the left's free dims, then the right's."""
    a, b = shape_of(left), shape_of(right)
    out = [a[dim] for dim in batch[0]]
    out += [size for dim, size in enumerate(a) if dim not in batch[0] and dim not in contract[0]]
    out += [size for dim, size in enumerate(b) if dim not in batch[1] and dim not in contract[1]]
    numbers = hlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(batch[0]),
        rhs_batching_dimensions=list(batch[1]),
        lhs_contracting_dimensions=list(contract[0]),
        rhs_contracting_dimensions=list(contract[1]),
    )
    precision = None
    if _exact[-1] and dtype_of(left) == "float32":
        precision = ir.ArrayAttr.get([hlo.PrecisionAttr.get("HIGHEST")] * 2)
    made = tensor(out, dtype or dtype_of(left))
    return hlo.dot_general(made, left, right, numbers, precision_config=precision)


#: Whether products of f32 are exact, innermost last.
_exact = [False]


@contextlib.contextmanager
def products(*, exact: bool) -> Iterator[None]:
    """Within it, products of f32 are built as exact ones, or as those that may run in TF32."""
    _exact.append(exact)
    try:
        yield
    finally:
        _exact.pop()


def take(value: Value, index: Value, dim: int = 0) -> Value:
    """Slices of ``value`` along a dim at the places of an integer vector [n]."""
    count = shape_of(index)[0]
    return gather(value, reshape(index, (count, 1)), [dim], dim)


def gather(value: Value, index: Value, dims: Sequence[int], first: int = 0) -> Value:
    """The elements of ``value`` at positions along some of its dims.

    Args:
        value: [d0, ..., dr-1].
        index: [*places, k]: positions along ``dims``.
        dims: k dims of ``value``, which the result lacks.
        first: where the dims of ``places`` stand among the dims that are left.
    """
    shape = shape_of(value)
    numbers = hlo.GatherDimensionNumbers.get(
        offset_dims=_beside(len(shape) - len(dims), index, first),
        collapsed_slice_dims=sorted(dims),
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=list(dims),
        index_vector_dim=len(shape_of(index)) - 1,
    )
    sizes = [1 if at in dims else size for at, size in enumerate(shape)]
    return hlo.gather(value, index, numbers, integers(sizes))


def gather_points(value: Value, index: Value) -> Value:
    """Elements of ``value`` [rank r, any size] at places [n, r]; gives [n]."""
    return gather(value, index, range(len(shape_of(value))))


def scatter(
    value: Value, index: Value, updates: Value, kind: str = "second",
    dims: Sequence[int] | None = None, first: int = 0, unique: bool = False,
) -> Value:  # fmt: skip
    """``value`` with updates combined at places along some of its dims.

    Args:
        value: [d0, ..., dr-1].
        index: [*places, k]: positions along ``dims``.
        updates: the dims of ``value`` but ``dims``, with the dims of ``places`` among them.
        kind: "add", "maximum", ... or "second", which replaces.
        dims: k dims of ``value``; default: the first ones.
        first: where the dims of ``places`` stand in ``updates``.
        unique: no two places are equal.
    """
    depth = shape_of(index)[-1]
    dims = range(depth) if dims is None else dims
    numbers = hlo.ScatterDimensionNumbers.get(
        update_window_dims=_beside(len(shape_of(value)) - depth, index, first),
        inserted_window_dims=sorted(dims),
        input_batching_dims=[],
        scatter_indices_batching_dims=[],
        scattered_dims_to_operand_dims=list(dims),
        index_vector_dim=len(shape_of(index)) - 1,
    )
    op = hlo.ScatterOp([value.type], [value], index, [updates], numbers, unique_indices=unique)
    body_of(op.regions[0], [dtype_of(value)], kind)
    return op.results[0]


def _beside(left: int, index: Value, first: int) -> list[int]:
    """Positions of ``left`` dims when those of the places are inserted among them, at ``first``."""
    places = len(shape_of(index)) - 1
    return [*range(first), *range(first + places, left + places)]


def update_slice(value: Value, part: Value, start: Sequence[int]) -> Value:
    """``value`` with ``part`` written at a static place."""
    return hlo.dynamic_update_slice(value, part, [constant(at, (), "int64") for at in start])


def conjugate(value: Value) -> Value:
    """Complex conjugates."""
    return hlo.complex(hlo.real(value), negate(hlo.imag(value)))


def bitcast(value: Value, dtype: str) -> Value:
    """The bytes of a vector [n] as another dtype of any size; gives a vector."""
    own = dtype_of(value)
    if own == dtype:
        return value
    if dtypes.is_complex(own):
        parts = [
            reshape(part, (*shape_of(value), 1)) for part in (hlo.real(value), hlo.imag(value))
        ]
        both = reshape(concatenate(parts, 1), (2 * shape_of(value)[0],))
        return bitcast(both, dtype)
    if dtypes.is_complex(dtype):
        pairs = bitcast(value, dtypes.PARTS[dtype])
        count = shape_of(pairs)[0] // 2
        pairs = reshape(slice_dim(pairs, 0, 0, 2 * count), (count, 2))
        real, imag = (reshape(slice_dim(pairs, 1, at, at + 1), (count,)) for at in (0, 1))
        return hlo.complex(real, imag)
    if own == "bool":
        return bitcast(convert(value, "uint8"), dtype)
    if dtype == "bool":
        return convert(bitcast(value, "uint8"), "bool")
    old, new = dtypes.size(own), dtypes.size(dtype)
    count = shape_of(value)[0]
    if old == new:
        return hlo.bitcast_convert(tensor((count,), dtype), value)
    if old < new:
        ratio = new // old
        whole = reshape(slice_dim(value, 0, 0, count // ratio * ratio), (count // ratio, ratio))
        return hlo.bitcast_convert(tensor((count // ratio,), dtype), whole)
    ratio = old // new
    return reshape(hlo.bitcast_convert(tensor((count, ratio), dtype), value), (count * ratio,))
