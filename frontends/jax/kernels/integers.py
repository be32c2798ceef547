"""Integers of a kernel that follow from the place in the grid: program ids and derived values.

The idea: NumPy applies the primitive at all points at once.  Values in memory are not known, and
neither are values computed from them.

    value_of("div", {}, [array, array])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flint.frontends.jax.kernels.points import Values


def value_of(name: str, parameters: Mapping[str, Any], operands: Sequence[Values]) -> Values | None:
    """The result of a primitive on known integers; None if it is not in the table."""
    rule = _RULES.get(name)
    return None if rule is None else rule(parameters, *operands)


def is_integer(kind: Any) -> bool:
    """Whether a type is that of one integer or truth value."""
    dtype = getattr(kind, "dtype", None)
    return getattr(kind, "shape", None) == () and str(dtype).startswith(("int", "uint", "bool"))


def _quotient(a: Values, b: Values) -> Values:
    """Towards zero, as ``lax.div``."""
    safe = np.where(b == 0, 1, b)
    result: Values = np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe))
    return result


def _converted(parameters: Mapping[str, Any], a: Values) -> Values | None:
    name = str(parameters["new_dtype"])
    if name == "bool":
        return np.not_equal(a, 0)
    return a.astype(np.int64) if name.startswith(("int", "uint")) else None


def _selected(_parameters: Any, which: Values, *cases: Values) -> Values:
    return np.choose(which.astype(np.int64), cases)


def _logic(boolean: Any, bitwise: Any) -> Callable[..., Values]:
    def rule(_parameters: Any, *operands: Values) -> Values:
        function = boolean if all(item.dtype == bool for item in operands) else bitwise
        result: Values = function(*operands)
        return result

    return rule


def _plain(function: Callable[..., Values]) -> Callable[..., Values]:
    return lambda _parameters, *operands: function(*operands)


_RULES: dict[str, Callable[..., Values | None]] = {
    "convert_element_type": _converted,
    "select_n": _selected,
    "and": _logic(np.logical_and, np.bitwise_and),
    "or": _logic(np.logical_or, np.bitwise_or),
    "not": _logic(np.logical_not, np.invert),
    "xor": _logic(np.logical_xor, np.bitwise_xor),
    "clamp": _plain(lambda low, value, high: np.minimum(np.maximum(value, low), high)),
    "rem": _plain(lambda a, b: a - b * _quotient(a, b)),
    **{
        name: _plain(function)
        for name, function in (
            ("abs", np.abs), ("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
            ("div", _quotient), ("max", np.maximum), ("min", np.minimum), ("neg", np.negative),
            ("sign", np.sign), ("eq", np.equal), ("ne", np.not_equal), ("lt", np.less),
            ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal),
            ("multiple_of", lambda value: value), ("squeeze", lambda value: value),
            ("reshape", lambda value: value), ("broadcast_in_dim", lambda value: value),
        )
    },
}  # fmt: skip
