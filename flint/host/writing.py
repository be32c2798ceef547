"""Files and folders that are whole or absent.

The idea: a file is written beside its final place and renamed when it is complete, so that a full
disk, an error or Ctrl-C leaves neither half a file nor the old one damaged.  A symbolic link keeps
pointing to its file, which is the one replaced; what is no file (``/dev/null``, a pipe) is written
to and stays what it is.

    with replacing(Path("graph.dot")) as partial:
        partial.write_text("digraph {}")
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flint.errors import FlintError, UsageError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to: one beside ``path`` whose file takes its place when the block ends well.

    Where ``path`` is a device or a pipe it is ``path`` itself.

    Raises:
        UsageError: ``path`` is a folder, or its own folder does not exist.
        FlintError: it cannot be written.
    """
    if os.path.isdir(path) or not path.name:  # False where the name itself is refused
        raise UsageError(f"{path} is a folder: give the name of a file")
    try:
        if _is_stream(path):
            yield path
            return
        with _beside(Path(os.path.realpath(path))) as partial:
            yield partial
    except OSError as error:
        raise FlintError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside ``folder`` that takes its place when the block ends well.

    Raises:
        FlintError: it cannot be written.
    """
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        yield partial
        _exchange(partial, folder)
    except OSError as error:
        raise FlintError(f"{folder}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _exchange(partial: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    try:
        partial.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _is_stream(path: Path) -> bool:
    """Whether something is there that is no regular file: a rename would remove it."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
