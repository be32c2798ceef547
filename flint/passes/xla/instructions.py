"""The ops of one block as XLA's GPU compiler sees them when it fuses: lists by node, value, entry.

The idea: fusion is decided op by op, so the columns that it needs are computed once: which ops are
elementwise, how much of an operand one reads, how many cycles an element takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import accessed_bytes, transparent_nodes
from flint.passes.xla.cycles import MULTIPLIED, WINDOW, cycles_of, window_of
from flint.passes.xla.emitters import (
    Emitter,
    columns_grid,
    loop_grid,
    reduces,
    rows_grid,
    shared_bytes,
    transposed,
    whole_rows_grid,
)
from flint.passes.xla.orders import reduced
from flint.passes.xla.reductions import Run, runs_of

#: Elements that a reduction sums up, at least, if it counts as one.
_SIGNIFICANT: Final = 16
#: The most operands of a concatenation with an emitter of its own.
_JOINED: Final = 4
#: Threads of a block of a kernel that transposes in tiles, and elements of a tile.
_TILE: Final = (128, 32 * 32)


class Instructions:
    """Lists of one block.

    Attributes:
        always: ops that are computed where they are read: constants, views, broadcasts [nodes].
        elementwise: ops that compute an element from one of each operand [nodes].
        share: how often an element of an operand is read, on average [operands].
        cycles: of an op's arithmetic [nodes].
        sizes, width, elements: bytes, bytes of an element, elements [values].
        written: bytes [nodes].
        looped: elements that a loop for the op runs over [nodes].
        reduced: the runs of dims of reductions, node -> runs.
        emitter: how an op alone runs [nodes].
    """

    def __init__(self, graph: WorkloadGraph, runs: Mapping[int, list[Run]] | None = None) -> None:
        self.graph = graph
        types = graph.tables.types
        self.kinds = [types[kind] for kind in graph.value_type.tolist()]
        entries = list(graph.tables.entries())
        self.names = [entries[op][0] for op in graph.op.tolist()]
        self.forms = [entries[op][2] for op in graph.op.tolist()]
        self.role: list[int] = graph.role.tolist()
        self.ptr: list[int] = graph.operand_ptr.tolist()
        self.operand: list[int] = graph.operand.tolist()
        self.maker: list[int] = graph.producer.tolist()
        self.first: list[int] = (graph.result_ptr[:-1] + graph.inputs).tolist()
        self.sizes: list[int] = graph.value_bytes.tolist()
        self.elements: list[int] = [kind.elements for kind in self.kinds]
        self.width = [max(kind.bytes // max(kind.elements, 1), 1) for kind in self.kinds]
        self.alias = [role == Role.ALIAS for role in self.role]
        compute = (graph.kind == NodeKind.COMPUTE).tolist()
        transparent = transparent_nodes(graph).tolist()
        free = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
        free[graph.order_node] = False
        self.free: list[bool] = (free & (graph.kind == NodeKind.COMPUTE)).tolist()
        #: Reductions with several results, such as a maximum and its place: they compute what they
        #: read, and nothing computes them.
        several = (np.diff(graph.result_ptr) > 1) & (graph.role == Role.REDUCTION)
        several &= (np.diff(graph.order_ptr) == 0) & (graph.kind == NodeKind.COMPUTE)
        several[graph.order_node] = False
        self.variadic: list[bool] = several.tolist()
        #: Scalars that a kernel reads as if they were in memory.
        self.constant = [
            role == Role.GENERATE and self.made(node) == 1 for node, role in enumerate(self.role)
        ]
        self.always = [
            (transparent[node] or self.alias[node]) and self.free[node] and not self.constant[node]
            for node in range(len(graph))
        ]
        self.elementwise = [
            role == Role.ELEMENTWISE and kind for role, kind in zip(self.role, compute, strict=True)
        ]
        #: Ops that a kernel of whole rows may contain.
        self.plain = [
            any(each) for each in zip(self.elementwise, self.always, self.constant, strict=True)
        ]
        self.cycles = cycles_of(graph)
        for node, name in enumerate(self.names):
            if name == "divide" and self.elementwise[node] and self._by_constant(node):
                self.cycles[node] *= MULTIPLIED
        self.share = self._shares()
        self.written = [
            self.sizes[self.first[node]]
            if graph.result_ptr[node] < graph.result_ptr[node + 1]
            else 0
            for node in range(len(graph))
        ]
        self.looped = [self.made(node) for node in range(len(graph))]
        for node, role in enumerate(self.role):
            if role == Role.UPDATE:
                self.written[node] = int(graph.bytes_written[node])
                self.looped[node] = self.written[node] // max(self.width[self.first[node]], 1)
        self.reduced = dict(runs or {})
        self.emitter = [Emitter.LOOP] * len(graph)
        self.turns, self.reduces, self.heroes = ([False] * len(graph) for _ in range(3))
        self.shared = [0] * len(graph)
        for node in range(len(graph)):
            if self.free[node] or self.variadic[node]:
                self._runs(node)
        #: Emitters that ops behind theirs keep.
        self.kept_emitters = [
            each for each in (Emitter.TRANSPOSE, Emitter.CONCATENATE) if each in self.emitter
        ]

    def operands(self, node: int) -> list[int]:
        return self.operand[self.ptr[node] : self.ptr[node + 1]]

    def made(self, node: int) -> int:
        """Elements of a node's first result."""
        first = self.first[node]
        return self.elements[first] if first < len(self.elements) else 0

    def reshapes(self, node: int) -> bool:
        """Whether an op reads a value in another shape than it is made in."""
        shape = self.kinds[self.first[node]].shape
        if self.names[node] == "transpose":
            _, whole = reduced(self.forms[node])
            source = self.kinds[self.operands(node)[0]].shape
            if whole:
                return bool(source != whole)
            order = self.forms[node]
            return len(order) != len(source) or tuple(source[d] for d in order) != shape
        if self.elementwise[node]:
            return any(
                self.elements[value] == self.elements[self.first[node]]
                and self.kinds[value].shape != shape
                for value in self.operands(node)
            )
        return False

    def row_of(self, node: int) -> int:
        """Elements of the last dim if that is the one that a reduction sums up, else 0."""
        whole = self.kinds[self.operands(node)[0]].shape
        made = self.kinds[self.first[node]].shape
        runs = self.reduced.get(node, [])
        rows = bool(made) and whole[:-1] == made and bool(runs) and runs[-1][1]
        return whole[-1] if rows else 0

    def filling(self, node: int, row: int) -> float:
        """Cycles that filling whole rows up to a power of two adds to those of an op."""
        whole = row and self.kinds[self.first[node]].shape[-1:] == (row,)
        return self.cycles[node] * ((1 << (row - 1).bit_length()) / row - 1) if whole else 0.0

    def cuts_rows(self, node: int) -> bool:
        """Whether an op takes some rows of a value, or a part of each."""
        return self.names[node] == "slice" and len(self.kinds[self.first[node]].shape) > 1

    def runs(
        self,
        root: int,
        members: frozenset[int],
        sources: Iterable[int],
        row: int,
        both: frozenset[int] = frozenset(),
    ) -> tuple[Emitter, int, int]:
        """How a kernel runs: emitter, blocks and threads.

        Args:
            root: the op whose result is written.
            members: its ops.
            sources: the values that it reads.
            row: elements of a row if it holds whole rows, else 0.
            both: ops that are in it twice, as both of two kernels that become one have them.
        """
        if row:
            sums = (each for each in members if self.role[each] == Role.REDUCTION)
            return Emitter.WHOLE_ROWS, *whole_rows_grid(self.made(next(sums, root)), row)
        emitter, hero = self.hero(root, members, both)
        if emitter in (Emitter.ROWS, Emitter.COLUMNS):
            bits = min((8 * self.width[value] for value in sources), default=32)
            grid = rows_grid if emitter == Emitter.ROWS else columns_grid
            return emitter, *grid(self.reduced[hero], bits)
        if emitter == Emitter.TRANSPOSE:
            return emitter, -(-self.made(hero) // _TILE[1]), _TILE[0]
        if emitter == Emitter.CONCATENATE:
            return emitter, *loop_grid(max(self.elements[each] for each in self.operands(hero)))
        return emitter, *loop_grid(self.looped[root])

    def hero(
        self, root: int, members: frozenset[int], both: frozenset[int] = frozenset()
    ) -> tuple[Emitter, int]:
        """The op that decides how a kernel runs, behind elementwise ops with one operand.

        A transpose may also be behind others, if it is the only one and there once, and so may a
        concatenation.
        """
        hero = root
        while self.elementwise[hero] or self.alias[hero]:
            makers = [self.maker[value] for value in self.operands(hero)]
            if len(makers) != 1 or makers[0] not in members:
                break
            hero = makers[0]
        if self.heroes[hero]:
            return self.emitter[hero], hero
        for emitter in self.kept_emitters:
            found: set[int] = set()
            ahead, seen = [hero], {hero}
            while ahead and len(found) < 2:
                node = ahead.pop()
                if self.emitter[node] == emitter:
                    found.add(node)
                elif self.elementwise[node] or self.alias[node]:
                    makers = [self.maker[value] for value in self.operands(node)]
                    new = {each for each in makers if each in members} - seen
                    seen |= new
                    ahead += new
            if len(found) == 1 and found.isdisjoint(both):
                return emitter, found.pop()
        return Emitter.LOOP, root

    def _runs(self, node: int) -> None:
        """How an op alone runs."""
        if self.ptr[node] == self.ptr[node + 1]:
            return
        whole, made = self.kinds[self.operand[self.ptr[node]]], self.kinds[self.first[node]]
        if self.names[node] == WINDOW:
            return  # a loop over its result
        if self.role[node] == Role.REDUCTION or self.names[node] == "reduce":
            runs = self.reduced.setdefault(node, runs_of(whole.shape, made.shape, self.forms[node]))
            self.emitter[node] = reduces(runs)
            self.reduces[node] = whole.elements >= _SIGNIFICANT * max(made.elements, 1)
            self.heroes[node] = self.emitter[node] != Emitter.LOOP
            width = self.width[self.operand[self.ptr[node]]]
            self.shared[node] = shared_bytes(self.emitter[node], width)
        elif self.names[node] == "concatenate":
            if self.ptr[node + 1] - self.ptr[node] <= _JOINED:
                self.emitter[node] = Emitter.CONCATENATE
        elif self.names[node] == "transpose":
            order, shape = reduced(self.forms[node])
            self.turns[node], tiled = transposed(
                shape or whole.shape,
                order or self._order(node),
                8 * self.width[self.first[node]],
            )
            if tiled:
                self.emitter[node] = Emitter.TRANSPOSE
                self.shared[node] = shared_bytes(Emitter.TRANSPOSE, self.width[self.first[node]])

    def _order(self, node: int) -> Sequence[int]:
        """A transpose's permutation; a part of a merged product is turned round as a whole."""
        rank = len(self.kinds[self.operands(node)[0]].shape)
        form = self.forms[node]
        return form if len(form) == rank else range(rank)[::-1]

    def _by_constant(self, node: int) -> bool:
        """Whether an op divides by a constant: it multiplies by the reciprocal."""
        maker = self.maker[self.operands(node)[1]]
        while maker >= 0 and self.always[maker] and self.operands(maker):
            maker = self.maker[self.operands(maker)[0]]
        return maker >= 0 and self.role[maker] == Role.GENERATE

    def _shares(self) -> list[float]:
        """How often an element of each operand is read by an op alone, on average."""
        graph = self.graph
        accessed = accessed_bytes(graph).tolist()
        consumers = graph.consumer.tolist()
        share = [1.0] * len(accessed)
        windows = {self.operand[self.ptr[n]] for n, name in enumerate(self.names) if name == WINDOW}
        for entry, node in enumerate(consumers):
            value = self.operand[entry]
            if self.names[node] == "pad" and self.first[node] in windows:  # it is part of these
                share[entry] = self.made(node) / max(self.elements[value], 1)
            elif self.role[node] == Role.MOVEMENT and self.ptr[node + 1] - self.ptr[node] == 1:
                made, whole = self.made(node), max(self.elements[value], 1)
                if self.always[node] or made < whole:
                    share[entry] = made / whole
            elif self.names[node] == WINDOW and entry == self.ptr[node]:
                share[entry] = (
                    window_of(self.forms[node]) * self.made(node) / max(self.elements[value], 1)
                )
            elif self.names[node] == "gather" and entry == self.ptr[node]:
                share[entry] = self.made(node) / max(self.elements[value], 1)  # also several times
            elif self.role[node] in (Role.MOVEMENT, Role.UPDATE):
                share[entry] = accessed[entry] / max(self.sizes[value], 1)
        return share
