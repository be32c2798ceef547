"""Arrays of an .npz archive that nobody vouches for.

The idea: ``numpy.load`` makes room for whatever a header says before it looks at the content.  So a
member is read as bytes first, no more of them than an honest archive of that size has, and becomes
an array where its header fits them.

    try:
        arrays = arrays_of(data, "main.graph.npz")
    except DAMAGED as error: ...
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.host.packed_files import check_ratio

#: What zipfile, NumPy and those who look into the arrays raise at what Flint has not written.
DAMAGED = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError),
    *(zipfile.BadZipFile, OSError, EOFError, NotImplementedError, TokenError, zlib.error),
)
#: How the entry of a member in the archive's list begins; `zipfile` makes an object of each.
_ENTRY, _MAX_ENTRIES = b"PK\1\2", 100_000


def arrays_of(data: bytes, name: str) -> dict[str, NDArray[Any]]:
    """The arrays by their names.

    Args:
        data: the archive.
        name: of the file, for errors.

    Raises:
        FlintError: it unpacks to more than an honest one does.
        one of DAMAGED: no such archive.
    """
    if data.count(_ENTRY) > _MAX_ENTRIES:
        raise ValueError(f"more than {_MAX_ENTRIES:,} members")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        size = sum(item.file_size for item in members)
        check_ratio(name, len(data), size, "an .npz archive")
        return {item.filename.removesuffix(".npy"): _array(archive, item) for item in members}


def _array(archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> NDArray[Any]:
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("neither deflated nor stored")  # others are not unpacked piece by piece
    with archive.open(item) as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        content = bytearray(member.read(item.file_size))
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"{item.filename} is not an array of {dtype} of shape {shape}")
    return np.ndarray(shape, dtype, content)
