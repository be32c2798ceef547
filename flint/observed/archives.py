"""Traces in archives: tar, compressed or not, and zip, as downloaded from clusters.

The idea: an archive is treated like the folder that it was made from.  Its traces are unpacked into
one folder, whatever folders they were in; other files stay packed.  The unpacked size is limited as
for any packed file.

    unpack(Path("profiles.tar.gz"), folder)
"""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

from flint.errors import FlintError
from flint.host.packed_files import check_ratio, pieces
from flint.observed.folders import ENDINGS
from flint.observed.reading import ZIP

#: The most bytes of the traces of one archive.
_MAX_BYTES = 8 << 30
#: The most members of an archive.
_MAX_MEMBERS = 100_000
#: The most bytes of a zip archive's list of members; `zipfile` reads all of it into memory.
_MAX_DIRECTORY = 16 << 20
_PIECE = 1 << 20
#: A file name of this length gets no more names of folders.
_LONG = 100
#: The most bytes of an extended tar header; `tarfile` reads all of it into memory.
_MAX_HEADER = 1 << 20
#: Types of such headers: names and attributes of the next or of all members, in pax and GNU form.
_NAMES = (b"x", b"g", b"X", b"L", b"K")
#: Exceptions of `zipfile` and `tarfile` about damaged archives, in addition to their own.
_DAMAGED = (lzma.LZMAError, struct.error, zlib.error, EOFError, ValueError)
_TRACES = (*ENDINGS, ".xplane.pb")


def unpack(path: Path, folder: Path) -> None:
    """Unpack the traces of an archive.

    Args:
        path: path of the archive.
        folder: a new folder for its traces.

    Raises:
        FlintError: the archive is damaged, has no trace in it, or becomes too large.
    """
    left = _MAX_BYTES
    members: list[str] = []
    try:
        for member, content in _members(path):
            name = PurePosixPath(member).name
            if not name.endswith(_TRACES) or name.startswith("."):
                continue
            members.append(member)
            with (folder / str(len(members))).open("wb") as file:
                while piece := content.read(_PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise FlintError(f"{path}: its traces have more than {_MAX_BYTES:,} bytes")
                    file.write(piece)
        for number, name in enumerate(_names(members), 1):  # no trace is called by a number alone
            (folder / str(number)).rename(folder / name)
    except (tarfile.TarError, zipfile.BadZipFile, *_DAMAGED) as error:
        raise FlintError(f"{path}: damaged archive ({error})") from error
    except (NotImplementedError, RuntimeError) as error:  # a password, an unknown compression
        raise FlintError(f"{path}: cannot be unpacked ({error})") from error
    except OSError as error:
        raise FlintError(f"{path}: cannot be unpacked ({error.strerror or error})") from error
    if not members:
        raise FlintError(f"{path}: no trace in the archive ({', '.join(_TRACES)})")


class _Header(tarfile.TarInfo):
    """A member's header with a limited size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The header in these bytes, with the length of extended ones checked."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NAMES and found.size > _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {found.size:,} bytes")
        return found

    def _proc_gnusparse_10(self, *_: object) -> None:
        """Refuse a sparse file's map, which is read in quadratic time: such files are not
        traces.
        """
        raise tarfile.ReadError("a sparse file in it")


def _names(members: list[str]) -> list[str]:
    """Plain file names; all that are the same are preceded by the names of their folders, as these
    tell the ranks.
    """
    parts = [
        [part for part in PurePosixPath(one).parts if part not in ("/", "..")] for one in members
    ]
    names = [one.pop() for one in parts]
    while True:
        count = Counter(names)
        longer = [
            number
            for number, name in enumerate(names)
            if count[name] > 1 and parts[number] and len(name) < _LONG
        ]
        if not longer:
            break
        for number in longer:
            names[number] = f"{parts[number].pop()}_{names[number]}"
    taken: set[str] = set()
    for number in range(len(names)):
        while names[number] in taken:  # a member that an archive has twice
            names[number] = f"{len(taken)}_{names[number]}"
        taken.add(names[number])
    return names


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each plain file, in order."""
    with path.open("rb") as file:
        if file.read(len(ZIP)) == ZIP:
            yield from _of_zip(path)
            return
    stream = io.BufferedReader(_Pieces(pieces(path, 2 * _MAX_BYTES)), _PIECE)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        for number, member in enumerate(tar):
            _count(path, number)  # all of them, as each takes memory
            if member.isfile() and not member.issparse():
                content = tar.extractfile(member)
                assert content is not None
                yield member.name, content


def _count(path: Path, before: int) -> None:
    if before >= _MAX_MEMBERS:
        raise FlintError(f"{path}: more than {_MAX_MEMBERS:,} files in it")


def _of_zip(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with _ZipFile(path) as file, zipfile.ZipFile(file) as archive:
        packed, size = path.stat().st_size, 0
        for number, member in enumerate(archive.infolist()):
            _count(path, number)
            if member.is_dir():
                continue
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # `zipfile` does not unpack others piece by piece.
                raise NotImplementedError("a member is neither deflated nor stored")
            size += member.file_size  # more than this is never read of it
            check_ratio(str(path), packed, size, "a zip archive")
            with archive.open(member) as content:
                yield member.filename, content


class _ZipFile(io.FileIO):
    """A zip archive's file; only the list of members is read in one large piece."""

    def read(self, size: int | None = -1) -> Any:
        """Read bytes; none if the list is too long."""
        if size is not None and size > _MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"a list of members of {size:,} bytes")
        return super().read(size)


class _Pieces(io.RawIOBase):
    """Pieces of a file as a file."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._source, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
