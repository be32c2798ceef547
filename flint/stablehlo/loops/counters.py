"""Counters: carried values of a loop that grow by a constant in each iteration, or not at all.

The idea: counters are found by following what the body yields back to an argument plus a constant.
Nothing is matched by shape.  Counters wrap around at their width, as they do when the program runs.
"""

from __future__ import annotations

from dataclasses import replace

from flint.graph.scalars import Scalar, bits_of, combine, constant, iteration, wrap, wrapped
from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.values.arrays import Lookup
from flint.stablehlo.values.elementwise import SAME_ELEMENTS, is_scalar_integer
from flint.stablehlo.values.scalars import MAX_OPS

_SAME_VALUE = SAME_ELEMENTS | {"convert"}


def counters(body: Block, module: Module, outer: Lookup) -> list[int | None]:
    """How much each loop argument grows per iteration: 0 for an invariant, None for anything else.

    Args:
        body: the loop's body; argument ``i`` becomes ``yields[i]``.
        module: for callees.
        outer: expressions of values from outside.
    """
    follow = _Linear(module, body, outer)
    environment: dict[int, Form | None] = {
        argument: (number, 0) for number, argument in enumerate(body.args)
    }
    steps: list[int | None] = []
    for number, value in enumerate(body.yields):
        form = follow.form(value, body, environment, 0)
        # For non-integers, only the argument itself has a form: (number, 0).
        steps.append(form[1] if form is not None and form[0] == number else None)
    return steps


#: (argument number or None, constant): their sum, modulo 2 to the width of the argument's type.
Form = tuple[int | None, int]


class _Linear:
    """Values of a block as (argument number or None) + constant.

    Integers wrap around, and arithmetic modulo a width can be followed through every type that is
    at least as wide; so no type may be narrower than the argument.
    """

    def __init__(self, module: Module, body: Block, outer: Lookup) -> None:
        self.module = module
        self.outer = outer
        kinds = [module.type_of(argument) for argument in body.args]
        self.visited = 0
        self.bits = [bits_of(kind.dtype) if is_scalar_integer(kind) else 0 for kind in kinds]
        self._definitions: dict[int, dict[int, tuple[Op, int]]] = {}

    def form(
        self, value: int, block: Block, environment: dict[int, Form | None], depth: int
    ) -> Form | None:
        """The linear form of ``value``; None if it has none; cached in ``environment``."""
        if value in environment:
            return environment[value]
        self.visited += 1
        if depth > 64 or self.visited > MAX_OPS:
            return None
        found = self._defined(block).get(value)
        if found is None:
            form = self._from_outside(value)
        else:
            form = self._of_op(*found, block, environment, depth)
        environment[value] = form
        return form

    def _from_outside(self, value: int) -> Form | None:
        scalar = self.outer(value)
        return (None, int(scalar.value)) if scalar is not None and scalar.op == "constant" else None

    def _of_op(
        self,
        op: Op,
        result: int,
        block: Block,
        environment: dict[int, Form | None],
        depth: int,
    ) -> Form | None:
        def operand(number: int) -> Form | None:
            return self.form(op.operands[number], block, environment, depth + 1)

        if op.name == "optimization_barrier":
            return operand(result)
        if op.name == "call":
            callee = self.module.functions[op.attr("callee")]
            inner: dict[int, Form | None] = {
                argument: operand(number) for number, argument in enumerate(callee.args)
            }
            return self.form(callee.yields[result], callee, inner, depth + 1)
        kind = self.module.type_of(op.results[0])
        if not _is_one_integer(kind):
            return None
        if op.name == "constant":
            number = op.attr("value")
            return None if number is None else (None, int(number.reshape(-1)[0]))
        if op.name in _SAME_VALUE:
            form = operand(0) if _is_one_integer(self.module.type_of(op.operands[0])) else None
        elif op.name in ("add", "subtract"):
            form = _sum(operand(0), operand(1), -1 if op.name == "subtract" else 1)
        else:
            return None
        if form is None:
            return None
        if form[0] is None:
            return (None, int(wrapped(form[1], kind.dtype)))
        return form if bits_of(kind.dtype) >= self.bits[form[0]] else None

    def _defined(self, block: Block) -> dict[int, tuple[Op, int]]:
        table = self._definitions.get(id(block))
        if table is None:
            table = {
                value: (op, number) for op in block.ops for number, value in enumerate(op.results)
            }
            self._definitions[id(block)] = table
        return table


def _is_one_integer(kind: TensorType) -> bool:
    """Whether a value of this type is one integer; ui64 counts, because sums are followed
    modulo.
    """
    return is_scalar_integer(replace(kind, dtype=kind.dtype.removeprefix("u"))) and (
        kind.dtype != "i1"
    )


def _sum(left: Form | None, right: Form | None, sign: int) -> Form | None:
    if left is None or right is None:
        return None
    if right[0] is None:
        return (left[0], left[1] + sign * right[1])
    if left[0] is None and sign == 1:
        return (right[0], left[1] + right[1])
    return None


def argument_scalars(
    inits: list[Scalar | None], steps: list[int | None], dtypes: list[str], level: int
) -> list[Scalar | None]:
    """Expressions of a loop's arguments inside its body: initial value + step x iteration."""
    scalars: list[Scalar | None] = []
    for init, step, dtype in zip(inits, steps, dtypes, strict=True):
        if init is None or step is None:
            scalars.append(None)
        else:
            scalars.append(_grown(init, step, iteration(level), dtype))
    return scalars


def after_loop(init: Scalar | None, step: int | None, trips: Scalar, dtype: str) -> Scalar | None:
    """The expression of a carried value after ``trips`` iterations."""
    if init is None or step is None:
        return None
    return _grown(init, step, trips, dtype)


def _grown(init: Scalar, step: int, times: Scalar, dtype: str) -> Scalar | None:
    if step == 0:
        return init
    grown = combine("multiply", (constant(step), times))
    return None if grown is None else wrap(combine("add", (init, grown)), dtype)
