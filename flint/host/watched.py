"""A command in a child process: code that kills its process ends with a line, not without a word.

The idea: a step file runs in the command's own process, and native code that it calls may crash.
The command is forked before anything is imported; the parent passes signals on, waits, and says how
the child died and where: what ``faulthandler`` has written (``crashes.py``).

    status = watched("the capture", line_of)            # in the child: None
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable

from flint.host.child_processes import death, end_with_parent, fork
from flint.host.crashes import Frames, frames_in
from flint.host.tasks import tell

#: What ends a command from outside.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: More than ``faulthandler`` writes about one thread.
_MOST_BYTES = 1 << 16


def watched(what: str, line_of: Callable[[Frames], str]) -> int | None:
    """Continue in a child; returns there None, and here its exit status when it has ended.

    Args:
        what: what the child does, for the line about its death.
        line_of: the line to name of a crashed process, by its frames; "" for none.
    """
    if not hasattr(signal, "sigwaitinfo"):  # macOS
        return None
    heard = {number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*heard, signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words, written = os.pipe()
    os.set_blocking(written, False)  # what does not fit is dropped
    sys.stdout.flush()
    parent = os.getpid()
    process = fork()
    if not process:
        end_with_parent(parent)
        os.close(words)
        faulthandler.enable(written, all_threads=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return None
    os.close(written)
    status = _end_of(process, {*heard, signal.SIGCHLD})
    if status >= 0:
        return status
    line = line_of(frames_in(_read(words)))
    tell(f"{what} {death(status)}" + (line and f" at {line}"))
    return 1


def _end_of(process: int, heard: set[signal.Signals]) -> int:
    """The status of a child that has ended; negative for a signal."""
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        came = signal.sigwaitinfo(heard)
        # A terminal sends its signals to the child, too.
        if came.si_signo != signal.SIGCHLD and came.si_code <= 0:
            os.kill(process, came.si_signo)


def _read(words: int) -> str:
    os.set_blocking(words, False)
    try:
        return os.read(words, _MOST_BYTES).decode(errors="replace")
    except BlockingIOError:  # a process that it has left holds the other end
        return ""
