"""Writing trace files: one big write per distinct file, and a hard link for every rank with the
same file.

The idea: a class of ranks is a buffer in memory.  For each distinct file the stamped bytes are
overwritten in place and the buffer is written in one go; ranks with the same bytes are links.  File
systems limit links per file (65,000 on ext4) and some have none: then the next rank gets a copy,
and further ranks are linked to that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.write.encode import Bytes
from flint.host.checksums import checksum, coefficients
from flint.mesh.ragged import Ints
from flint.workload.sealing import entry, rank_runs

#: Progress is reported after this many ranks.
_STEP = 64


@dataclass(frozen=True, eq=False, slots=True)
class FileClass:
    """Ranks whose files differ only in stamped bytes.

    Attributes:
        ranks: ascending, shape [ranks].
        file: which distinct file each rank has, numbered by first rank, shape [ranks].
        data: the file of the first rank.
        at: positions of all stamped bytes, shape [bytes].
        column: which column of ``stamped`` goes to each of them, shape [bytes].
        stamped: the stamped bytes of each distinct file, shape [files, columns].
    """

    ranks: Ints
    file: Ints
    data: Bytes
    at: Ints
    column: Ints
    stamped: Bytes

    @property
    def files(self) -> int:
        """Number of distinct files."""
        return len(self.stamped)

    @property
    def bytes(self) -> int:
        """Total bytes of the distinct files."""
        return self.files * len(self.data)


class FileWriter:
    """Writes classes of files into a folder.

    Attributes:
        copies: number of files with their own bytes.
        bytes: their total bytes.
        sums: size and checksum of distinct files, as in the folder's seal -> their ranks.
    """

    def __init__(
        self, folder: Path, total: int, progress: Callable[[int, int], None] | None
    ) -> None:
        self._folder = folder
        self._total = total
        self._progress = progress
        self._done = 0
        self._links_work = True
        self.copies = 0
        self.bytes = 0
        self.sums: dict[str, list[Ints]] = {}

    def write(self, item: FileClass) -> None:
        """Write the files of all ranks of a class."""
        order = np.argsort(item.file, kind="stable")
        ranks = item.ranks[order]
        first = np.flatnonzero(np.diff(item.file[order], prepend=-1))
        ends = np.append(first[1:], len(ranks))
        data = item.data
        sums = _sums(item)
        for number, (low, high) in enumerate(zip(first.tolist(), ends.tolist(), strict=True)):
            data[item.at] = item.stamped[number][item.column]
            self._write_same(data, ranks[low:high].tolist())
            stated = entry(len(data), int(sums[number]))
            self.sums.setdefault(stated, []).append(ranks[low:high])

    def _write_same(self, data: Bytes, ranks: list[int]) -> None:
        source: str | None = None
        for rank in ranks:
            path = f"{self._folder}/trace.{rank}.et"
            if source is None or not self._link(source, path):
                self._write_one(path, data)
                source = path
            self._done += 1
            if self._progress is not None and not self._done % _STEP:
                self._progress(self._done, self._total)

    def finish(self) -> None:
        """Report the end."""
        if self._progress is not None:
            self._progress(self._done, self._total)

    def seal(self) -> dict[str, str]:
        """Size and checksum of the files -> their ranks (see ``flint.workload.sealing``)."""
        return {stated: rank_runs(np.concatenate(ranks)) for stated, ranks in self.sums.items()}

    def _write_one(self, path: str, data: Bytes) -> None:
        view = data.data
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        self.copies += 1
        self.bytes += len(data)

    def _link(self, source: str, path: str) -> bool:
        if not self._links_work:
            return False
        try:
            os.link(source, path)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            # EMLINK: this file is full, the next copy takes links again.
            self._links_work = error.errno == errno.EMLINK
            return False
        return True


def _sums(item: FileClass) -> NDArray[np.uint64]:
    """The checksum of each distinct file, shape [files], from that of a class and its stamps."""
    item.data[item.at] = 0
    each = np.zeros(item.stamped.shape[1], np.uint64)
    np.add.at(each, item.column, coefficients(item.at))
    found: NDArray[np.uint64] = item.stamped.astype(np.uint64) @ each
    return found + np.uint64(checksum(item.data))
