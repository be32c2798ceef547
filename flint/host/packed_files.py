"""Files that may be packed with gzip, unpacked piece by piece and with a bound.

data = read_bytes(Path("trace.json.gz"), 1 << 30)
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from flint.errors import FlintError

#: Bytes that are unpacked at once: memory of larger blocks goes back to the system and comes again
#: page by page, for longer than it takes to decode them.
_PIECE = 1 << 17


def read_bytes(path: Path, limit: int) -> bytes:
    """A file's content, unpacked if it is gzip (raises as ``pieces``)."""
    size = path.stat().st_size if path.is_file() else 0
    # One piece is not copied when it is joined.
    return b"".join(pieces(path, limit, max(_PIECE, min(size, limit + 1))))


def pieces(path: Path, limit: int, piece_bytes: int | None = None) -> Iterator[bytes]:
    """A file's content piece by piece, unpacked if it is gzip.

    Raises:
        FlintError: it cannot be read, is damaged, or has more bytes than the limit.
    """
    size = 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with gzip.open(file) if packed else file as content:
                while piece := content.read(piece_bytes or _PIECE):
                    size += len(piece)
                    if size > limit:
                        raise FlintError(f"{path}: larger than {limit:,} bytes when it is unpacked")
                    yield piece
    except (OSError, EOFError, zlib.error) as error:
        text = getattr(error, "strerror", None) or error
        raise FlintError(f"{path}: cannot be read ({text})") from error
