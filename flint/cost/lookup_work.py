"""Bytes of recorded ops that read or write a table only at indexed places.

The idea: a profiler records the shape of the whole table, but only the indices and the indexed
numbers move, whatever the table's size.  Ops that add to a place read it first.  Other writes of an
op (the zeros of a gradient, the copy made by an op that is not in place) are separate ops inside
it, as PyTorch's profiler records them.

    FORMULAS["embedding"]([[((1000, 16), "f32")], [((4, 6), "i64")]], [])
    # 24 rows of 64 bytes: moved = (24 * (64 + 8), 24 * 64)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

from flint.cost.recorded_op import Arguments, Formula, OpWork, Tensor
from flint.graph.tensor_types import DTYPE_BITS
from flint.graph.work import Unit, WorkItem

#: The work of an op about which nothing is known.
UNKNOWN: Final = OpWork(None, (0, 0))
#: How many numbers an op moves, from its arguments and their values.
_Count: TypeAlias = Callable[[Arguments, Sequence[Any]], int]


def _bytes(tensor: Tensor, count: int | None = None) -> int:
    """Bytes of a tensor, or of ``count`` numbers of its type; raises KeyError if the type is
    unknown.
    """
    shape, dtype = tensor
    return (prod(shape) if count is None else count) * DTYPE_BITS[dtype] // 8


def _work(dtype: str, operations: int, read: int, written: int) -> OpWork:
    return OpWork((WorkItem(Unit.VECTOR, dtype, operations),), (read, written))


def _elements(place: int, arguments: Arguments, values: Sequence[Any]) -> int:
    return prod(arguments[place][0][0])


def _rows(arguments: Arguments, values: Sequence[Any]) -> int:
    """A row of the first argument for each place of the second."""
    return prod(arguments[0][0][0][1:]) * prod(arguments[1][0][0])


def _slices(arguments: Arguments, values: Sequence[Any]) -> int:
    """``self, dim, index``: a slice for each place."""
    shape, places = arguments[0][0][0], prod(arguments[2][0][0])
    return places * prod(shape) // shape[values[1]] if shape else places


def _read(index: int, count: _Count) -> Formula:
    """As many numbers of the first argument as ``index`` has places."""

    def formula(arguments: Arguments, values: Sequence[Any]) -> OpWork:
        table, taken = arguments[0][0], count(arguments, values)
        moved = _bytes(table, taken)
        return _work(table[1], 0, moved + _bytes(arguments[index][0]), moved)

    return formula


def _written(index: int, count: _Count, update: int, *, adds: bool = False) -> Formula:
    """The numbers of the argument ``update``, or one number, written to the places of ``index``.

    With ``adds``, the old numbers are read, and each is one operation.
    """

    def formula(arguments: Arguments, values: Sequence[Any]) -> OpWork:
        table, given = arguments[0][0], count(arguments, values)
        moved = _bytes(table, given)
        source = _bytes(arguments[update][0], given) if arguments[update] else 0
        read = source + _bytes(arguments[index][0]) + adds * moved
        return _work(table[1], adds * given, read, moved)

    return formula


def _bag(arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """``weight, indices, offsets``: a sum of rows per offset, except one after the last bag."""
    table, rows = arguments[0][0], _rows(arguments, values)
    bags = prod(arguments[2][0][0]) - (len(values) > 7 and values[7] is True)
    read = _bytes(table, rows) + sum(_bytes(arguments[place][0]) for place in (1, 2))
    return _work(table[1], rows, read, _bytes(table, bags * table[0][1]))


def _bag_backward(arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """``grad, indices, offset2bag``: a bag's row is added to each of the rows in it."""
    grad, rows = arguments[0][0], _rows(arguments, values)
    places = sum(_bytes(arguments[place][0]) for place in (1, 2))
    return _work(grad[1], rows, places + 2 * _bytes(grad, rows), _bytes(grad, rows))


def _into_pages(parts: int, slots: int, arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """New keys and values, copied to the places of a cache given by ``slots``.

    As many rows of the first arguments, ``parts``, as there are slots; caches follow them, and may
    hold them in another type, for which they are scaled.  Padding (-1) is not copied: a bound.
    """
    (rows, _), cache = arguments[slots][0], arguments[2][0]
    given = [arguments[place][0] for place in range(parts)]
    count = sum(rows[0] * prod(shape[1:]) for shape, _ in given)
    read = _bytes(given[0], count) + _bytes(arguments[slots][0])
    scaled = count if cache[1] != given[0][1] else 0
    return _work(given[0][1], scaled, read, _bytes(cache, count))


def _rotary(arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """vLLM's ``positions, query, key, head_size, cos_sin_cache``: a row of it for each position.

    Heads are rotated in place by the numbers of a row: two products and a sum each.
    """
    positions, table = arguments[0][0], arguments[4][0]
    turned = [argument[0] for argument in arguments[1:3] if argument]
    count = sum(prod(shape) for shape, _ in turned) * table[0][-1] // values[3]
    moved = _bytes(turned[0], count)
    places = prod(positions[0]) * table[0][-1]
    return _work(turned[0][1], 3 * count, moved + _bytes(table, places) + _bytes(positions), moved)


def _if_known(formula: Formula) -> Formula:
    """Nothing is known if shapes, types or values that it needs are not recorded."""

    def known(arguments: Arguments, values: Sequence[Any]) -> Any:
        try:
            return formula(arguments, values)
        except (LookupError, TypeError, ZeroDivisionError):
            return UNKNOWN

    return known


def unknown(arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """Rows differ in width, which is a value."""
    return UNKNOWN


def _listed(arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """A copy whose places are a mask, or are in a list, which Kineto does not record."""
    return _work(arguments[0][0][1] or "f32", 0, 0, 0)


def _each(names: str, formula: Formula) -> dict[str, Formula]:
    return dict.fromkeys(names.split(), _if_known(formula))


_GIVEN: Final = partial(_elements, 2)
_SOURCE: Final = partial(_elements, 3)

#: From PyTorch's schemas and vLLM's (csrc/torch_bindings.cpp).
FORMULAS: Final[dict[str, Formula]] = {
    **_each("embedding", _read(1, _rows)),
    **_each("index_select", _read(2, _slices)),
    **_each("gather", _read(2, _GIVEN)),
    **_each("take", _read(1, partial(_elements, 1))),
    **_each("embedding_dense_backward", _written(1, partial(_elements, 0), 0, adds=True)),
    **_each("scatter", _written(2, _GIVEN, 3)),
    **_each("scatter_add scatter_reduce", _written(2, _GIVEN, 3, adds=True)),
    **_each("index_copy", _written(2, _SOURCE, 3)),
    **_each("index_add index_reduce", _written(2, _SOURCE, 3, adds=True)),
    **_each("index_fill", _written(2, _slices, 3)),
    **_each("_embedding_bag _embedding_bag_forward_only", _bag),
    **_each("_embedding_bag_dense_backward", _bag_backward),
    **_each("reshape_and_cache reshape_and_cache_flash", partial(_into_pages, 2, 4)),
    **_each("concat_and_cache_mla", partial(_into_pages, 2, 3)),
    **_each("rotary_embedding", _rotary),
    **_each("index index_put _index_put_impl _unsafe_index _unsafe_index_put put", _listed),
}
#: FBGEMM's lookups in several tables, whose widths are values.
FBGEMM: Final = re.compile(r"(split|dense|ssd)_embedding_.*(lookup|codegen|forward|backward).*")
_BY_VALUES: Final = frozenset(
    {"index_select", "index_fill", "rotary_embedding", "_embedding_bag",
     "_embedding_bag_forward_only"}
)  # fmt: skip


def needs_values(name: str) -> bool:
    """Whether what an op moves depends on a dim or a size among its values."""
    return name in _BY_VALUES
