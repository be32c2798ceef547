"""Normalised rows that XLA's GPU compiler makes one kernel before it fuses anything else.

The idea: a value of rows meets what is reduced from it, like a maximum that is subtracted or a sum
that it is divided by.  Between the value and that op there are only conversions, functions of one
value and arithmetic with constants (``SoftmaxRewriterTriton``):

    x -> reduce -> (mean) -> broadcast -> subtract
    x --------------------------------->

Such kernels hold a whole row, which must fit in registers; what is computed from the same rows
joins them later (``flint.passes.xla.priority``).

Sources: ``softmax_rewriter_triton.cc``, ``gpu_indexing_performance_model.cc`` of openxla/xla
(2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from flint.cost.library_kernels import SOFTMAX as DOES
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.instructions import Instructions
from flint.passes.xla.times import Kernel
from flint.passes.xla.transposes import Entry

#: The most elements of a row: as many as fit in a block's registers, filled up to a power of two.
_ROW: Final = 1 << 14
#: What a table of ops has of such a kernel that computes exponentials.
SOFTMAX: Final[Entry] = ("softmax", DOES, ())
_EXPONENTIALS: Final = ("exponential", "exponential_minus_one")


def with_softmaxes(
    graph: WorkloadGraph, place: Ints, kernels: Mapping[int, Kernel], block: Instructions
) -> WorkloadGraph:
    """A graph of kernels in which those of whole rows with exponentials are told as softmaxes.

    Args:
        graph: the kernels; its table of ops has ``SOFTMAX``.
        place: the kernel of each op of ``block``, shape [ops].
        kernels: root -> kernel.
        block: the ops.
    """
    found = [
        int(place[root])
        for root, kernel in kernels.items()
        if kernel.row and any(block.names[node] in _EXPONENTIALS for node in kernel.members)
    ]
    op = graph.op.copy()
    op[found] = list(graph.tables.entries()).index(SOFTMAX)
    return replace(graph, op=op)


def diamonds(block: Instructions) -> dict[int, frozenset[int]]:
    """The ops that end such kernels, each with the kernel's ops."""
    found: dict[int, frozenset[int]] = {}
    seek = _Diamonds(block)
    for node in range(len(block.names)):
        if members := seek.members(node):
            found[node] = members
    taken: set[int] = set()
    for node in sorted(found, reverse=True):
        if found[node] & taken:
            del found[node]
        else:
            taken |= found[node]
    return found


class _Diamonds:
    def __init__(self, block: Instructions) -> None:
        self.block = block
        self.uses: dict[int, int] = {}
        for value in block.operand:
            self.uses[value] = self.uses.get(value, 0) + 1
        for value in block.graph.outputs.tolist():
            self.uses[value] = self.uses.get(value, 0) + 1

    def members(self, root: int) -> frozenset[int]:
        """The ops of the kernel that ends in an op, none if it ends none."""
        block = self.block
        if not block.elementwise[root] or not block.free[root] or len(block.operands(root)) != 2:
            return frozenset()
        one, other = block.operands(root)
        path: list[int] = []
        if (broadcast := self._back(other, path, self._is_broadcast)) < 0:
            return frozenset()
        inner = block.operands(broadcast)[0]
        if (reduction := self._back(inner, path, self._is_rows)) < 0:
            return frozenset()
        if not all(self.uses[block.first[node]] == 1 for node in (broadcast, reduction)):
            return frozenset()
        path += [root, broadcast, reduction]
        value = block.operands(reduction)[0]
        above = [value]
        while (maker := self._trivial(value)) >= 0:
            path.append(maker)
            value = self._through(maker)
            above.append(value)
        mine = one
        while mine not in above:
            if (maker := self._trivial(mine)) < 0:
                return frozenset()
            path.append(maker)
            mine = self._through(maker)
        # What lies above the place where both meet is no part of it.
        outside = set(above[above.index(mine) :])
        path = [node for node in path if block.first[node] not in outside]
        return frozenset(path)

    def _back(self, value: int, path: list[int], wanted: Callable[[int], bool]) -> int:
        """The wanted op that a value comes from, through trivial ones that are noted; else -1."""
        block = self.block
        while (maker := block.maker[value]) >= 0:
            if wanted(maker):
                return maker
            if self._trivial(value) < 0:
                return -1
            path.append(maker)
            value = self._through(maker)
        return -1

    def _is_broadcast(self, node: int) -> bool:
        block = self.block
        return bool(
            block.role[node] == Role.MOVEMENT
            and block.always[node]
            and block.free[node]
            and len(block.operands(node)) == 1
            and self.block.elements[block.operands(node)[0]] > 1
        )

    def _is_rows(self, node: int) -> bool:
        """Whether an op reduces the last dim alone."""
        block = self.block
        if block.role[node] != Role.REDUCTION or not block.free[node]:
            return False
        return 1 < block.row_of(node) <= _ROW

    def _trivial(self, value: int) -> int:
        """What makes a value, if it is read once and made of one that is no constant; else -1."""
        block = self.block
        maker = block.maker[value]
        if maker < 0 or self.uses[value] > 1 or not block.free[maker]:
            return -1
        if block.alias[maker]:
            return maker
        if not block.elementwise[maker]:
            return -1
        operands = set(block.operands(maker))
        tensors = [each for each in operands if not self._splat(each)]
        return maker if len(tensors) == 1 and len(operands) <= 2 else -1

    def _through(self, node: int) -> int:
        operands = self.block.operands(node)
        return next((each for each in operands if not self._splat(each)), operands[0])

    def _splat(self, value: int) -> bool:
        """Whether a value is a constant, or a broadcast of a scalar or a parameter."""
        block = self.block
        maker = block.maker[value]
        if maker < 0:
            return bool(block.elements[value] == 1)
        if block.role[maker] == Role.GENERATE:
            return True
        if not block.always[maker] or not block.operands(maker):
            return False
        inner = block.operands(maker)[0]
        smaller = block.elements[inner] < block.elements[value]
        return smaller and (block.elements[inner] == 1 or block.maker[inner] < 0)
