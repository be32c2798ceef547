"""Functions over the numbers of all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from flint.frontends.torch.context import capture


def world() -> int:
    """Number of ranks."""
    return math.prod(capture().shape)


def mapped(over: Callable[..., Any], values: list[Any], exact: bool) -> Any:
    """A function over the numbers of all ranks; with Python's numbers if 64 bits may be too few."""
    if not exact and all(map(_is_small, values)):
        with np.errstate(all="ignore"):  # a division by zero fails on the rank that does it
            return over(*values)

    def one(*numbers: Any) -> Any:
        try:
            return over(*numbers)
        except (ArithmeticError, ValueError):
            return 0

    spread = [np.broadcast_to(np.asarray(item, object), world()) for item in values]
    found: Any = np.frompyfunc(one, len(spread), 1)(*spread)
    try:
        numbers = found.tolist()
        broken = any(isinstance(number, float) for number in numbers)
        return np.array(numbers, np.float64 if broken else np.int64)
    except OverflowError:
        return found


def _is_small(item: Any) -> bool:
    """Whether sums and products of two such numbers fit into 64 bits."""
    if isinstance(item, float):
        return True
    if isinstance(item, int):
        return -(2**31) < item < 2**31
    if item.dtype == object:
        return False
    return bool(item.dtype.kind == "f" or max(-int(item.min()), int(item.max())) < 2**31)
