"""Attention scores in a block: where they are made, processed and consumed.

The idea: follow scores from the product that makes them through everything that keeps or reduces
them; nodes in between belong to them too.  ``fuse`` says what attention is.

    pieces = ScoreFinder(graph, known_values(graph, inputs)).find()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import behind, joins, renames
from flint.graph.work import Role

#: The largest head that fused kernels take.
MAX_HEAD: Final = 256

#: Ops that a kernel can contain in addition to its products.
LIGHT: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION, Role.GENERATE, Role.ALIAS)
#: Ops that scores pass through without change.
_WHOLE: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.ALIAS)
_RANK_OPS: Final = ("partition_id", "replica_id")


class Again(NamedTuple):
    """How scores are recomputed.

    Attributes:
        products: (node, FLOPs, number of the GEMM) of each.
        exponential: whether an exponential follows.
        hidden: whether scores are hidden by position.
    """

    products: tuple[tuple[int, int, int], ...] = ()
    exponential: bool = False
    hidden: bool = False


#: Nodes of a block that slice scores stored elsewhere, with how such scores are made.
Rows = Mapping[int, Again]
NO_ROWS: Final[Rows] = MappingProxyType({})


class Known(IntEnum):
    """What is known about a value before the step runs."""

    NOTHING = 0
    UNIFORM = 1  # one constant everywhere
    BY_POSITION = 2  # a function of positions: iotas, masks


def known_values(graph: WorkloadGraph, inputs: NDArray[np.int8]) -> NDArray[np.int8]:
    """``Known`` of each value, shape [values]."""
    known = np.zeros(graph.values, np.int8)
    known[: graph.inputs] = inputs
    single = np.array([t.elements <= 1 for t in graph.tables.types] or [True], np.bool_)
    names = graph.tables.ops
    role, op = graph.role.tolist(), graph.op.tolist()
    kind = graph.kind.tolist()
    handed_on = renames(graph).tolist()
    for node in range(len(graph)):
        if kind[node] != NodeKind.COMPUTE or role[node] not in LIGHT:
            continue
        name = names[op[node]]
        operands = graph.operands_of(node)
        first, last = graph.result_ptr[node : node + 2] + graph.inputs
        if name in _RANK_OPS:
            continue
        if handed_on[node]:
            known[first:last] = known[operands]
        elif len(operands):
            known[first:last] = known[operands].max() if known[operands].all() else 0
        elif role[node] == Role.GENERATE:
            scalar = bool(single[graph.value_type[first:last]].all())
            splat = scalar or (name == "constant" and not _is_mask(graph, int(first)))
            known[first:last] = Known.UNIFORM if splat else Known.BY_POSITION
    return known


def _is_mask(graph: WorkloadGraph, value: int) -> bool:
    return graph.type_of(value).dtype == "i1"


@dataclass(eq=False, slots=True)
class Scores:
    """One connected piece of work on scores.

    Attributes:
        elements: of a score value.
        members: nodes, with the kernel that each belongs to once it is known.
        makers: contractions that make scores.
        users: contractions that consume them.
        rows: slices of scores that a loop has stored, and their other names, which no kernel reads
            -> how the scores are recomputed.
        square: whether there are as many queries as keys.
        escapes: whether another node reads scores.
    """

    elements: int
    members: dict[int, int] = field(default_factory=dict)
    makers: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    rows: dict[int, Again] = field(default_factory=dict)
    square: int = 0
    escapes: bool = False


class ScoreFinder:
    """One block's columns as lists, and the pieces found in it."""

    def __init__(self, graph: WorkloadGraph, known: NDArray[np.int8], rows: Rows = NO_ROWS) -> None:
        self.graph = graph
        self.rows = rows
        self.known = known.tolist()
        self.kind = graph.kind.tolist()
        # A join is in no kernel: scores after it belong to a later kernel.
        joining = joins(graph)
        self.joins = joining.tolist()
        self.role = np.where(joining, Role.OPAQUE, graph.role).tolist()
        self.named: list[int] = behind(graph, joining).tolist()
        self.names = [graph.tables.ops[i] for i in graph.op.tolist()]
        self.operand: list[int] = graph.operand.tolist()
        self.operand_ptr: list[int] = graph.operand_ptr.tolist()
        self.producer = graph.producer.tolist()
        elements = np.array([t.elements for t in graph.tables.types] or [0], np.int64)
        self.elements = elements[graph.value_type].tolist()
        self.first = (graph.result_ptr + graph.inputs).tolist()
        #: Score value -> its piece, an index that ``piece_of`` follows.
        self.of_value: dict[int, int] = {}
        self.pieces: list[Scores] = []
        self._into: list[int] = []
        #: Products that made rows -> the first such row.
        self._made_by: dict[object, int] = {}

    def operands(self, node: int) -> list[int]:
        return self.operand[self.operand_ptr[node] : self.operand_ptr[node + 1]]

    def results(self, node: int) -> range:
        return range(self.first[node], self.first[node + 1])

    def find(self) -> list[Scores]:
        """All pieces that count as attention."""
        for node in range(len(self.kind)):
            self._visit(node)
        for value in self.graph.outputs.tolist():
            if value in self.of_value:
                self.pieces[self._piece(self.of_value[value])].escapes = True
        kept = [p for i, p in enumerate(self.pieces) if self._into[i] == i]
        return [piece for piece in kept if self._is_attention(piece)]

    def _visit(self, node: int) -> None:
        operands = self.operands(node)
        if node in self.rows:
            self._row(node, self.rows[node])
            return
        if self.joins[node]:
            for value, result in zip(operands, self.results(node), strict=True):
                if value in self.of_value:
                    self.of_value[result] = self.of_value[value]
            return
        touched = {self._piece(self.of_value[v]) for v in operands if v in self.of_value}
        if self.kind[node] != NodeKind.COMPUTE:
            for number in touched:
                self.pieces[number].escapes = True
            return
        role = self.role[node]
        made = self._makes_scores(node)
        if made is not None and not touched:
            made.members[node] = 0
            made.makers.append(node)
            self.of_value[self.first[node]] = self._new(made)
            return
        if not touched:
            return
        number = self._joined(touched)
        piece = self.pieces[number]
        if role == Role.ALIAS and self.producer[self.named[operands[0]]] in piece.rows:
            self._row(node, piece.rows[self.producer[self.named[operands[0]]]], number)
            return
        if role == Role.CONTRACTION:
            piece.members[node] = 0
            piece.users.append(node)
            return
        results = self.results(node)
        whole = all(self.elements[v] == piece.elements for v in results)
        if role == Role.REDUCTION or (role in _WHOLE and whole):
            piece.members[node] = 0
            for value in results:
                if self.elements[value] == piece.elements:
                    self.of_value[value] = number
        else:
            piece.escapes = True

    def _row(self, node: int, again: Again, number: int | None = None) -> None:
        """Mark the result of a node as scores that a loop has stored.

        Rows made by the same products belong to the same piece.
        """
        value = self.first[node]
        if number is None:
            first = self._made_by.setdefault(again.products, value)
            if first == value:
                square = _square(self.graph.type_of(value).shape)
                self.of_value[value] = self._new(Scores(self.elements[value], square=square))
            number = self._piece(self.of_value[first])
        self.of_value[value] = number
        self.pieces[number].rows[node] = again

    def _new(self, piece: Scores) -> int:
        self.pieces.append(piece)
        self._into.append(len(self._into))
        return len(self.pieces) - 1

    def _makes_scores(self, node: int) -> Scores | None:
        graph = self.graph
        if self.role[node] != Role.CONTRACTION:
            return None
        items = range(int(graph.work_ptr[node]), int(graph.work_ptr[node + 1]))
        gemms = [int(graph.work_gemm[i]) for i in items if graph.work_gemm[i] >= 0]
        results = self.results(node)
        if len(gemms) != 1 or len(results) != 1:
            return None
        batch, _, _, k = graph.tables.gemms[gemms[0]]
        elements = self.elements[results[0]]
        shape = graph.type_of(results[0]).shape
        if k > MAX_HEAD or (batch < 2 and len(shape) < 4):
            return None
        if any(self.elements[value] >= elements for value in self.operands(node)):
            return None
        return Scores(elements, square=_square(shape))

    def _piece(self, number: int) -> int:
        while self._into[number] != number:
            number = self._into[number]
        return number

    def _joined(self, numbers: set[int]) -> int:
        first, *others = sorted(numbers)
        into = self.pieces[first]
        for number in others:
            other = self.pieces[number]
            self._into[number] = first
            into.members |= other.members
            into.makers += other.makers
            into.users += other.users
            into.rows |= other.rows
            into.escapes |= other.escapes or other.elements != into.elements
            into.square = min(into.square, other.square)
        return first

    def _is_attention(self, piece: Scores) -> bool:
        names = [self.names[node] for node in piece.members]
        reduces = any(self.role[node] == Role.REDUCTION for node in piece.members)
        exponential = any("exponential" in name for name in names) or bool(piece.rows)
        normal = reduces or len(piece.makers) > 1
        return exponential and normal and bool(piece.users) and not piece.escapes

    def begins(self, piece: Scores) -> bool:
        """Whether the first kernel makes scores, and has the exponential or stored scores."""
        first = [node for node, kernel in piece.members.items() if kernel == 0]
        exponential = any("exponential" in self.names[node] for node in first) or piece.rows
        return bool(exponential) and any(node in piece.makers for node in first)

    def again(self, piece: Scores, node: int, before: int) -> Again:
        """How the scores of a member are recomputed, from the kernels before ``before``."""
        work, gemm = self.graph.work_flops, self.graph.work_gemm
        makers = [maker for maker in piece.makers if piece.members[maker] < before]
        first = [(maker, int(self.graph.work_ptr[maker])) for maker in makers]
        products = tuple((maker, int(work[i]), int(gemm[i])) for maker, i in first)
        return Again(products, node not in piece.makers, self._hides(piece))

    def _hides(self, piece: Scores) -> bool:
        """Whether a mask made from positions works on scores."""
        given = (value for node in piece.members for value in self.operands(node))
        return bool(piece.square) and any(self.known[v] == Known.BY_POSITION for v in given)


def _square(shape: tuple[int, ...]) -> int:
    """Number of positions if queries and keys are equally many: the longest dim, if it occurs
    twice.
    """
    longest = max(shape)
    return longest if shape.count(longest) > 1 else 0


def known_inside(graph: WorkloadGraph, node: int, known: NDArray[np.int8]) -> NDArray[np.int8]:
    """What is known about the inputs of a loop's body in all iterations."""
    operands = graph.operands_of(node)
    given = known[operands].copy()
    given[: graph.loop_of(node).carried] = Known.NOTHING
    return given
