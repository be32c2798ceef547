"""Orders of dims in which batched products write their results, and dims that reductions sum up.

writes(groups(graph, product), (0, 1, 3, 2), shape)     # whether columns may come before rows
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from flint.graph.graph import SHAPE, Form, WorkloadGraph

PRODUCT: Final = "dot_general"
#: Groups of dims of a product's result.
BATCH, ROWS, COLUMNS = range(3)


def groups(graph: WorkloadGraph, product: int) -> list[int]:
    """The group of each dim of a batched product's result; none if its sizes do not tell."""
    items = slice(*graph.work_ptr[product : product + 2].tolist())
    numbers = graph.work_gemm[items].tolist()
    if len(numbers) != 1 or numbers[0] < 0:
        return []
    *left, _ = graph.tables.gemms[numbers[0]]
    batched, found, group = left[BATCH] > 1, [], BATCH
    for size in graph.tables.types[graph.result_type[graph.result_ptr[product]]].shape:
        while group < COLUMNS and left[group] == 1:
            group += 1
        left[group], rest = divmod(left[group], size)
        if rest:
            return []
        found.append(group)
    return found if batched and left == [1, 1, 1] else []


def reduced(form: Form) -> tuple[Form, Form]:
    """Reduced dims, and the shape that they are dims of; () where they are not known."""
    if SHAPE not in form:
        return (), ()
    place = form.index(SHAPE)
    return form[:place], form[place + 1 :]


def reads(groups: list[int], order: Form, shape: tuple[int, ...]) -> bool:
    """Whether a product's kernel can read an operand with its dims in an order in memory: dims that
    it contracts (``COLUMNS``) may be in any order among each other."""
    columns = [dim for dim in order if groups[dim] == COLUMNS]
    order = tuple(sorted(columns)[columns.index(d)] if d in columns else d for d in order)
    return writes(groups, order, shape)


def writes(groups: list[int], order: Form, shape: tuple[int, ...]) -> bool:
    """Whether a product can have its dims in an order in memory, or it is not known; dims of size 1
    do not count.

    Args:
        groups: of each dim.
        order: a permutation of these dims.
        shape: their sizes.
    """
    if not groups:
        return True
    large = [dim for dim in order if shape[dim] > 1]
    placed = [groups[dim] for dim in large]
    runs = [group for group, _ in itertools.groupby(placed)]
    sorted_ = all(a < b for a, b in itertools.pairwise(large) if groups[a] == groups[b])
    return len(runs) == len({*runs}) and sorted_ and runs[-1:] != [BATCH]


def regrouped(shape: tuple[int, ...], back: Form, other: tuple[int, ...]) -> Form:
    """The order in memory of a reshaped value's dims; () if it has none.

    Args:
        shape, back: the dims, and their order in memory.
        other: the dims of as many elements that they are read as.
    """
    if shape == other:
        return back
    if math.prod(shape) != math.prod(other) or not math.prod(shape):
        return ()
    parts: dict[int, list[int]] = {}  # first of the dims that are dims of the other shape
    joined: dict[int, list[int]] = {}
    ones = [dim for dim, size in enumerate(other) if size == 1]
    ahead = [dim for dim, size in enumerate(other) if size > 1]
    dims = [dim for dim, size in enumerate(shape) if size > 1]
    while dims:
        left, right = [dims.pop(0)], [ahead.pop(0)]
        while (a := math.prod(shape[d] for d in left)) != (b := math.prod(other[d] for d in right)):
            (left if a < b else right).append((dims if a < b else ahead).pop(0))
        parts[left[0]], joined[left[0]] = right, left
    order, place = list(ones), 0
    known = [dim for dim in back if shape[dim] > 1]
    while place < len(known):
        left = joined.get(known[place], [])
        if not left or known[place : place + len(left)] != left:
            return ()
        order += parts[known[place]]
        place += len(left)
    return tuple(order)
