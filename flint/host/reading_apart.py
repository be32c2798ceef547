"""Reading a file with third-party native code in a separate process.

The idea: native code may crash if memory is refused, or on a damaged file.  A fork has everything
imported and returns bytes as a file; if it dies, that is reported in one line.

    events = decode(apart(lambda: encode(events_in(data)), Path("host.xplane.pb")))
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from flint.errors import FlintError
from flint.host.child_errors import leave, raise_left
from flint.host.child_processes import death, end_with_parent, fork
from flint.host.reading_memory import allowed_bytes, bounded, says_no_memory, too_large
from flint.host.temporary import full, no_temporary_files, temporary_folder

_RESULT, _WORDS = "result", "stderr"
#: Exit status of a process that lacks the memory to report an error.
_NO_MEMORY = 3


def apart(read: Callable[[], bytes], path: Path) -> bytes:
    """``read()`` in a fork (on Linux; elsewhere in this process), with the memory limit of readers.

    Args:
        read: returns what the parent needs from the file.
        path: the file's path, for messages.

    Raises:
        UsageError, FlintError: ``read`` raised it, or its process died.
    """
    if sys.platform != "linux":
        return read()
    with temporary_folder() as folder:
        parent = os.getpid()
        process = fork()
        if not process:
            _be_reader(read, path, folder, parent)
        try:
            _, status = os.waitpid(process, 0)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # it was waited for just now
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            raise
        return _taken(path, folder, os.waitstatus_to_exitcode(status))


def _be_reader(read: Callable[[], bytes], path: Path, folder: Path, parent: int) -> NoReturn:
    status = 1
    try:
        end_with_parent(parent)
        # Where the caller makes errors of warnings, one of an extension's own would end it.
        warnings.simplefilter("ignore")
        os.dup2(os.open(folder / _WORDS, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        with bounded(path):
            data = read()
        (folder / _RESULT).write_bytes(data)
        status = 0
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        try:
            leave(error, folder, f"{path}: reading it")
        except MemoryError:
            status = _NO_MEMORY
    finally:
        os._exit(status)


def _taken(path: Path, folder: Path, status: int) -> bytes:
    """The result of a process that has ended."""
    if status == 0:
        return (folder / _RESULT).read_bytes()
    if (error := full(folder)) is not None:
        raise FlintError(no_temporary_files(error))
    raise_left(folder)
    printed = (folder / _WORDS).read_text(errors="replace") if (folder / _WORDS).exists() else ""
    limit = allowed_bytes()
    if limit is not None and (status == _NO_MEMORY or says_no_memory(printed)):
        raise FlintError(f"{path}: {too_large(limit)}")
    how = death(status) if status < 0 else f"ended with status {status}"
    raise FlintError(f"{path}: damaged: the process that read it {how}")
