"""The seal of a workload folder: size and checksum of every file, kept in ``workload.json``.

The idea: identical files (the traces of many ranks) share one entry with their ranks.

    files   {"programs/main.graph.npz": "18231:0c4f...", ...}
    traces  {"2231:8b01...": "0-7,16-23", ...}

Code that reads a file of the folder checks it (``check_file``); ``flint check`` checks all of them.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.host.checksums import checksum
from flint.host.packed_files import read_once

#: The version of ``workload.json`` that has a seal.
SCHEMA = 2
#: Where the trace of a rank is.
TRACE = "et/trace.{}.et"
_TRACE = re.compile(r"et/.+\.et")
_CHANGED = "has changed since Flint wrote it"
_MISSING = "is missing"
#: The most missing traces that get one line each; more share one line.
_MANY = 1000


def entry(size: int, total: int) -> str:
    """A file's size and checksum in the form of the seal."""
    return f"{size}:{total:016x}"


def entry_of(data: bytes) -> str:
    """The entry of a file with that content."""
    return entry(len(data), checksum(data))


def files_of(folder: Path) -> dict[str, str]:
    """The entries of all files of a folder except its traces, by name."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    return {
        name: entry_of((folder / name).read_bytes())
        for name in names
        if not _TRACE.fullmatch(name) and (folder / name).is_file()
    }


def rank_runs(ranks: NDArray[np.int64]) -> str:
    """Ranks as the seal lists them: ``0-7,16``."""
    ranks = np.sort(ranks)
    ends = np.flatnonzero(np.diff(ranks) != 1)
    first = ranks[np.concatenate([[0], ends + 1])].tolist()
    last = ranks[np.append(ends, len(ranks) - 1)].tolist()
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(first, last, strict=True))


def _runs(text: str) -> Iterator[range]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield range(int(first), int(last or first) + 1)


def check_file(folder: Path, name: str, data: bytes, files: Mapping[str, str] | None) -> None:
    """Compare a file's content with the seal; a folder without a seal is not compared.

    Raises:
        FlintError: the file has changed since it was written.
    """
    if files is not None and files.get(name) != entry_of(data):
        raise FlintError(f"{folder / name}: {_CHANGED}: capture or convert again")


def broken(
    folder: Path, files: Mapping[str, str], traces: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Files of a folder that do not match its seal: name, and what is wrong."""
    sums: dict[tuple[int, int], str] = {}  # for files with several names
    there = sorted(path.name for path in (folder / "et").glob("trace.*.et"))
    written = sum(len(run) for text in traces.values() for run in _runs(text))
    lost = written > len(there) + _MANY  # it may be larger than the number of files in any folder
    if lost:
        yield "et", f"has {len(there):,} traces, but Flint wrote {written:,}"
    for name, stated in _stated(files, {} if lost else traces):
        path = folder / name
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                yield name, "is not a file"
                continue
            size = int(stated.partition(":")[0])
            if found.st_size != size:
                yield name, f"{_CHANGED} ({size} bytes then, {found.st_size} now)"
                continue
            key = found.st_dev, found.st_ino
            if key not in sums:
                sums[key] = entry_of(read_once(path, size).data)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            yield name, _MISSING if absent else f"cannot be read ({error.strerror or error})"
            continue
        except FlintError as error:
            yield name, f"cannot be read ({str(error).removeprefix(f'{path}: ')})"
            continue
        if sums[key] != stated:
            yield name, _CHANGED
    if lost:
        return
    listed = {rank for text in traces.values() for run in _runs(text) for rank in run}
    for name in there:
        if not _is_listed(name, listed):
            yield f"et/{name}", "was not written by Flint"


def _stated(files: Mapping[str, str], traces: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    yield from files.items()
    for stated, ranks in traces.items():
        for rank in chain.from_iterable(_runs(ranks)):
            yield TRACE.format(rank), stated


def _is_listed(name: str, ranks: set[int]) -> bool:
    number = name.removeprefix("trace.").removesuffix(".et")
    return (
        number.isascii()
        and number.isdigit()
        and number == str(int(number))
        and (int(number) in ranks)
    )
