"""Reading untrusted files: once, piece by piece, with a limit.

The idea: a file may be endless (a device), readable only once (a pipe), or larger than it looks
(gzip, sparse files).  So reading counts the bytes that were really read, and unpacked content is
limited by a number of bytes and by its ratio to the packed size.

    content = read_once(Path("/dev/stdin"), 1 << 28);  content.data, content.sha256
    data = read_bytes(Path("trace.json.gz"), 1 << 30)
    text = unpacked(content.data, "model.mlir.gz", 1 << 28)
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from flint.errors import FlintError

#: Default memory limit of the process that reads a file (bytes).
MEMORY_LIMIT = 512 << 20

#: Bytes that are unpacked at once: larger blocks of memory would be returned to the system and
#: mapped again page by page, which takes longer than decoding them.
_PIECE = 1 << 18
_GZIP_MAGIC = b"\x1f\x8b"
#: Any packed file may unpack to the first size; beyond it, the second is the largest ratio. Traces
#: and modules shrink to a tenth or a thirtieth.
_HARMLESS, _MAX_RATIO = 64 << 20, 250


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file, which is read only once.

    Attributes:
        path: where it was read.
        data: its bytes.
    """

    path: Path
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash of the content, in hexadecimal digits."""
        import hashlib  # takes 4 ms; a saved folder has checksums

        return hashlib.sha256(self.data).hexdigest()


def check_plain(path: Path, state: os.stat_result) -> None:
    """Refuse a pipe or device in a folder, because reading it could wait forever.

    Args:
        path: the file's path, for the error.
        state: its state from the system.

    Raises:
        FlintError: it is one.
    """
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        raise FlintError(f"{path}: expected a file, found a pipe or device")


def check_all_plain(paths: Iterable[Path]) -> None:
    """``check_plain`` for files of a folder, which must also exist."""
    for path in paths:
        try:
            check_plain(path, path.stat())
        except OSError as error:
            raise FlintError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_once(path: Path, limit: int, advice: str = "") -> Content:
    """The unchanged content of a file, device or pipe, to its end.

    Args:
        path: path of the file.
        limit: a larger file is refused, and not read much further.
        advice: what to do then, as the end of a sentence.

    Raises:
        FlintError: it cannot be read, or has more bytes.
    """
    parts: list[bytes] = []
    have = 0
    try:
        with path.open("rb", buffering=0) as file:
            size = _plain_size(file, path)
            # One byte more than expected: the file may grow.
            while size <= limit and have <= limit:
                part = file.read(min(max(size + 1 - have, _PIECE), limit + 1 - have))
                if not part:
                    return Content(path, parts[0] if len(parts) == 1 else b"".join(parts))
                parts.append(part)
                have += len(part)
    except OSError as error:
        raise FlintError(f"{path}: {error.strerror or error}") from error
    raise FlintError(f"{path}: larger than {limit:,} bytes{advice}")


def read_bytes(path: Path, limit: int) -> bytes:
    """A file's content, unpacked if it is gzip (raises as ``pieces``)."""
    # A single piece is not copied by joining.
    return b"".join(pieces(path, limit, whole=True))


def pieces(path: Path, limit: int, *, whole: bool = False) -> Iterator[bytes]:
    """A file's content piece by piece, unpacked if it is gzip.

    Args:
        path: path of the file.
        limit: a larger content is refused, in bytes.
        whole: return a plain file as one piece.

    Raises:
        FlintError: it cannot be read, is damaged, has more bytes than the limit, or unpacks to so
            much more that it must be an attack.
    """
    try:
        with path.open("rb") as file:
            size = _plain_size(file, path)
            if file.peek(2)[:2] == _GZIP_MAGIC:
                yield from _unpacked_pieces(file, str(path), limit)
                return
            _check_size(str(path), size, limit)
            yield from _plain_pieces(file, path, limit, size if whole else 0)
    except OSError as error:
        raise FlintError(f"{path}: cannot be read ({error.strerror or error})") from error


def packed_pieces(path: Path, limit: int) -> Iterator[bytes]:
    """A file's unchanged content piece by piece, packed or not (raises as ``pieces``)."""
    try:
        with path.open("rb") as file:
            _check_size(str(path), _plain_size(file, path), limit)
            yield from _plain_pieces(file, path, limit, 0)
    except OSError as error:
        raise FlintError(f"{path}: cannot be read ({error.strerror or error})") from error


def _plain_pieces(file: IO[bytes], path: Path, limit: int, size: int) -> Iterator[bytes]:
    """The content of an open file; the first piece has ``size`` bytes, if there are that many."""
    read = 0
    while piece := file.read(max(_PIECE, size - read)):
        read += len(piece)
        _check_size(str(path), read, limit)
        yield piece


def unpacked(data: bytes, name: str, limit: int, advice: str = "") -> bytes:
    """The content of gzip data, all members of it.

    Args:
        data: the packed bytes.
        name: its name in errors.
        limit: a larger content is refused, in bytes.
        advice: what to do then, as the end of a sentence.

    Raises:
        FlintError: damaged or cut off, more than ``limit``, or an implausible ratio.
    """
    return b"".join(_unpacked_pieces(io.BytesIO(data), name, limit, advice))


def _unpacked_pieces(packed: IO[bytes], name: str, limit: int, advice: str = "") -> Iterator[bytes]:
    size, counted = 0, _Counted(packed)
    try:
        with gzip.GzipFile(fileobj=counted, mode="rb") as content:
            while piece := content.read(_PIECE):
                size += len(piece)
                _check_size(name, size, limit, f" when decompressed{advice}")
                check_ratio(name, counted.read_so_far, size, "gzip data")
                yield piece
    except EOFError as error:
        raise FlintError(f"{name}: truncated gzip data") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FlintError(f"{name}: damaged gzip data ({error})") from error


def check_ratio(name: str, packed: int, size: int, what: str) -> None:
    """Refuse content that unpacks to so much more that it must be an attack.

    Args:
        name: its name in errors.
        packed: bytes that were read.
        size: bytes that they unpack to.
        what: what was packed, for the error.

    Raises:
        FlintError: an implausible ratio.
    """
    if size > max(_HARMLESS, _MAX_RATIO * packed):
        raise FlintError(
            f"{name}: refused: {packed:,} bytes of {what} expand by a factor of more than "
            f"{_MAX_RATIO}"
        )


class _Counted:
    """A file that counts how much was read, which a pipe does not."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.read_so_far = 0

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.read_so_far += len(data)
        return data

    def seek(self, place: int) -> None:
        """Never called while it is read to its end, but required by the library's type."""
        raise io.UnsupportedOperation(f"seek to {place}")


def _check_size(name: str, size: int, limit: int, how: str = "") -> None:
    if size > limit:
        raise FlintError(f"{name}: larger than {limit:,} bytes{how}")


def _plain_size(file: IO[bytes] | io.FileIO, path: Path) -> int:
    """Bytes of a plain file that has just been opened; 0 for anything else.

    Raises:
        FlintError: nearly all of it is holes.
    """
    state = os.fstat(file.fileno())
    if not stat.S_ISREG(state.st_mode):
        return 0
    if state.st_size > _HARMLESS:
        there = _bytes_there(file.fileno(), state.st_size)
        if there * _MAX_RATIO < state.st_size:
            raise FlintError(
                f"{path}: refused: a sparse file of {state.st_size:,} bytes, of which {there:,} "
                "are on disk"
            )
    return state.st_size


def _bytes_there(descriptor: int, size: int) -> int:
    """Bytes of a file that are not holes, counted until they are enough for its size."""
    there = end = 0
    try:
        while end < size and there * _MAX_RATIO < size:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            there += end - begin
    except OSError as error:
        if error.errno != errno.ENXIO:  # no more data; otherwise the system cannot tell
            there = size
    os.lseek(descriptor, 0, os.SEEK_SET)
    return there
