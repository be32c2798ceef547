"""How XLA's GPU compiler runs a kernel: which emitter, how many blocks of how many threads.

The idea: what ends a kernel decides how it is run.  A reduction of rows or columns has few blocks
if its result is small, so that it cannot use all of the memory's bandwidth; a tiled transpose goes
through shared memory; everything else is a loop over the result's elements.

    emitter_of(reduction).grid(bits=16)     # (blocks, threads)

Sources: ``reduction.cc``, ``transpose.cc``, ``launch_dimensions.cc``, ``ir_emission_utils.cc`` of
openxla/xla (2026).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from flint.passes.xla.reductions import Run, is_loop

#: Processors of an H100, lanes and threads of each.
PROCESSORS: Final = 132
LANES: Final = 128
_THREADS: Final = PROCESSORS * 2048
_WARP: Final = 32
#: Elements that a thread of a loop computes if there are enough.
_UNROLLED: Final = 4
#: Warps of a kernel of whole rows by the most elements of its tile; elements of the largest tile.
_WARPS: Final = ((256, 1), (1024, 2), (4096, 4))
_MOST_WARPS: Final = 8
_TILE: Final = 26_214
#: Bytes of shared memory of a block.
SHARED_BYTES: Final = 48 << 10

Grid = tuple[int, int]


class Emitter(IntEnum):
    """What decides how a kernel runs."""

    LOOP = 0
    ROWS = 1
    COLUMNS = 2
    TRANSPOSE = 3
    WHOLE_ROWS = 4  # Triton's: a row stays in registers
    CONCATENATE = 5  # a loop over the largest operand, which writes a part of each one


def loop_grid(elements: int) -> Grid:
    """Blocks and threads of a loop over some elements."""
    unrolled = math.gcd(elements, _UNROLLED) if elements >= _THREADS else 1
    steps = max(-(-elements // unrolled), 1)
    threads = min(4 * _WARP, steps)
    return -(-steps // threads), threads


def reduces(runs: list[Run]) -> Emitter:
    """How a reduction runs: a loop if its runs are few elements, or are too many."""
    places = [place for place, (_, reduced) in enumerate(runs) if reduced]
    if not places or len(runs) > 3 or (len(runs) == 3 and len(places) == 2 and not runs[-1][1]):
        return Emitter.LOOP
    rows = places[-1] == len(runs) - 1
    if is_loop(runs, places[-1], rows):
        return Emitter.LOOP
    return Emitter.ROWS if rows else Emitter.COLUMNS


def rows_grid(runs: Sequence[Run], bits: int) -> Grid:
    """Blocks and threads of a reduction of rows.

    Args:
        runs: of the reduction.
        bits: of an element of the narrowest operand.
    """
    length = runs[-1][0]
    kept = math.prod(size for size, reduced in runs if not reduced)
    if length & (length - 1) == 0:
        vector = max(min(length, 64 // bits), 1)
        while vector > 1 and -(-kept // _beside(kept, length // vector)) < PROCESSORS:
            vector //= 2
        if length <= _WARP * vector:
            beside = _beside(kept, length // vector)
            return -(-kept // beside), beside * (length // vector)
    threads = min(1024, -(-length // (16 * _WARP)) * _WARP)
    beside = _beside(kept, threads) if 2 * threads <= 256 else 1
    return -(-kept // beside) * -(-length // (16 * threads)), threads * beside


def _beside(kept: int, threads: int) -> int:
    """Rows that a block of about 256 threads reduces."""
    return kept if kept * threads <= 256 else max(256 // threads, 1)


def whole_rows_grid(kept: int, length: int) -> Grid:
    """Blocks and threads of a kernel that holds whole rows, as many in a block as keep most of the
    processors' lanes busy.

    Args:
        kept: number of rows.
        length: of a row.
    """
    row, best = 1 << max(length - 1, 0).bit_length(), (kept, _WARP)
    beside = 1
    while beside <= kept and (beside == 1 or beside * row <= _TILE):
        warps = next((warps for most, warps in _WARPS if beside * row <= most), _MOST_WARPS)
        grid = -(-kept // beside), warps * _WARP
        best = max(best, grid, key=lambda each: min(each[0], PROCESSORS) * min(each[1], LANES))
        beside *= 2
    return best


def columns_grid(runs: Sequence[Run], bits: int) -> Grid:
    """Blocks and threads of a reduction of columns."""
    width = runs[-1][0]
    major = runs[0][0] if not runs[0][1] else 1
    if _WARP % width == 0:
        return major, 4 * _WARP
    vector = 1
    if width % 2 == 0 and width >= 2 * _WARP and bits < 64:
        vector = 4 if bits < 32 and width >= 4 * _WARP and width % 4 == 0 else 2
    return major * -(-width // (_WARP * vector)), _WARP * _WARP


def shared_bytes(emitter: Emitter, element: int) -> int:
    """Bytes of shared memory that an op takes.

    Args:
        emitter: how it would run alone.
        element: bytes of an element.
    """
    if emitter == Emitter.ROWS:
        return _WARP * element
    if emitter == Emitter.COLUMNS:
        return _WARP * (4 * _WARP + 1) * element
    return _WARP * (_WARP + 1) * element if emitter == Emitter.TRANSPOSE else 0


def transposed(whole: Sequence[int], order: Sequence[int], bits: int) -> tuple[bool, bool]:
    """Whether a transpose moves the last dim, and whether it goes through shared memory in tiles.

    Args:
        whole: the operand's shape.
        order: the operand's dim that each of the result's dims is.
        bits: of an element.
    """
    dims: list[list[int]] = []  # runs of the operand's dims that stay neighbours
    for dim in order:
        if whole[dim] == 1:
            continue
        before = next((d for d in range(dim - 1, -1, -1) if whole[d] > 1), -1)
        if dims and dims[-1][-1] == before:
            dims[-1].append(dim)
        else:
            dims.append([dim])
    if len(dims) < 2:
        return False, False
    sizes = [math.prod(whole[d] for d in run) for run in dims]
    last = max(range(len(dims)), key=lambda place: dims[place])
    if last != len(dims) - 1:
        one, other = sizes[last], sizes[-1]
        tiled = min(one, other) >= 16 or (min(one, other) >= 8 and one * other >= 64 * 128)
        return True, tiled
    inner = sorted(dims)[-2]
    other = min(math.prod(whole[d] for d in inner), sizes[-2])
    return False, bits * sizes[-1] <= 64 and bits * sizes[-1] * other >= 8 * 16
