"""Names that show which process owns a file, so that files of killed processes are removed.

The idea: an unfinished file has a name with the machine, the id and the start time of the process
that works on it.  A process that later writes to the same place removes files of processes that no
longer exist.  Another machine's processes (on a shared file system) cannot be looked up: their
files are removed when they are a week old.

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

#: Files of another machine's processes are removed at this age (seconds).
OLDEST = 7 * 24 * 3600.0

_MARK = r"flint-([0-9a-f]{8})-(\d{1,10})-(\d{1,20})-\d{1,10}"
#: How names continue after a mark: unfinished files and folders, replaced ones, temporary folders.
_NAME = re.compile(rf"(?:\..*\.)?{_MARK}\.(?:partial|old|scratch)", re.DOTALL)
#: Letters of processes that have ended, in proc(5).
_ENDED = "ZX"
_numbers = itertools.count(1)
_looked_at: set[str] = set()


def mark() -> str:
    """A unique part of a name: this process, and a number."""
    process = os.getpid()
    return f"flint-{_machine()}-{process}-{_start(process) or 0}-{next(_numbers)}"


def is_left(path: Path) -> bool:
    """Whether this file was left by a process that no longer exists."""
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
    """``remove_left`` once per folder and process: some processes write thousands of files to
    one.
    """
    place = str(folder)
    if place not in _looked_at:
        _looked_at.add(place)
        remove_left(folder)


def remove_left(folder: Path) -> None:
    """Remove files in a folder that were left by processes that no longer exist."""
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
    """An identifier of this machine, and of this container on it."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    text = f"{os.uname().nodename} {processes}"
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _state_and_start(process: int) -> tuple[str, int] | None:
    """What a process does (a letter), and when it began, in ticks since boot; None if unknown."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[19])  # proc(5): fields 3 and 22
    except (OSError, ValueError, IndexError):
        return None


def _start(process: int) -> int | None:
    found = _state_and_start(process)
    return None if found is None else found[1]


def _runs(process: int, start: int) -> bool:
    """Whether that process still runs: another may have its id by now.

    One that has ended keeps its id until its parent asks how, which some parents never do, such as
    the first process of a container.
    """
    found = _state_and_start(process)
    if found is not None:
        state, began = found
        return began == start and state not in _ENDED
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return not start  # its start was visible then and is not now: another process
