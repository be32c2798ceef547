"""Counted loops: carried values that count, invariants, trip counts.

The idea: a loop is counted when its condition is an integer expression over values that grow by a
constant each iteration.  The counters are found by following what the body yields back to an
argument plus a constant; the condition is then evaluated for iteration 0, 1, 2 ... at once with
numpy, and the first false one is the trip count.  Nothing is matched by shape, so ``i != n``,
counting down and compound conditions work as well as JAX's ``i < n``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flint.errors import FlintError
from flint.scalars import Place, Scalar, combine, constant, evaluate, iteration, levels
from flint.stablehlo.records import Block, Module, Op
from flint.stablehlo.scalar_rules import Lookup, Tables, block_scalars

#: A trip count beyond this is taken for unbounded.
MAX_TRIPS = 2**31
_SAME_VALUE = frozenset({"convert", "reshape", "mhlo.copy"})


def counters(body: Block, module: Module, outer: Lookup) -> list[int | None]:
    """How much each loop argument grows per iteration: 0 for an invariant, None for anything else.

    Args:
        body: the loop's body; argument ``i`` becomes ``yields[i]``.
        module: for callees.
        outer: expressions of values from outside.
    """
    follow = _Linear(module, outer)
    environment = {argument: (number, 0) for number, argument in enumerate(body.args)}
    steps: list[int | None] = []
    for number, value in enumerate(body.yields):
        form = follow.form(value, body, environment, 0)
        steps.append(form[1] if form is not None and form[0] == number else None)
    return steps


Form = tuple[int | None, int]


class _Linear:
    """Values of a block as (argument number or None) + constant."""

    def __init__(self, module: Module, outer: Lookup) -> None:
        self.module = module
        self.outer = outer
        self._definitions: dict[int, dict[int, tuple[Op, int]]] = {}

    def form(
        self, value: int, block: Block, environment: dict[int, Form], depth: int
    ) -> Form | None:
        """The linear form of ``value``, None where it has none."""
        if value in environment:
            return environment[value]
        if depth > 64:
            return None
        found = self._defined(block).get(value)
        if found is None:
            scalar = self.outer(value)
            return (None, scalar.value) if scalar is not None and scalar.op == "constant" else None
        op, result = found

        def operand(number: int) -> Form | None:
            return self.form(op.operands[number], block, environment, depth + 1)

        if op.name in _SAME_VALUE:
            return operand(0)
        if op.name == "optimization_barrier":
            return operand(result)
        if op.name == "constant":
            number = op.attr("value")
            exact = number is not None and number.size == 1 and number.dtype.kind in "iub"
            return (None, int(number.reshape(-1)[0])) if exact else None
        if op.name in ("add", "subtract"):
            return _sum(operand(0), operand(1), -1 if op.name == "subtract" else 1)
        if op.name == "call":
            callee = self.module.functions[op.attr("callee")]
            inner: dict[int, Form] = {}
            for number, argument in enumerate(callee.args):
                known = operand(number)
                if known is not None:
                    inner[argument] = known
            return self.form(callee.yields[result], callee, inner, depth + 1)
        return None

    def _defined(self, block: Block) -> dict[int, tuple[Op, int]]:
        table = self._definitions.get(id(block))
        if table is None:
            table = {
                value: (op, number) for op in block.ops for number, value in enumerate(op.results)
            }
            self._definitions[id(block)] = table
        return table


def _sum(left: Form | None, right: Form | None, sign: int) -> Form | None:
    if left is None or right is None:
        return None
    if right[0] is None:
        return (left[0], left[1] + sign * right[1])
    if left[0] is None and sign == 1:
        return (right[0], left[1] + right[1])
    return None


def argument_scalars(
    inits: list[Scalar | None], steps: list[int | None], level: int
) -> list[Scalar | None]:
    """Expressions of a loop's arguments inside its body: initial value + step x iteration."""
    scalars: list[Scalar | None] = []
    for init, step in zip(inits, steps, strict=True):
        if init is None or step is None:
            scalars.append(None)
        elif step == 0:
            scalars.append(init)
        else:
            grown = combine("multiply", (constant(step), iteration(level)))
            scalars.append(None if grown is None else combine("add", (init, grown)))
    return scalars


def trip_count(
    condition: Block,
    module: Module,
    arguments: list[Scalar | None],
    level: int,
    outer: Lookup,
    tables: Tables,
    describe: Callable[[], str],
) -> int | None:
    """Iterations until the condition is false; None when it cannot be proved.

    Raises:
        FlintError: the condition is always true.
    """
    known = {
        argument: scalar
        for argument, scalar in zip(condition.args, arguments, strict=True)
        if scalar is not None
    }
    inside = block_scalars(condition, module, known, outer, tables)
    predicate = inside.get(condition.yields[0]) or outer(condition.yields[0])
    if predicate is None or predicate.mentions("partition_id") or predicate.mentions("replica_id"):
        return None
    if not levels(predicate) <= {level}:
        return None
    start, length = 0, 1024
    while start < MAX_TRIPS:
        steps = np.arange(start, start + length, dtype=np.int64)
        holds = np.broadcast_to(
            evaluate(predicate, Place(iterations={level: steps})).astype(bool), steps.shape
        )
        if not holds.all():
            return start + int(np.argmin(holds))
        if not levels(predicate):
            raise FlintError(f"{describe()} never ends: its condition is always true")
        start, length = start + length, min(length * 4, 2**22)
    return None
