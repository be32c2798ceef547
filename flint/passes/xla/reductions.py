"""Reductions as XLA's GPU compiler rewrites them before fusion: in as many steps as needed.

The idea: a kernel sums up a limited number of elements, so that no two of its blocks add to the
same number.  Ignoring dims of size 1, and merging neighbouring dims that are both reduced or both
kept, a reduction is

    of rows      [kept, R] -> [kept]       R up to 1,024 threads of 16 elements
    of columns   [K, R, kept] -> [K, kept] R up to 32 rows of 128 threads
    batched      [R0, kept, R] -> [kept]   R0 up to 8, else R is summed up first
    other        [R0, K, R, kept], ...     the longest first (``ReductionSplitter``)

and longer ones are cut into k1 parts of k2 (``TreeReductionRewriter``): among the cuts with sqrt(R)
/ 2 < k <= sqrt(R) that pad least, the smallest power of two, else the largest, is one of the two;
the longer part is summed up first, if that is allowed.  Few rows of columns are not cut: a loop
sums them.  The parts are written in the operand's type, and read again by a kernel that waits for
all of them.  Reductions that are already part of a softmax (``flint.passes.xla.softmax``) are not
cut.  A reduction of dims of size 1 is not a reduction.

    batch norm   [16, 56, 56, 64] -> [64]     [128, 392, 64] -> [128, 64] -> [64]
    a norm       [4096, 512] -> []            [1024, 2048] -> [1024] -> []

Sources: ``tree_reduction_rewriter.cc``, ``reduction_splitter.cc``, ``reduction_utils.cc`` of
openxla/xla (2026).  Which dims are reduced follows from the shapes; if that is ambiguous, the first
dims are kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import SHAPE, Ints, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.passes.columns import repeated
from flint.passes.xla.cycles import WINDOW

#: The most elements of a row, and rows of a column, that one kernel sums up.
ROW, COLUMN = 1024 * 16, 32 * 128
#: The most rows of a batch that one kernel sums up together with their elements.
BATCH: Final = 8
_WARP: Final = 32
#: Columns with fewer rows than the first and fewer elements per row than the second are loops.
_LOOPS: Final = ((_WARP, math.inf), (2 * _WARP, _WARP), (4 * _WARP, 8), (8 * _WARP, 3))

#: A run of neighbouring dims: size, and whether it is reduced.
Run = tuple[int, bool]
#: A step of a reduction: the shape that it writes, () for the last one, and its runs.
Step = tuple[tuple[int, ...], list[Run]]


def _reduces(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Reductions of one block that are no windows, shape [nodes]."""
    windows = np.array([name == WINDOW for name in graph.tables.ops] or [False])[graph.op]
    found: NDArray[np.bool_] = (graph.role == Role.REDUCTION) & ~windows
    return found


def of_nothing(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Reductions of one block whose reduced dims have size 1, shape [nodes]."""
    known = graph.tables.types
    found = np.zeros(len(graph), dtype=bool)
    for node in np.flatnonzero(_reduces(graph)).tolist():
        if graph.operand_ptr[node] < graph.operand_ptr[node + 1]:
            whole = known[graph.value_type[graph.operand[graph.operand_ptr[node]]]]
            result = known[graph.result_type[graph.result_ptr[node]]]
            found[node] = whole.elements == result.elements and whole.dtype == result.dtype
    return found


def split_reductions(
    graph: WorkloadGraph, whole: NDArray[np.bool_], types: dict[TensorType, int]
) -> tuple[WorkloadGraph, Ints, dict[int, list[Run]]]:
    """One block with a node for each step of its reductions; the total work stays the same.

    Args:
        graph: the block.
        whole: reductions that stay as they are, shape [nodes].
        types: all types of the program, by number; those of parts are added.

    Returns:
        The block, the former node that each node is a step of, shape [nodes], and the runs of dims
        of each step.
    """
    known = graph.tables.types
    forms = [form for *_, form in graph.tables.entries()]
    found: dict[int, list[Step]] = {}
    for node in np.flatnonzero(_reduces(graph) & ~whole).tolist():
        if graph.operand_ptr[node] < graph.operand_ptr[node + 1]:
            operand = known[graph.value_type[graph.operand[graph.operand_ptr[node]]]]
            result = known[graph.result_type[graph.result_ptr[node]]]
            dims = forms[graph.op[node]]
            if made := list(steps(runs_of(operand.shape, result.shape, dims))):
                found[node] = made
    return _with_steps(graph, found, types)


def runs_of(
    whole: tuple[int, ...], result: tuple[int, ...], dims: tuple[int, ...] = ()
) -> list[Run]:
    """A reduction's dims as runs, in order; none if the shapes are not those of a reduction.

    Args:
        whole, result: shapes of the operand and the result.
        dims: those that are reduced, () if that follows from the shapes; then -1 and the operand's
            shape, where it is known (a reshape before the reduction leaves no node).

    >>> runs_of((16, 56, 56, 64), (64,))
    [(50176, True), (64, False)]
    """
    if SHAPE in dims:
        place = dims.index(SHAPE)
        if math.prod(dims[place + 1 :]) == math.prod(whole):
            whole = dims[place + 1 :]
        dims = dims[:place]
    kept = [size for size in result if size > 1]
    sizes = [size for size in whole if size > 1]
    if dims and max(dims) < len(whole):
        reduced = [dim in dims for dim, size in enumerate(whole) if size > 1]
    elif sizes[len(sizes) - len(kept) :] == kept and sizes[: len(kept)] != kept:
        reduced = [True] * (len(sizes) - len(kept)) + [False] * len(kept)
    else:
        reduced = []
        for size in sizes:
            reduced.append(not kept or size != kept[0])
            kept = kept if reduced[-1] else kept[1:]
        if kept:
            return []
    each = zip(sizes, reduced, strict=True)
    return [
        (math.prod(size for size, _ in group), key)
        for key, group in itertools.groupby(each, lambda dim: dim[1])
    ]


def steps(runs: list[Run]) -> Iterator[Step]:
    """Shapes of the values written between the steps of a reduction, each with the runs of dims of
    the step before; the runs of the last step come last, with no shape.
    """
    while True:
        places = [place for place, (_, reduced) in enumerate(runs) if reduced]
        if not places:
            return
        longest = max(places, key=lambda place: runs[place][0])
        last = places[-1]
        rows = last == len(runs) - 1  # else columns
        loop = is_loop(runs, last, rows)
        batch = rows and len(runs) == 3 and len(places) == 2
        if len(places) > 1 and (loop or not batch):
            place, left = longest, _without(runs, longest)
        elif loop:
            break
        elif batch and runs[0][0] > BATCH:
            place, left = last, _without(runs, last)
        elif runs[last][0] > (ROW if rows else COLUMN):
            place, parts = last, _cut(runs[last][0], rows)
            left = [*runs[:last], (parts, True), *runs[last + 1 :]]
            runs = [
                *runs[:last],
                (parts, False),
                (-(-runs[last][0] // parts), True),
                *runs[last + 1 :],
            ]
            place += 1
        else:
            break
        yield tuple(size for size, _ in left), _alone(runs, place)
        runs = left
    yield (), runs


def _alone(runs: list[Run], place: int) -> list[Run]:
    """The runs of a step that sums up one of them and keeps the others."""
    before, behind = (
        math.prod(size for size, _ in part) for part in (runs[:place], runs[place + 1 :])
    )
    sides = [(before, False), (runs[place][0], True), (behind, False)]
    return [run for run in sides if run[0] > 1 or run[1]]


def _without(runs: list[Run], place: int) -> list[Run]:
    """The runs after one has been summed up: its neighbours, which are kept, become one."""
    before, behind = runs[:place], runs[place + 1 :]
    if before and behind:
        return [*before[:-1], (before[-1][0] * behind[0][0], False), *behind[1:]]
    return before + behind


def is_loop(runs: list[Run], place: int, rows: bool) -> bool:
    """Whether one thread sums up all elements of a result, so that nothing is cut."""
    size = runs[place][0]
    if rows:
        return size < _WARP and _WARP % size > 0
    width = math.prod(size for size, _ in runs[place + 1 :])
    return any(size < most and width < wide for most, wide in _LOOPS)


def _cut(size: int, rows: bool) -> int:
    """Number of parts of a run that remain after the first step."""
    bound = ROW if rows else COLUMN
    part = min(math.isqrt(size), bound)
    padding = -size % part
    for smaller in range(part - 1, part // 2, -1):
        more = -size % smaller
        if more < padding or (more == padding and smaller.bit_count() == 1):
            part, padding = smaller, more
    parts = (size + padding) // part
    return part if parts <= bound and _swaps(parts, part, size, rows) else parts


def _swaps(parts: int, part: int, size: int, rows: bool) -> bool:
    """Whether the longer of two factors is summed up first: not if rows are loaded in pairs and
    then no longer would be.
    """
    if not rows:
        return True
    if part % 2 == 0 and size % 2 == 0:
        return part * 2 < parts or parts % 2 == 0
    return size % 2 == 0 or parts % 2 != 0


def _with_steps(
    graph: WorkloadGraph, found: dict[int, list[Step]], types: dict[TensorType, int]
) -> tuple[WorkloadGraph, Ints, dict[int, list[Run]]]:
    """``graph`` with a node before a reduction for each step but the last.

    Args:
        graph: one block.
        found: the steps of each reduction.
        types: types of the program; new ones are added.
    """
    copies = np.ones(len(graph), dtype=np.int64)
    copies[list(found)] = [len(made) for made in found.values()]
    copied, rows, last = repeated(graph, copies)
    result_ptr, operand_ptr, work_ptr = copied.result_ptr, copied.operand_ptr, copied.work_ptr
    result_type, operand, flops = copied.result_type, copied.operand, copied.work_flops
    read, written = copied.bytes_read, copied.bytes_written
    known = graph.tables.types
    sizes = np.array([kind.bytes for kind in known], dtype=np.int64)
    runs: dict[int, list[Run]] = {}
    for node, made in found.items():
        shapes = [shape for shape, _ in made[:-1]]
        runs |= zip(
            range(int(last[node]) - len(shapes), int(last[node]) + 1),
            (each for _, each in made),
            strict=True,
        )
        count = int(graph.result_ptr[node + 1] - graph.result_ptr[node])
        whole = graph.value_type[graph.operand[graph.operand_ptr[node] :][:count]]
        elements = known[whole[0]].elements
        total = elements - known[graph.result_type[graph.result_ptr[node]]].elements
        for place, shape in enumerate(shapes, int(last[node]) - len(shapes)):
            parts = [tensor_type(shape, known[kind].dtype) for kind in whole.tolist()]
            values = slice(*(result_ptr[place : place + 2].tolist()))
            result_type[values] = [types.setdefault(kind, len(types)) for kind in parts]
            size = sum(kind.bytes for kind in parts)
            written[place] = size
            read[place + 1] = size + max(graph.bytes_read[node] - sum(sizes[whole]), 0)
            # The parts are this step's results and the next one's first operands.
            ahead = int(operand_ptr[place + 1])
            operand[ahead : ahead + count] = graph.inputs + np.arange(values.start, values.stop)
            # Work that remains for later steps.
            left = max(parts[0].elements - (elements - total), 0) / total
            mine, theirs = (slice(*work_ptr[at : at + 2].tolist()) for at in (place, place + 1))
            rest = (flops[mine] * left).astype(np.int64)
            flops[theirs] = np.minimum(rest, flops[mine])
            flops[mine] -= flops[theirs]
    tables = replace(graph.tables, types=tuple(types))
    return replace(copied, tables=tables), rows, runs
