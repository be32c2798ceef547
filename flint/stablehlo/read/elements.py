"""Dense integer attributes as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.stablehlo.read.bindings import ir


def integer_array(attribute: Any) -> NDArray[np.int64]:
    """A dense integer elements attribute as an int64 array of its shape."""
    dense = ir.DenseIntElementsAttr(attribute)
    shape = tuple(ir.RankedTensorType(dense.type).shape)
    if dense.is_splat:
        value: Any = dense.get_splat_value()
        return np.full(shape, as_int64(int(value.value)), dtype=np.int64)
    items: Any = dense
    return np.array(items, dtype=np.int64).reshape(shape)


def as_int64(number: int) -> int:
    """``number`` modulo 2**64 as a signed one: how a ui64 is held in int64."""
    return (number + 2**63) % 2**64 - 2**63
