"""Values that host code reads between programs: ``float(loss)``, ``bool(x)``, ``np.asarray(x)``.

A captured array has none.  What is read follows the policy of PyTorch's frontend, and each use is
reported with its line: False for a bool, 1.0 for a float (and in every element of an array).  A
whole number is a count or an index on which shapes may depend, so that it must be known: an error
names the line.  Formatting one shows 0.  Where it is asked whether numbers are finite, they are.

    assumed(aval, "float", "train.py:31", None, Unknown(), None)
    # 1.0, "the value of a float is read at ..."
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import jax.numpy as jnp
import numpy as np

from flint.errors import FlintError
from flint.launching.unknown import Unknown

ADVICE = "; the step should not depend on it: branch on values that the host knows"
_VALUES: dict[str, Any] = {"b": False, "f": 1.0, "c": 1.0}
_NAMES = {"b": "a bool", "f": "a float", "c": "a complex number", "i": "an integer"}
_KINDS = {"b": "bool", "f": "float", "c": "float", "i": "int"}
#: More elements than this are one repeated element, which takes no memory.
_MOST = 1 << 20


class UnknownIntegerError(FlintError):
    """An unknown whole number is read."""


def assumed(
    aval: Any,
    kind: str,
    where: str,
    finite: bool | None,
    unknown: Unknown,
    frame: FrameType | None,
) -> tuple[Any, str]:
    """The assumed value, and its warning ("" if there is none).

    Args:
        aval: JAX's type of the array.
        kind: as for ``Host.read``.
        where: the line of the read.  A warning has {} in its place.
        finite: what it says if all numbers are finite; None if it is not about that.
        unknown: the values of floats and of answers to questions.
        frame: of the user's code that reads it.

    Raises:
        UnknownIntegerError: a whole number, which cannot be assumed.
    """
    if kind == "wait":
        return None, ""
    letter = _letter(aval.dtype)
    stated = unknown.stated.typed(where, _KINDS[letter], f"an array of {aval.dtype}")
    if stated is not None:
        value, said = stated
        return _filled(aval, value, kind), said
    if finite is not None:
        return _filled(aval, finite, kind), "numbers are checked at {}: assumed to be finite"
    if letter == "i":
        if kind == "text":
            return 0, "an integer is formatted at {}: shown as 0"
        raise UnknownIntegerError(
            f"{where}: reads the value of an integer array: a captured step has no values, and "
            "shapes may depend on it; compute it from Python numbers, leave it on the device, or "
            "state it (--value of flint run)"
        )
    value, words = _VALUES[letter], ""
    if letter == "f":
        value, words = unknown.number(where), unknown.words
    elif letter == "b":
        goes_on = unknown.goes_on(frame)
        if goes_on is not None:
            value, why = goes_on
            words = f"be {value}, {why}"
    what = _NAMES[letter] if not aval.shape else f"an array of {aval.dtype}"
    every = "every element is " if aval.shape else ""
    words = words or f"be {value}"
    text = f"the value of {what} is read at {{}}: {every}assumed to {words}{ADVICE}"
    return _filled(aval, value, kind), text


def _filled(aval: Any, value: Any, kind: str) -> Any:
    if kind != "array":
        return value
    dtype = np.dtype(aval.dtype)
    if np.prod(aval.shape, dtype=np.int64) > _MOST:
        return np.broadcast_to(np.array(value, dtype), aval.shape)
    return np.full(aval.shape, value, dtype)


def _letter(dtype: Any) -> str:
    for letter, kind in (("b", np.bool_), ("f", np.floating), ("c", np.complexfloating)):
        if jnp.issubdtype(dtype, kind):
            return letter
    return "i"
