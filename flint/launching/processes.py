"""Processes that a program starts: their work is not seen, and may be its step.

The idea: starting one is not an error, because data loaders do it.  It is remembered with the
program's line, and reported if the program ends without a step.  Before the first process or
thread, a callback is called; not before a process whose end is waited for where it is started
(``subprocess.run``, and Python's search for a library, without which CUDA builds of PyTorch are not
imported).

    watch(own.asked)
    started                  # {"train.py:12": None} after os.fork() there
"""

from __future__ import annotations

import concurrent.futures
import ctypes.util
import functools
import multiprocessing.process
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from flint.capturing.user_frames import running_line, short_path
from flint.host.child_processes import fork

#: The program's lines that have started a process, in order.
started: dict[str, None] = {}

#: Functions that start a process or a thread.  Audit hooks would report processes, too, but also
#: every inspected frame, which costs a second or two per program.  A pool starts its threads under
#: a lock that a fork waits for, so the callback comes earlier.
_PROCESSES: tuple[tuple[Any, str], ...] = (
    (os, "fork"), (os, "forkpty"), (os, "posix_spawn"), (os, "posix_spawnp"),
    (subprocess.Popen, "__init__"), (multiprocessing.process.BaseProcess, "start"),
)  # fmt: skip
_THREADS: tuple[tuple[Any, str], ...] = (
    (threading.Thread, "start"), (concurrent.futures.ThreadPoolExecutor, "submit"),
)  # fmt: skip
#: Code that waits for the processes that it starts, by function or by file.
_WAITS = frozenset((subprocess.run.__code__, subprocess.call.__code__))
_WAITS_IN = frozenset((ctypes.util.__file__,))


def watch(before: Callable[[], None]) -> None:
    """Remember such lines from now on.

    Args:
        before: called before a process or a thread is started.
    """
    for owner, name in _PROCESSES:
        setattr(owner, name, _telling(getattr(owner, name), before, is_process=True))
    for owner, name in _THREADS:
        setattr(owner, name, _telling(getattr(owner, name), before, is_process=False))


def _telling(original: Any, before: Callable[[], None], is_process: bool) -> Any:
    @functools.wraps(original)
    def start(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code
        if caller is not fork.__code__:  # not our own
            if caller not in _WAITS and caller.co_filename not in _WAITS_IN:
                before()
            if is_process:
                _note()
        return original(*args, **kwargs)

    return start


def _note() -> None:
    file, line = running_line()
    if file:
        started[f"{short_path(file)}:{line}"] = None
