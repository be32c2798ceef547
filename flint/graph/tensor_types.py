"""Tensor types: shape, element type, bytes.

The idea: a type is described once and interned; everything per op holds a small integer that points
into a table.  Element types carry their StableHLO names (``f32``, ``bf16``, ``ui8``, ``i1``,
``f8E4M3FN``, ``complex<f32>``), which are the words users see.

    >>> tensor_type((8, 128), "bf16").bytes
    2048
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Bits that one element occupies in memory.  Sub-byte types are packed (XLA's convention for
#: ``i4``/``ui4`` and smaller); ``i1`` (pred) takes a byte.  No tensor has ``tf32``, ``mxf8``,
#: ``mxf4`` or ``exact f32``; only products are computed in these: narrow floats with a scale per
#: block (MXFP8; MXFP4 and NVFP4), and f32 that may not be rounded to TF32.
DTYPE_BITS: dict[str, int] = {
    "i1": 8, "i2": 2, "i4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64,
    "ui2": 2, "ui4": 4, "ui8": 8, "ui16": 16, "ui32": 32, "ui64": 64,
    "f4E2M1FN": 4, "f6E2M3FN": 6, "f6E3M2FN": 6, "f8E8M0FNU": 8,
    "f8E3M4": 8, "f8E4M3": 8, "f8E4M3FN": 8, "f8E4M3FNUZ": 8, "f8E4M3B11FNUZ": 8,
    "f8E5M2": 8, "f8E5M2FNUZ": 8,
    "bf16": 16, "f16": 16, "f32": 32, "tf32": 32, "f64": 64,
    "complex<f32>": 64, "complex<f64>": 128,
    "index": 64, "token": 0, "mxf8": 8, "mxf4": 4, "exact f32": 32,
}  # fmt: skip

#: f32 in products that may not run in TF32.
EXACT = "exact f32"
#: Column code of an element type: ``DTYPES[code]``.
DTYPES: tuple[str, ...] = tuple(DTYPE_BITS)
DTYPE_CODE: dict[str, int] = {name: code for code, name in enumerate(DTYPES)}


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of one value.

    Attributes:
        shape: dims, outermost first; ``()`` is a scalar (or a token).
        dtype: element type by its StableHLO name.
        bytes: size in memory, sub-byte elements packed, rounded up.
        dynamic: whether a dim had no static size; ``shape`` then has its bound (or 1).
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    dynamic: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype])


TOKEN = TensorType((), "token", 0)


def tensor_type(shape: tuple[int, ...], dtype: str, dynamic: bool = False) -> TensorType:
    """The type for ``shape`` and ``dtype``, with its size computed.

    Raises:
        KeyError: an element type that ``DTYPE_BITS`` does not list.
    """
    size = (math.prod(shape) * DTYPE_BITS[dtype] + 7) // 8
    return TensorType(shape, dtype, size, dynamic)
