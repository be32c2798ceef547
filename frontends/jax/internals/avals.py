"""JAX's types of arrays, abstract or real."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jax._src import core, dtypes

_core: Any = core  # untyped


def aval_of(value: Any) -> Any:
    """JAX's type of an array, abstract or real, or of a number."""
    return _core.shaped_abstractify(value)


def is_inexact(aval: Any) -> bool:
    """Whether elements of a type are floating-point or complex numbers."""
    return bool(dtypes.issubdtype(aval.dtype, np.inexact))


def is_signed(aval: Any) -> bool:
    """Whether elements of a type are whole numbers that may be negative: none of a random key's."""
    return bool(dtypes.issubdtype(aval.dtype, np.signedinteger))


def aval_on(aval: Any, shape: Sequence[int], sharding: Any) -> Any:
    """JAX's type of an array of another shape on devices, with the sharding for explicit axes."""
    return _core.update_aval_with_sharding(aval.update(shape=tuple(shape), sharding=None), sharding)


def stored(aval: Any) -> Any:
    """The type of the numbers that an array is kept as: those of random keys have a dim more."""
    return _core.physical_aval(aval)


def size_of(aval: Any) -> int:
    """Bytes of a whole array of a type; 0 for anything else."""
    item = getattr(getattr(aval, "dtype", None), "itemsize", 0)
    return int(np.prod(getattr(aval, "shape", ()), dtype=np.int64)) * int(item)


def inexact_bytes(avals: Iterable[Any]) -> int:
    """Bytes of those of some types that are floating-point or complex arrays."""
    return sum(size_of(aval) for aval in avals if hasattr(aval, "dtype") and is_inexact(aval))
