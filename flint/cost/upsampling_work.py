"""FLOPs and bytes of recorded ops that resize pictures, by the sizes among their values.

The idea: no operand has the size of the result; it is a list of numbers, which profilers record.
Between 2^d neighbours a linear mode interpolates along one dim after the other: 2^d - 1 times a
subtraction, a multiplication and an addition per result, and a few operations for each place along
each dim; a cubic mode weighs 4 neighbours along each dim.  The gradient adds each result's, times a
weight, to all of its neighbours.  The lowerings of captures count the same.

    values = [None, [8, 10], False]
    FORMULAS["upsample_bilinear2d"]([[((2, 3, 4, 5), "f32")], [], []], values)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final

from flint.cost.recorded_op import Arguments, Formula, OpWork, Tensor
from flint.graph.tensor_types import DTYPE_BITS
from flint.graph.work import Unit, WorkItem

#: Operations for a place along a dim: its distance to its neighbours, with corners that are aligned
#: or not; and then a cubic mode's four weights.
_PLACE: Final = {True: 6, False: 8}
_WEIGHTS: Final = 25
#: Two weighted sums of four along the dims: for each of four rows, and over the rows.
_CUBIC_RESULT: Final = 5 * 7


def _work(operations: int, read: Tensor, written: Tensor) -> OpWork:
    shapes, dtype = (read[0], written[0]), read[1]
    moved = [prod(shape) * DTYPE_BITS[dtype] // 8 for shape in shapes]
    return OpWork((WorkItem(Unit.VECTOR, dtype, operations),), (moved[0], moved[1]))


def _forward(mode: str, arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """``self, output_size, align_corners``."""
    given = arguments[0][0]
    size = _size(values[1], given[0])
    results, places = prod(given[0][:2]) * prod(size), sum(size)
    operations = 0  # it copies the nearest
    if mode == "linear":
        operations = 3 * (2 ** len(size) - 1) * results + _PLACE[values[2] is True] * places
    elif mode == "cubic":
        operations = _CUBIC_RESULT * results + (_PLACE[values[2] is True] + _WEIGHTS) * places
    return _work(operations, given, ((*given[0][:2], *size), given[1]))


def _backward(mode: str, arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """``grad_output, output_size, input_size``."""
    given = arguments[0][0]
    whole = values[2]
    if not isinstance(whole, list) or len(whole) != len(given[0]):
        raise ValueError(f"sizes {whole} for a gradient of {given[0]}")
    results, places = prod(given[0]), prod(given[0][2:])
    dims = len(whole) - 2
    corners = {"nearest": 0, "linear": 2**dims, "cubic": 4**dims}[mode]
    operations = corners * (2 * results + (dims - 1) * places)
    if mode == "nearest":
        operations = max(0, results - prod(whole))
    return _work(operations, given, (tuple(whole), given[1]))


def _size(values: Any, shape: tuple[int, ...]) -> list[int]:
    if not isinstance(values, list) or len(values) != len(shape) - 2:
        raise ValueError(f"size {values} for {shape}")
    return values


_MODES: Final = {
    "nearest1d": "nearest", "nearest2d": "nearest", "nearest3d": "nearest",
    "linear1d": "linear", "bilinear2d": "linear", "trilinear3d": "linear", "bicubic2d": "cubic",
}  # fmt: skip
FORMULAS: Final[dict[str, Formula]] = {
    f"{start}{name}{end}": partial(way, mode)
    for name, mode in _MODES.items()
    for start in (("upsample_", "_upsample_") if name.startswith("nearest") else ("upsample_",))
    for end, way in (("", _forward), ("_backward", _backward))
}
