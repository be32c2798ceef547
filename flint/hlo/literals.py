"""HLO literals -> constant values.

Only values that an analysis can need are kept: integers and booleans up to
``MAX_CONSTANT_ELEMENTS`` (trip counts, rank tables, indices) and single floats.  A literal whose
elements are all the same is a 0-d array, as a splat is in MLIR.

    constant s32[4] {7, 7, 7, 7}  ->  np.array(7)
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.hlo import hlo_pb2 as pb
from flint.hlo.shapes import ELEMENT_TYPES

#: Constants larger than this keep no value: only shapes, counters and rank tables matter here.
MAX_CONSTANT_ELEMENTS = 2**20

#: Element type -> (field, little-endian dtype of a bytes field or None for a list of numbers).
_INTEGERS: dict[str, tuple[str, str | None]] = {
    "i1": ("preds", None), "i8": ("s8s", "<i1"), "i16": ("s16s", "<i2"),
    "i32": ("s32s", None), "i64": ("s64s", None),
    "ui8": ("u8s", "<u1"), "ui16": ("u16s", "<u2"), "ui32": ("u32s", None),
    "ui64": ("u64s", None),
}  # fmt: skip
_FLOATS: dict[str, tuple[str, str | None]] = {
    "f16": ("f16s", "<f2"), "bf16": ("bf16s", "<u2"), "f32": ("f32s", None), "f64": ("f64s", None),
}  # fmt: skip


def constant_value(literal: bytes) -> NDArray[Any] | None:
    """The value of a serialised ``LiteralProto``.

    Args:
        literal: the bytes; empty when the dump left the literal out.

    Returns:
        int64 array of the literal's shape (0-d if all elements are equal), a 0-d float array, or
        None if the value is not kept or the literal has fewer elements than its shape.
    """
    proto = pb.LiteralProto.FromString(literal)
    dtype = ELEMENT_TYPES.get(proto.shape.element_type, "")
    shape = tuple(proto.shape.dimensions)
    row = _INTEGERS.get(dtype) or _FLOATS.get(dtype)
    if row is None:
        return None
    stored = getattr(proto, row[0])
    elements = int(np.prod(shape, dtype=object)) if shape else 1
    width = np.dtype(row[1]).itemsize if row[1] else 1
    if not 0 < elements <= MAX_CONSTANT_ELEMENTS or len(stored) != elements * width:
        return None
    is_float = dtype in _FLOATS
    values: NDArray[Any]
    if row[1]:
        values = np.frombuffer(stored, row[1])
    else:
        kind = np.float64 if is_float else np.uint64 if dtype == "ui64" else np.int64
        values = np.fromiter(stored, kind, elements)
    first = values[0]
    if elements == 1 or bool((values == first).all()):
        return np.array(_bf16(int(first)) if dtype == "bf16" else first.item())
    return None if is_float else values.astype(np.int64).reshape(shape)


def _bf16(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)
