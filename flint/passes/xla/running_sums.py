"""Running sums, which XLA's compiler computes in tiles of 16.

The idea: a running sum over n elements is a window of n in front of each, which would take n^2 / 2
additions.  ``ReduceWindowRewriter`` makes it sums within tiles of 16, whose last elements are
summed up, too, and added to the tiles behind:

    cumsum x [512]      tiles = window of 16 of x [512];  last = each 16th window [32]
                        sums = cumsum last;  add tiles, broadcast sums

So a kernel reads all of x for the last elements, and the final one reads it again.  Sums of up to
16 elements are a window; longer ones are cut again.  Products, maxima and the like run alike.

Source: ``reduce_window_rewriter.cc`` of openxla/xla (2026), and modules that it has made.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from flint.graph.graph import Form, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.passes.xla.cycles import WINDOW
from flint.passes.xla.steps import Steps
from flint.passes.xla.transposes import Entry

#: Elements of a tile.
_TILE: Final = 16
SPREAD: Final[Entry] = ("broadcast_in_dim", "", ())
ADD: Final[Entry] = ("add", "", ())


class _Sum(NamedTuple):
    """A running sum.

    Attributes:
        dim: along which it runs.
        lengths: of the sums that it is made of, the whole first, those of last elements behind.
    """

    dim: int
    lengths: list[int]


def running(graph: WorkloadGraph) -> list[Entry]:
    """The entries that a table of ops needs for tiles."""
    found = dict.fromkeys([SPREAD, ADD])
    for name, _, form in graph.tables.entries():
        if name == WINDOW and (sums := _sum(form)):
            rank = len(form) // 3
            found |= {_window(rank, sums.dim, size): None for size in (_TILE, sums.lengths[-1])}
            found[_window(rank, sums.dim, _TILE, _TILE)] = None
    return list(found)


def tiled_sums(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block whose running sums are in tiles.

    Args:
        graph: the block; its table of ops has the entries of ``running``.
        types: all types of the program, by number; new ones are added.
    """
    entries = list(graph.tables.entries())
    single = (np.diff(graph.result_ptr) == 1) & (np.diff(graph.operand_ptr) == 2)
    windows = np.array([entry[0] == WINDOW for entry in entries] or [False])[graph.op] & single
    found = {
        node: sums
        for node in np.flatnonzero(windows).tolist()
        if (sums := _sum(entries[graph.op[node]][2]))
    }
    if not found:
        return graph
    copies = np.ones(len(graph), dtype=np.int64)
    copies[list(found)] = [4 * len(sums.lengths) - 3 for sums in found.values()]
    made = Steps(graph, copies, types)
    numbers = {entry: number for number, entry in enumerate(entries)}
    for node, sums in found.items():
        _expand(made, int(made.last[node]) - int(copies[node]) + 1, sums, numbers)
    return made.done()


def _expand(steps: Steps, first: int, sums: _Sum, numbers: dict[Entry, int]) -> None:
    """Write the steps of one running sum, the first of which has this number."""
    source, initial = steps.operands[first]
    whole = steps.graph.type_of(steps.value(first))
    rank, at, one = len(whole.shape), first, int(steps.graph.value_bytes[initial])
    tiles: list[int] = []

    def step(entry: Entry, role: Role, values: list[int], length: int, read: int) -> int:
        nonlocal at
        shape = (*whole.shape[: sums.dim], length, *whole.shape[sums.dim + 1 :])
        kind = tensor_type(shape, whole.dtype)
        steps.op[at], steps.role[at], steps.operands[at] = numbers[entry], role, values
        steps.makes(at, kind)
        steps.works[at] = at == first
        steps.read[at], steps.written[at] = read, kind.bytes
        at += 1
        return steps.value(at - 1)

    def size(length: int) -> int:
        return whole.bytes // whole.shape[sums.dim] * length

    *cut, last = sums.lengths
    window, last_of = _window(rank, sums.dim, _TILE), _window(rank, sums.dim, _TILE, _TILE)
    for length, less in zip(cut, sums.lengths[1:], strict=True):
        tiles.append(step(window, Role.REDUCTION, [source, initial], length, size(length) + one))
        source = step(last_of, Role.REDUCTION, [source, initial], less, size(length) + one)
    total = step(
        _window(rank, sums.dim, last), Role.REDUCTION, [source, initial], last, size(last) + one
    )
    for length, less in zip(cut[::-1], sums.lengths[:0:-1], strict=True):
        spread = step(SPREAD, Role.MOVEMENT, [total], length, size(less))
        total = step(ADD, Role.ELEMENTWISE, [tiles.pop(), spread], length, 2 * size(length))


def _window(rank: int, dim: int, size: int, stride: int = 1) -> Entry:
    """The entry of a window of some elements along a dim."""
    sizes = [size if each == dim else 1 for each in range(rank)]
    padding = [n for each in sizes for n in (each - 1, 0)]
    return WINDOW, "", (*sizes, *padding, stride)


def _sum(form: Form) -> _Sum | None:
    """The running sum that a window of this form is, if it is cut."""
    rank = len(form) // 3
    sizes, padding = form[:rank], form[rank:-1]
    wide = [dim for dim, size in enumerate(sizes) if size > 1]
    if len(wide) != 1 or form[-1] != 1:
        return None
    [dim] = wide
    length = sizes[dim]
    mine = sorted(padding[2 * dim : 2 * dim + 2])
    if length <= _TILE or mine != [0, length - 1] or sum(padding) != length - 1:
        return None
    lengths = [length]
    while lengths[-1] > _TILE:
        lengths.append(-(-lengths[-1] // _TILE))
    return _Sum(dim, lengths)
