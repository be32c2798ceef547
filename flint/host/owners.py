"""Names that say which process owns a file, so that what a killed one has left is removed.

The idea: what is not finished yet has a name with the machine, the number and the start time of the
process that works on it.  A process that writes to the same place later removes what belongs to one
that is gone.  Another machine's processes (a file system that several share) cannot be looked up:
what they have left goes when it is a week old.

    partial = folder / f".out.{mark()}.partial"
    remove_left(folder)        # what killed processes have left there
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

#: What is left of another machine's process is removed when it is so old (seconds).
OLDEST = 7 * 24 * 3600.0

_MARK = r"flint-([0-9a-f]{8})-(\d{1,10})-(\d{1,20})-\d{1,10}"
#: How names with a mark may go on: unfinished files and folders, replaced ones, temporary folders.
_NAME = re.compile(rf"(?:\..*\.)?{_MARK}\.(?:partial|old|scratch)", re.DOTALL)
_numbers = itertools.count(1)
_looked_at: set[str] = set()


def mark() -> str:
    """A text that is part of no other name: this process, and a number."""
    process = os.getpid()
    return f"flint-{_machine()}-{process}-{_start(process) or 0}-{next(_numbers)}"


def is_left(path: Path) -> bool:
    """Whether a process that is gone has left this."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return False
    machine, process, start = found.groups()
    if machine == _machine():
        return not _runs(int(process), int(start))
    try:
        return time.time() - path.lstat().st_mtime > OLDEST
    except OSError:
        return False


def remove_left_once(folder: Path) -> None:
    """``remove_left`` where this process has not looked: some write thousands of files to one."""
    place = str(folder)
    if place not in _looked_at:
        _looked_at.add(place)
        remove_left(folder)


def remove_left(folder: Path) -> None:
    """Remove what processes that are gone have left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for path in [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]:
            if is_left(path):
                remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@cache
def _machine() -> str:
    """What tells this machine, and this container on it, from others."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    text = f"{os.uname().nodename} {processes}"
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _start(process: int) -> int | None:
    """When a process began, in ticks since the system did; None where that is not known."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        return int(text.rpartition(")")[2].split()[19])  # proc(5): field 22
    except (OSError, ValueError, IndexError):
        return None


def _runs(process: int, start: int) -> bool:
    """Whether that process runs: another may have its number by now."""
    began = _start(process)
    if began is not None:
        return began == start
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return not start  # it could be seen when it began and cannot be now: another one
