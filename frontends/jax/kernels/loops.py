"""Loops of a kernel: which of their carried values count up, and how often the body runs.

The idea: ``fori_loop`` carries an index to which its body adds a constant, and compares it with an
unchanged bound; both are found among the equations.  If the condition has further parts (a loop
that may end early), the found bound is an upper bound.

    steps = induction(carried, results, equations)      # of each value: its step, None: it varies
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flint.frontends.jax.kernels.points import Values

#: The value of a literal or a variable at all points; None if not known.
Look = Callable[[Any], "Values | None"]

_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


def induction(body: Any, constants: int) -> list[int | None]:
    """The change of each carried value per iteration; None if it is not a constant.

    Args:
        body: the loop's body, a jaxpr: constants, carried values and others -> carried and others.
        constants: how many.
    """
    made = {id(result): one for one in body.eqns for result in one.outvars}
    carried = body.invars[constants:]
    return [
        _step(before, after, made.get(id(after)))
        for before, after in zip(carried, body.outvars, strict=False)
    ]


def _step(before: Any, after: Any, maker: Any) -> int | None:
    if after is before:
        return 0
    if maker is None or maker.primitive.name not in ("add", "sub"):
        return None
    first, second = maker.invars
    if maker.primitive.name == "add" and second is before:
        first, second = second, first
    value = getattr(second, "val", None)
    if first is not before or value is None or np.ndim(value):
        return None
    return int(value) if maker.primitive.name == "add" else -int(value)


def trips_of(
    condition: Any,
    constants: Sequence[Values | None],
    first: Sequence[Values | None],
    steps: Sequence[int | None],
) -> tuple[Values | None, bool]:
    """The number of iterations of a ``while`` at each point, and whether it may end earlier.

    Args:
        condition: a jaxpr: constants and carried values -> whether it continues.
        constants: constants of the condition.
        first: the values carried into the loop.
        steps: of ``induction``.
    """  # fmt: skip
    known = dict(zip(map(id, condition.invars), (*constants, *first), strict=True))
    moves = dict(zip(map(id, condition.invars[len(constants) :]), steps, strict=True))
    made = {id(result): one for one in condition.eqns for result in one.outvars}
    open_, found, early = [condition.outvars[0]], [], False
    while open_:
        maker = made.get(id(open_.pop()))
        if maker is not None and maker.primitive.name in ("and", "convert_element_type"):
            open_ += maker.invars
            continue
        trips = None if maker is None else _compared(maker, known, moves)
        early = early or trips is None
        found += [] if trips is None else [trips]
    if not found:
        return None, True
    least = found[0]
    for trips in found[1:]:
        least = np.minimum(least, trips)
    return least, early


def _compared(one: Any, known: dict[int, Any], moves: dict[int, int | None]) -> Values | None:
    """Iterations until a comparison of an index with a bound fails."""
    name = one.primitive.name
    if name not in _FLIPPED:
        return None
    index, bound = one.invars
    if not moves.get(id(index)):
        index, bound, name = bound, index, _FLIPPED[name]
    step = moves.get(id(index))
    if not step or moves.get(id(bound), 0) != 0:
        return None
    start, end = (_value(item, known) for item in (index, bound))
    if start is None or end is None:
        return None
    way = (end - start) * (1 if step > 0 else -1) + (name in ("le", "ge"))
    if (name in ("lt", "le")) != (step > 0) and name != "ne":
        return None
    if name == "ne" and abs(step) != 1:
        return None
    trips: Values = np.maximum(-(-way // abs(step)), 0)
    return trips


def _value(item: Any, known: dict[int, Any]) -> Values | None:
    literal = getattr(item, "val", None)
    return known.get(id(item)) if literal is None else np.asarray(literal)


def of_scan(parameters: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a ``scan`` are constants, and how many values are carried."""
    if "ft_in" in parameters:  # since jax 0.11
        constants, carried, _ = parameters["ft_in"].unpack()
        return len(constants), len(carried)
    return parameters["num_consts"], parameters["num_carry"]
