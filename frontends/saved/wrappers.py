"""Saved programs in other files: gzip data, and what ``jax.export`` serialises.

The idea: what contains a program is opened until the program itself is there.

    opened(data, "step.mlir.gz", 1 << 30)       # its MLIR text, and Kind.MLIR_TEXT
"""

from __future__ import annotations

import struct
from typing import Final

from flint.errors import FlintError
from flint.frontends.saved.kinds import Kind, detect
from flint.host.packed_files import unpacked

#: Files within files are opened so many times.
_MOST: Final = 2
#: The place of ``mlir_module_serialized`` in the table that ``jax.export`` writes, as bytes into
#: its vtable (``jax/_src/export/serialization.fbs``; fields of a flatbuffer keep their places).
_MODULE: Final = 30


def opened(data: bytes, name: str, limit: int, advice: str = "") -> tuple[bytes, Kind]:
    """A file's program, and its kind.

    Args:
        data: the file's content.
        name: its name in errors.
        limit: the most bytes of unpacked gzip data.
        advice: what to do about more, as the end of a sentence.

    Raises:
        FlintError: damaged, or too large.
    """
    kind = detect(data)
    for _ in range(_MOST):
        if kind is Kind.GZIP:
            data = unpacked(data, name, limit, advice)
        elif kind is Kind.JAX_EXPORT:
            data = _exported(data, name)
        else:
            break
        kind = detect(data)
    return data, kind


def _exported(data: bytes, name: str) -> bytes:
    """The StableHLO of a ``jax.export.Exported``: a vector of bytes in the root table.

    Offsets of a flatbuffer are relative to where they stand, little-endian; a table begins with the
    offset back to its vtable, a vector with its length.
    """
    try:
        (root,) = struct.unpack_from("<I", data, 0)
        (back,) = struct.unpack_from("<i", data, root)
        vtable = root - back
        (size,) = struct.unpack_from("<H", data, vtable)
        (field,) = struct.unpack_from("<H", data, vtable + _MODULE) if size > _MODULE else (0,)
        place = root + field
        (offset,) = struct.unpack_from("<I", data, place)
        start = place + offset + 4
        (length,) = struct.unpack_from("<I", data, start - 4)
    except struct.error as error:
        raise FlintError(f"{name}: a damaged jax.export.Exported ({error})") from None
    if vtable < 0 or not field or start + length > len(data):
        raise FlintError(f"{name}: a damaged jax.export.Exported (cut off?)")
    return data[start : start + length]
