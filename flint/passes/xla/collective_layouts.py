"""Transposes around gathers and scatters of a dim that is not the first.

The idea: NCCL joins what ranks have one after the other, so that XLA gathers and scatters along the
dim that is first in memory.  If that is another dim, layouts are chosen so that it is the first
there (``LayoutAssignment``), and a kernel transposes where such a layout meets the usual one:

    all_gather x [4, 1024, 512] -> [4, 8192, 512]     x is transposed, where it is converted
    a loop that gathers slices of a stack             the stack is transposed once, before it
    gathered values in a stack, read by another loop  the stack is transposed once, before it
    an optimizer that reads scattered gradients       transposes them

Products, and kernels that read nothing else, take any layout, and a transpose makes the one that is
wanted.  A loop reads what it does not gather in the usual layout.  Dims of size 1 do not count.

Source: ``gpu_layout_assignment.cc`` of openxla/xla (2026), and layouts of compiled programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import Form, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import transparent_nodes
from flint.passes.xla.transposes import TRANSPOSE, Entry, Transpose, entry_of, with_transposes

_GATHER: Final = "all_gather"
_MOVED: Final = (_GATHER, "reduce_scatter")
_UPDATE: Final = "dynamic_update_slice"
#: Ops on one tensor that leave its dims in their places.
_ALONG: Final = ("convert", "dynamic_slice", "slice", "reshape", "bitcast")


def _order(rank: int, behind: int, back: bool) -> Form:
    """A permutation of dims.

    Args:
        rank: number of dims.
        behind: dims from the one that is moved to the last one, itself among them.
        back: whether the usual layout is made.
    """
    dim = rank - behind
    if back:
        return (*range(1, dim + 1), 0, *range(dim + 1, rank))
    return (dim, *(other for other in range(rank) if other != dim))


def turns(graph: WorkloadGraph) -> list[Entry]:
    """The entries that a table of ops needs for what this pass adds."""
    found: dict[Entry, None] = {(TRANSPOSE, "", ()): None}
    for block, _ in graph.walk():
        for node in np.flatnonzero(block.kind == NodeKind.COMMUNICATION).tolist():
            for value, _, behind in _inner(block, node):
                rank = len(block.type_of(value).shape)
                orders = (
                    _order(n, behind, back) for n in (rank, rank + 1) for back in (False, True)
                )
                found |= dict.fromkeys(map(entry_of, orders))
    return list(found)


def turned_collectives(graph: WorkloadGraph) -> WorkloadGraph:
    """A program whose gathers and scatters read what they move with its dim in front.

    Args:
        graph: the program; its table of ops has the entries of ``turns``.
    """
    return _Block(graph).changed


class _Block:
    """A block with transposes.

    Attributes:
        changed: the block.
        wanted: invariant inputs that it wants turned: the moved dim, counted from the last one.
        given: outputs that are turned, likewise.
    """

    changed: WorkloadGraph

    def __init__(self, graph: WorkloadGraph, carried: int | None = None) -> None:
        """Args:
        graph: the block.
        carried: how many of a loop's inputs it carries; None if it is no loop's body.
        """
        self.graph, self.carried = graph, carried
        self.names = [graph.tables.ops[op] for op in graph.op.tolist()]
        self.again = [*transparent_nodes(graph).tolist(), False]  # the last one is for inputs
        self.wanted: dict[int, int] = {}
        self.turned: dict[int, int] = {}
        self.found: dict[int, Transpose] = {}
        loops = list(graph.loops)
        for node in range(len(graph)):
            if graph.kind[node] == NodeKind.LOOP:
                place = int(graph.detail[node])
                inner = _Block(loops[place].body, loops[place].carried)
                loops[place] = replace(loops[place], body=inner.changed)
                self._loop(node, inner)
            elif graph.kind[node] == NodeKind.COMMUNICATION:
                self._moves(node)
            else:
                self._computes(node)
        outputs = enumerate(graph.outputs.tolist())
        self.given = {at: self.turned[value] for at, value in outputs if value in self.turned}
        self.changed = with_transposes(replace(graph, loops=tuple(loops)), self.found)

    def _turn(self, entry: int, behind: int, back: bool) -> None:
        value = int(self.graph.operand[entry])
        order = _order(len(self.graph.type_of(value).shape), behind, back)
        self.found.setdefault(value, Transpose([], order)).entries.append(entry)

    def _loop(self, node: int, inner: _Block) -> None:
        first = int(self.graph.operand_ptr[node])
        for at, value in enumerate(self.graph.operands_of(node).tolist()):
            if (at in inner.wanted) != (value in self.turned):
                behind = inner.wanted.get(at) or self.turned[value]
                self._turn(first + at, behind, value in self.turned)
        made = self.graph.inputs + int(self.graph.result_ptr[node])
        self.turned |= {made + at: behind for at, behind in inner.given.items()}

    def _moves(self, node: int) -> None:
        entry = int(self.graph.operand_ptr[node])
        gathers = self.graph.tables.communications[self.graph.detail[node]].kind == _GATHER
        for value, made, behind in _inner(self.graph, node):
            self.turned[made] = behind
            source = self._source(value)
            if not gathers or value in self.turned or source >= self.graph.inputs:
                continue
            if self.carried is None:
                at = self.graph.operands_of(node).tolist().index(value)
                self._turn(entry + at, behind, False)
            elif source >= self.carried:
                self.wanted[source] = behind

    def _computes(self, node: int) -> None:
        if not self.turned:
            return
        operands = self.graph.operands_of(node).tolist()
        if not self.turned.keys() & set(operands):
            return
        made = self.graph.inputs + int(self.graph.result_ptr[node])
        if self.names[node] in (*_ALONG, _UPDATE):
            moved = operands[1 if self.names[node] == _UPDATE else 0]
            if moved in self.turned:
                self.turned[made] = self.turned[moved]
        elif self.graph.role[node] == Role.ELEMENTWISE:
            whole, first = self.graph.type_of(made).elements, int(self.graph.operand_ptr[node])
            read = {
                value: first + at
                for at, value in enumerate(operands)
                if self.graph.type_of(value).elements == whole
                and not self.again[self.graph.producer[value]]
            }
            both = self.turned.keys() & read.keys()
            if both == read.keys() and both:
                self.turned[made] = self.turned[next(iter(both))]
            else:
                for value in sorted(both):
                    self._turn(read[value], self.turned[value], True)

    def _source(self, value: int) -> int:
        """What a value is a part of, or is converted from."""
        while (maker := int(self.graph.producer[value])) >= 0 and self.names[maker] in _ALONG:
            value = int(self.graph.operand[self.graph.operand_ptr[maker]])
        return value


def _inner(graph: WorkloadGraph, node: int) -> Iterator[tuple[int, int, int]]:
    """Operands and results of a communication that joins or divides a dim that is not the first,
    and the dim, counted from the last one.
    """
    if graph.tables.communications[graph.detail[node]].kind not in _MOVED:
        return
    results = range(*(graph.result_ptr[node : node + 2] + graph.inputs).tolist())
    for value, made in zip(graph.operands_of(node).tolist(), results, strict=False):
        before, after = graph.type_of(value).shape, graph.type_of(made).shape
        differ = [
            dim for dim, sizes in enumerate(zip(before, after, strict=False)) if len({*sizes}) > 1
        ]
        if len(before) == len(after) and len(differ) == 1:
            [dim] = differ
            if any(size > 1 for size in before[:dim]):
                yield value, made, len(before) - dim
