"""Processes that a program starts: their work is not seen, and may be its step.

The idea: starting one is not an error, because data loaders do it.  It is remembered with the
program's line, and reported if the program ends without a step.  Before the first process or
thread, or the first thing that only their parent may use, a callback is called; not before a
process whose end is waited for where it is started (``subprocess.run``, and Python's search for a
library, without which CUDA builds of PyTorch are not imported), unless it is given the rank's
variables: they would ask while it starts, and copies of this process would keep its pipes open.

    watch(own.asked)
    started                  # {"train.py:12": None} after os.fork() there
"""

from __future__ import annotations

import concurrent.futures
import ctypes.util
import functools
import multiprocessing.connection
import multiprocessing.process
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from flint.capturing.user_frames import is_ours, running_line, short_path
from flint.host.child_processes import fork
from flint.launching.own import asks

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
#: Functions that make what a copy of this process must not have: two copies would read each other's
#: messages from a pipe, and only the process that made a ``Process`` may start it.
_OF_ONE_PROCESS: tuple[tuple[Any, str], ...] = (
    (multiprocessing.connection, "Pipe"), (multiprocessing.process.BaseProcess, "__init__"),
)  # fmt: skip
#: Code that waits for the processes that it starts, by function or by file.
_WAITS = frozenset((subprocess.run.__code__, subprocess.call.__code__))
_WAITS_IN = frozenset((ctypes.util.__file__,))


def watch(before: Callable[[], None]) -> None:
    """Remember such lines from now on.

    Args:
        before: called before a process or a thread is started or prepared.
    """
    for owner, name in _PROCESSES:
        setattr(owner, name, _telling(getattr(owner, name), before, is_process=True))
    for owner, name in _THREADS + _OF_ONE_PROCESS:
        setattr(owner, name, _telling(getattr(owner, name), before, is_process=False))


def _telling(original: Any, before: Callable[[], None], is_process: bool) -> Any:
    @functools.wraps(original)
    def start(*args: Any, **kwargs: Any) -> Any:
        caller = _caller(sys._getframe(1))
        if caller is not fork.__code__:  # not our own
            searches = caller is not None and caller.co_filename in _WAITS_IN
            if not searches and (caller not in _WAITS or asks(kwargs.get("env"))):
                before()
            if is_process and not searches:
                _note()
        return original(*args, **kwargs)

    return start


def _caller(frame: FrameType | None) -> CodeType | None:
    """The code that starts it, without Flint's own around the function; or our own ``fork``."""
    while frame is not None and frame.f_code is not fork.__code__:
        if not is_ours(frame.f_code.co_filename):
            return frame.f_code
        frame = frame.f_back
    return frame and frame.f_code


def _note() -> None:
    file, line = running_line()
    if file:
        started[f"{short_path(file)}:{line}"] = None
