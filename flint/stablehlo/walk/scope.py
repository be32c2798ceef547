"""Scopes: the walker's position, and the numbers of record values there.

The idea: a loop body or a branch is a graph of its own.  A value from outside that it uses becomes
one of its inputs at first use, and the enclosing graph's value an operand of the node, so that
every data edge is exact through any nesting.
"""

from __future__ import annotations

from collections.abc import Iterable

from flint.errors import FlintError
from flint.graph.building import GraphBuilder
from flint.graph.graph import EdgeKind
from flint.stablehlo.read.records import Block, Module

#: The block of a scope before its first block is walked.
NO_OPS = Block((), [], ())


class Scope:
    """One graph under construction.

    Attributes:
        builder: the graph.
        values: record value id -> value number in the graph.
        parent: the enclosing scope.
        trial: the graph is built only for comparison: outside values that it uses stay unchanged.
        block: the block whose ops are being walked.
        captured: record value ids taken from the parent, in input order.
        level: number of enclosing loops.
        around: the most iterations of each of them, the outermost first.
        gates: nodes that everything must wait for from here on (predicates).
        gated_from: results with this number or a greater one wait for the gates already.
    """

    __slots__ = (
        "around",
        "block",
        "builder",
        "captured",
        "gated_from",
        "gates",
        "level",
        "module",
        "parent",
        "trial",
        "values",
    )

    def __init__(
        self,
        builder: GraphBuilder,
        module: Module,
        parent: Scope | None,
        around: tuple[int, ...] = (),
        *,
        trial: bool = False,
    ) -> None:
        self.builder = builder
        self.module = module
        self.values: dict[int, int] = {}
        self.parent = parent
        self.trial = trial
        self.block = NO_OPS
        self.captured: list[int] = []
        self.around = around
        self.level = len(around)
        self.gates: tuple[int, ...] = ()
        self.gated_from = 0

    def gate(self, predicate: int) -> None:
        """Make everything that follows wait for ``predicate``, a value number of this graph.

        An input is available from the start and gates nothing.
        """
        if predicate < 0:
            return
        node = self.builder.producer_of(predicate)
        behind = predicate >= self.gated_from
        self.gates = (node,) if behind else (node, *self.gates)
        self.gated_from = self.builder.results

    def order(self, operands: Iterable[int]) -> list[tuple[int, EdgeKind]]:
        """The order edges that a new node with ``operands`` needs to wait for the gates."""
        if not self.gates or any(number >= self.gated_from for number in operands):
            return []
        return [(node, EdgeKind.ORDER) for node in self.gates]

    def use(self, value: int) -> int:
        """The graph's number of a record value, captured from outside if necessary.

        Raises:
            FlintError: no enclosing scope defines the value.
        """
        number = self.values.get(value)
        if number is not None:
            return number
        if self.parent is None:
            kind = self.module.type_of(value)
            raise FlintError(
                f"a value of type {kind} is used where Flint cannot follow it (does an async "
                "result leave the block that creates it?)"
            )
        if not self.trial:
            self.parent.use(value)
        number = self.builder.input(self.module.value_type[value])
        self.captured.append(value)
        self.values[value] = number
        return number
