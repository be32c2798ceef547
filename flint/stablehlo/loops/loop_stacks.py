"""Integers that a loop stores, one per iteration, for a later loop to read.

The idea: ``jax.lax.scan`` keeps what the backward pass needs in buffers with a row per iteration,
including the branch that a ``lax.cond`` took.  If that follows from the rank and the counter, it
does so in the later loop, too: a row has the expression of the iteration that wrote it.

    for i in range(4): rows[i] = (rank - i) % 4 <= rank       # forward
    for j in range(4): if rows[3 - j]: ...                    # (rank - (3 - j)) % 4 <= rank
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.graph.scalars import (
    Place,
    Scalar,
    combine,
    constant,
    depends_on_rank,
    evaluate,
    levels,
    substituted,
    take,
)
from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.values.elementwise import is_integer

#: The most iterations of a loop whose rows are kept.
MAX_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class Stack:
    """A buffer of one integer per iteration.

    Attributes:
        element: what an iteration writes.
        level: level of the writing loop, whose iteration ``element`` may depend on.
        writer: the iteration that wrote each element.
    """

    element: Scalar
    level: int
    writer: NDArray[np.int64]

    def at(self, place: Scalar) -> Scalar | None:
        """The expression of the element at a place, clamped into the buffer."""
        last = constant(len(self.writer) - 1)
        inside = combine("clamp", (constant(0), place, last))
        if inside is None:
            return None
        counted = np.array_equal(self.writer, np.arange(len(self.writer)))
        by = inside if counted else take(self.writer, inside)
        return None if by is None else substituted(self.element, self.level, by)


def stacked(
    module: Module,
    body: Block,
    number: int,
    trips: int,
    level: int,
    scalar: Callable[[int], Scalar | None],
) -> Stack | None:
    """What a loop stores in its argument ``number``; None if it is anything else.

    Args:
        module: for types.
        body: the loop's body, walked.
        number: of the argument.
        trips: iterations of the loop.
        level: the loop's.
        scalar: expressions of the values inside.
    """
    buffer, value = body.args[number], body.yields[number]
    kind = module.type_of(buffer)
    if not (1 < trips == kind.elements <= MAX_ROWS and is_integer(kind.dtype)) or kind.dynamic:
        return None
    written = next((op for op in body.ops if value in op.results), None)
    if written is None or written.name != "dynamic_update_slice" or written.operands[0] != buffer:
        return None
    place, element = _place(kind.shape, written.operands[2:], scalar), scalar(written.operands[1])
    if place is None or element is None or module.type_of(written.operands[1]).elements != 1:
        return None
    if depends_on_rank(place) or not levels(place) <= {level}:
        return None
    counter = np.arange(trips, dtype=np.int64)
    places = np.broadcast_to(evaluate(place, Place(iterations={level: counter})), counter.shape)
    if not np.array_equal(np.sort(places), counter):
        return None
    return Stack(element, level, np.argsort(places).astype(np.int64))


def read(
    op: Op, module: Module, stack: Stack, scalar: Callable[[int], Scalar | None]
) -> Scalar | None:
    """The expression of the element that a ``dynamic_slice`` takes out of a stack."""
    place = _place(module.type_of(op.operands[0]).shape, op.operands[1:], scalar)
    return None if place is None else stack.at(place)


def _place(
    shape: tuple[int, ...], starts: tuple[int, ...], scalar: Callable[[int], Scalar | None]
) -> Scalar | None:
    """The index along the only dim that is longer than 1."""
    if len(starts) != len(shape) or max(shape, default=0) != math.prod(shape):
        return None
    return scalar(starts[shape.index(max(shape))])
