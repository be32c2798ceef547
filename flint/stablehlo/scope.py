"""Scopes: where the walker is, and what record values are called there.

The idea: a loop body or a branch is a graph of its own.  A value from outside that it uses becomes
one of its inputs at first use, and the enclosing graph's value an operand of the node, so that every
data edge is exact through any nesting.
"""

from __future__ import annotations

from flint.building import GraphBuilder
from flint.scalars import Scalar
from flint.stablehlo.records import Module


class Scope:
    """One graph under construction.

    Attributes:
        builder: the graph.
        values: record value id -> value number in the graph.
        scalars: record value id -> expression.
        parent: the enclosing scope.
        captured: record value ids taken from the parent, in input order.
        level: number of loops around.
        gate: node that every node without a producer here must wait for (a predicate), or None.
    """

    __slots__ = ("builder", "captured", "gate", "level", "module", "parent", "scalars", "values")

    def __init__(
        self, builder: GraphBuilder, module: Module, parent: Scope | None, level: int
    ) -> None:
        self.builder = builder
        self.module = module
        self.values: dict[int, int] = {}
        self.scalars: dict[int, Scalar] = {}
        self.parent = parent
        self.captured: list[int] = []
        self.level = level
        self.gate: int | None = None

    def use(self, value: int) -> int:
        """The graph's number of a record value, captured from outside when it must be.

        Raises:
            KeyError: the value is defined nowhere around.
        """
        number = self.values.get(value)
        if number is not None:
            return number
        if self.parent is None:
            raise KeyError(value)
        self.parent.use(value)
        number = self.builder.input(self.module.value_type[value])
        self.captured.append(value)
        self.values[value] = number
        return number

    def scalar(self, value: int) -> Scalar | None:
        """The expression of a record value, if it has one."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.scalars.get(value)
            if found is not None:
                return found
            if value in scope.values and value not in scope.captured:
                return None
            scope = scope.parent
        return None
