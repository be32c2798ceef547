"""Constant operands of a program's kernels, such as the masks of splash attention.

The idea: constants of a program reach a kernel through the calls, loops and maps around it, whose
equations show which operand becomes which argument.  Values computed in between are not known.

    constant_operands(jax.jit(step).trace(x).jaxpr)[id(kernel)]      # (array, None, None)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flint.frontends.jax.kernels.loops import of_scan

Constant = npt.NDArray[Any] | None

#: Equations that pass on their operands.
_SAME = ("optimization_barrier", "pvary", "copy", "copy_p", "sharding_constraint")


def constant_operands(closed: Any) -> dict[int, tuple[Constant, ...]]:
    """The known operands of each Pallas kernel, by the id of its equations; None if unknown.

    Args:
        closed: a traced program.
    """
    found: dict[int, tuple[Constant, ...]] = {}
    _walk(closed, [None] * len(closed.jaxpr.invars), found)
    return found


def _walk(jaxpr: Any, given: Iterable[Constant], found: dict[int, tuple[Constant, ...]]) -> None:
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    known = dict(zip(map(id, inner.invars), given, strict=False))
    for variable, value in zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=False):
        known[id(variable)] = _array(value)
    for one in inner.eqns:
        values = [
            _array(item.val) if hasattr(item, "val") else known.get(id(item)) for item in one.invars
        ]
        name, parameters = one.primitive.name, one.params
        if name in _SAME:
            known.update(zip(map(id, one.outvars), values, strict=False))
        elif name == "pallas_call":
            key = id(parameters["jaxpr"])
            before = found.get(key, values)
            found[key] = tuple(map(_agreed, before, values))
        else:
            for body, arguments in _bodies(name, parameters, values):
                _walk(body, arguments, found)


def _bodies(
    name: str, parameters: Mapping[str, Any], values: Sequence[Constant]
) -> Iterator[tuple[Any, Sequence[Constant]]]:
    """The calls of an equation and their operands: first constants; changing values are unknown."""
    if name == "scan":
        yield parameters["jaxpr"], values[: of_scan(parameters)[0]]
    elif name == "while":
        first = parameters["cond_nconsts"]
        yield parameters["body_jaxpr"], values[first : first + parameters["body_nconsts"]]
    elif name == "cond":
        for branch in parameters["branches"]:
            yield branch, values[1:]
    elif name == "shard_map":
        whole = [not any(spec) for spec in parameters["in_specs"]]
        kept = [value if same else None for value, same in zip(values, whole, strict=True)]
        yield parameters["jaxpr"], kept
    else:
        for item in parameters.values():
            if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                body = getattr(item, "jaxpr", item)
                yield item, values if len(body.invars) == len(values) else ()


def _array(value: Any) -> Constant:
    """The integers of a known constant."""
    dtype = str(getattr(value, "dtype", ""))
    return np.asarray(value) if dtype.startswith(("int", "uint", "bool")) else None


def _agreed(one: Constant, other: Constant) -> Constant:
    """The operands that a kernel has in both of two calls."""
    if one is None or other is None:
        return None
    return one if one is other or np.array_equal(one, other) else None
