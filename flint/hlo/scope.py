"""The values of one computation while it is read.

Instruction ids become value ids; tuple-shaped instructions become trees of value ids.
"""

from __future__ import annotations

from typing import Any

from flint.hlo.shapes import Tree, flatten
from flint.stablehlo.read.records import Op


class Scope:
    """Values of one computation while it is read.

    Attributes:
        values: instruction id -> value id.
        trees: instruction id -> tuple of value ids, for tuple-shaped instructions.
        started: instruction id -> the result that an asynchronous first half promises.
        parameters: parameter number -> its values.
        bound: the values of the parameters; None if they are the block's own arguments.
        ops: the records so far.
        contexts: those of ``ops`` that are only contexts of asynchronous operations.
    """

    __slots__ = ("bound", "contexts", "ops", "parameters", "started", "trees", "values")

    def __init__(self, bound: list[Tree] | None = None) -> None:
        self.values: dict[int, int] = {}
        self.trees: dict[int, tuple[Any, ...]] = {}
        self.started: dict[int, Tree] = {}
        self.parameters: dict[int, Tree] = {}
        self.bound = bound
        self.ops: list[Op] = []
        self.contexts: list[Op] = []

    def bind(self, instruction: int, tree: Tree) -> None:
        """Set an instruction's value."""
        if isinstance(tree, int):
            self.values[instruction] = tree
        else:
            self.trees[instruction] = tree

    def tree(self, instruction: int) -> Tree:
        """The value of an instruction.

        Raises:
            ValueError: it does not come before its user.
        """
        value = self.values.get(instruction)
        if value is not None:
            return value
        found = self.trees.get(instruction)
        if found is None:
            raise ValueError(f"the operand with id {instruction} does not come before it")
        return found

    def flat(self, instructions: Any) -> list[int]:
        """The values of several instructions, with tuples flattened."""
        return [value for number in instructions for value in flatten(self.tree(number))]

    def drop_unused_contexts(self, yields: list[int]) -> None:
        """Remove contexts that only the second half would use."""
        if self.contexts:
            used = {value for op in self.ops for value in op.operands}.union(yields)
            unused = {id(op) for op in self.contexts if used.isdisjoint(op.results)}
            self.ops = [op for op in self.ops if id(op) not in unused]
