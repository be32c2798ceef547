"""Folders for temporary files: gone when the block ends, or when a later process looks there.

with temporary_folder() as folder:
    (folder / "request").write_bytes(b"...")
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flint.errors import FlintError
from flint.host.owners import mark, remove_left_once

#: If less than this is free, a failure to write temporary files is due to a full disk (bytes).
_ROOM = 1 << 16
_made: list[Path] = []


def make_temporary_folder(within: Path | None = None) -> Path:
    """A new folder that no other user can read; the caller removes it.

    Args:
        within: parent folder; by default the system's folder for temporary files.

    Raises:
        FlintError: it cannot be made.
    """
    try:
        if within is None:
            import tempfile  # takes a moment, and few commands need it

            within = Path(tempfile.gettempdir())
        remove_left_once(within)
        folder = within / f"{mark()}.scratch"
        _made.append(folder)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise FlintError(no_temporary_files(error)) from error
    return folder


def remove_own() -> None:
    """Called at the end of a process: a signal may come before a folder's own end is prepared."""
    for folder in _made:
        if f"-{os.getpid()}-" in folder.name:  # a fork has the list of its parent
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_folder(within: Path | None = None) -> Iterator[Path]:
    """A new folder that is removed when the block ends (raises as ``make_temporary_folder``)."""
    folder = make_temporary_folder(within)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def no_temporary_files(error: OSError) -> str:
    """One line for temporary files that cannot be written."""
    why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
    return (
        f"{_place()}: temporary files cannot be written there ({why}); set TMPDIR to another folder"
    )


def of_no_file(error: OSError) -> str:
    """One line for an error that names no file: of temporary files or standard output."""
    is_full = error.errno == errno.ENOSPC
    if is_full and full(Path(_place())) is not None:
        return no_temporary_files(error)
    why = "the disk is full" if is_full else error.strerror or str(error)
    return f"standard output: {why}"


def _place() -> str:
    import tempfile

    return os.environ.get("TMPDIR") or tempfile.tempdir or "/tmp"


def full(folder: Path) -> OSError | None:
    """The error if the disk has no room for more temporary files; None if it has."""
    with suppress(OSError):
        if shutil.disk_usage(folder).free < _ROOM:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None
