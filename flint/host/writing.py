"""Files and folders that are complete or absent.

The idea: a file is written next to its final place and renamed when it is complete, so that a full
disk, an error or a signal leaves neither half a file nor the old one damaged; files left by SIGKILL
are removed by the next process that writes there (``flint.host.owners``).  A symbolic link that the
user names keeps pointing to its file, which is replaced; devices and pipes (``/dev/null``) are
written to directly.  Below a folder that the user names, no link is followed: ``replacing_in``
writes only there.

    with replacing(Path("graph.dot")) as partial:
        partial.write_text("digraph {}")
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flint.errors import FlintError, UsageError
from flint.host.owners import mark, remove, remove_left_once

#: From <linux/fs.h>, renameat2: exchanges two names atomically.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
#: Characters of a name that its temporary name repeats: names have at most 255 bytes.
_REPEATED = 40

#: Identifies a folder: its inode and the time of its last change.
_Identity = tuple[int, int, int]


def check_file(path: Path) -> None:
    """Check that a file can be written there, before the work for it.

    Raises:
        UsageError: ``path`` is a folder, or its own folder does not exist.
        FlintError: it may not be written.
    """
    _check_name(path)
    if os.path.isdir(path) or not path.name:
        raise UsageError(f"{path} is a folder: give the name of a file")
    with _failures_named(path):
        if not _is_stream(path):
            place = Path(os.path.realpath(path))
            _check_parent(place)
            _check_permission(place.parent, path)


def check_folder(folder: Path) -> None:
    """Check that a folder can be written there, or made, before the work for it.

    Raises:
        UsageError: a file is in the way.
        FlintError: it may not be written.
    """
    _check_name(folder)
    with _failures_named(folder):
        parent = Path(os.path.realpath(folder)).parent
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        if not parent.is_dir():
            raise UsageError(f"{folder}: {parent} is a file, not a folder")
        _check_permission(parent, folder)


def _check_permission(folder: Path, path: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FlintError(f"{path}: cannot be written (no permission to write in {folder})")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, next to ``path``, which it replaces when the block ends without an error.

    If ``path`` is a device or a pipe, it is ``path`` itself.

    Raises:
        UsageError: ``path`` is a folder, or its own folder does not exist.
        FlintError: it cannot be written.
    """
    check_file(path)
    with _failures_named(path):
        if _is_stream(path):
            yield path
            return
        with _beside(Path(os.path.realpath(path))) as partial:
            yield partial


@contextmanager
def replacing_in(folder: Path, name: str) -> Iterator[Path]:
    """As ``replacing``, for a file below a folder that the user named, which it never leaves.

    Args:
        folder: an existing folder.
        name: of the file, relative to it; a link of this name is replaced itself.

    Raises:
        UsageError: ``name`` leads out of the folder, or names a folder.
        FlintError: it cannot be written.
    """
    path = inside(folder, name)
    if path.is_dir() and not path.is_symlink():
        raise UsageError(f"{path} is a folder; a file is to be written there")
    with _failures_named(path), _beside(path) as partial:
        yield partial


def inside(folder: Path, name: str) -> Path:
    """The path of something below a folder, checked against its name and existing links.

    Raises:
        UsageError: it would be somewhere else: by its name, or by a link on the way.
    """
    path = folder / name
    named = Path(name)
    leaves = named.is_absolute() or ".." in named.parts or "\0" in name or not named.name
    parent = Path(os.path.realpath(path.parent))
    if leaves or not parent.is_relative_to(os.path.realpath(folder)):
        raise UsageError(f"{folder}: {name!r} leads out of the folder; Flint does not write there")
    return path


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")


def _check_name(path: Path) -> None:
    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} is not a file name: it has a null byte")


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    """Turn failures into one line."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of a pipe has gone: no failure
    except OSError as error:
        raise FlintError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    _check_parent(path)
    remove_left_once(path.parent)
    partial = _unfinished(path, "partial")
    try:
        # Not through a link that someone else has put there.
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield partial
        partial.replace(path)
    finally:
        remove(partial)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A new folder next to ``folder``, which it replaces when the block ends without an error.

    If several processes or threads replace one folder at the same time, the first to end succeeds;
    the others report it and change nothing.

    Raises:
        FlintError: it cannot be written, or another process has written it in the meantime.
    """
    _check_name(folder)
    with _failures_named(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_left_once(folder.parent)
        before = _identity(folder)
        partial = _unfinished(folder, "partial")
        try:
            partial.mkdir()
            yield partial
            _take_place(partial, folder, before)
        finally:
            remove(partial)


def _unfinished(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name[:_REPEATED]}.{mark()}.{kind}")


def _identity(folder: Path) -> _Identity | None:
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _take_place(partial: Path, folder: Path, before: _Identity | None) -> None:
    there = _identity(folder)
    try:
        if there is None:
            partial.rename(folder)
        elif there != before:
            raise OSError(errno.EEXIST, "")
        elif not _exchange(partial, folder):
            _move_away_and_take_place(partial, folder)
        elif _identity(partial) != before:
            _exchange(partial, folder)
            raise OSError(errno.EEXIST, "")
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        raise FlintError(
            f"{folder}: another process wrote this folder in the meantime; its files stay, and "
            "nothing of this run is kept"
        ) from error


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically; False if the system cannot."""
    import ctypes  # only where a folder is replaced

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)


def _move_away_and_take_place(partial: Path, folder: Path) -> None:
    old = _unfinished(folder, "old")
    folder.rename(old)
    try:
        partial.rename(folder)
    except BaseException:
        with suppress(OSError):  # another folder is already there
            old.rename(folder)
        raise
    finally:
        if folder.exists():
            remove(old)


def _is_stream(path: Path) -> bool:
    """Whether something other than a regular file is there, which a rename would remove."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
