"""What a program says about its numbers when all of them are finite.

The idea: trainings ask whether a loss or gradients are finite, and stop or skip an update if they
are not.  The answer is assumed, so it is followed from ``is_finite``, and from comparisons that
find NaN and infinity, to the program's results: through reductions, joined parts and functions.

    said(jax.make_jaxpr(lambda x: jnp.isfinite(x).all())(1.0), [None])      # [True]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax._src import core

#: Ops that say of their results what all of their operands say.
_SAME = frozenset((
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "mesh_cast",
    "optimization_barrier", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reshape",
    "reshard", "rev", "sharding_constraint", "slice", "squeeze", "transpose",
))  # fmt: skip
#: Ops on two answers, and the one that decides alone.
_DECIDES = {"and": False, "or": True}
_COMPARES = {"eq": True, "ne": False}
#: Functions inside of others, by what holds their jaxpr.
_INNER = ("jaxpr", "call_jaxpr")


def said(program: Any, given: Sequence[bool | None]) -> list[bool | None]:
    """For each result of a jaxpr the answer that it gives if all numbers are finite, else None.

    Args:
        program: the jaxpr, closed or not.
        given: what its operands say.
    """
    jaxpr = getattr(program, "jaxpr", program)
    known = {id(v): answer for v, answer in zip(jaxpr.invars, given, strict=True)}

    def answer(item: Any) -> bool | None:
        if not isinstance(item, core.Literal):
            return known.get(id(item))
        is_answer = np.asarray(item.val).dtype == np.bool_ and np.size(item.val) == 1
        return bool(item.val) if is_answer else None

    for one in jaxpr.eqns:
        operands = [answer(item) for item in one.invars]
        found = _inside(one, operands) or [_of_op(one, operands)]
        known |= {id(v): a for v, a in zip(one.outvars, found, strict=False) if a is not None}
    return [answer(item) for item in jaxpr.outvars]


def _inside(one: Any, operands: list[bool | None]) -> list[bool | None]:
    """What the results of a function inside say; nothing for another op."""
    for name in _INNER:
        inner = one.params.get(name)
        body = getattr(inner, "jaxpr", inner)
        if isinstance(body, core.Jaxpr) and one.primitive.name not in ("scan", "while"):
            return said(body, operands) if len(body.invars) == len(operands) else []
    return []


def _of_op(one: Any, operands: list[bool | None]) -> bool | None:
    name = one.primitive.name
    if name == "is_finite":
        return True
    if name in _COMPARES and (_is_one(one.invars) or any(map(_is_infinite, one.invars))):
        return _COMPARES[name] if _is_one(one.invars) else not _COMPARES[name]
    if name == "not":
        return None if operands[0] is None else not operands[0]
    if name in _DECIDES and _DECIDES[name] in operands:
        return _DECIDES[name]
    same = name in _SAME or name in _DECIDES
    return operands[0] if same and len({*operands}) == 1 else None


def _is_one(operands: Sequence[Any]) -> bool:
    """Whether a number is compared with itself: only NaN is not equal to itself."""
    one, other = operands
    return one is other and jnp.issubdtype(one.aval.dtype, jnp.inexact)


def _is_infinite(item: Any) -> bool:
    return isinstance(item, core.Literal) and np.size(item.val) == 1 and bool(np.isinf(item.val))
