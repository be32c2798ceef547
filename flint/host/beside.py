"""Work in a fork, beside what this process does in the meantime (Linux).

The idea: a fork has everything imported, and returns its result through memory.  If there is no
result, for whatever reason, the caller does the work itself and meets the reason.

    other = Beside(partial(read, half))
    mine = read(first)
    theirs = other.result()             # None: do it here
    other.end()
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from flint.host.child_processes import end_with_parent, fork


class Beside:
    """A fork that does one piece of work."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Begin ``work`` in a fork."""
        self._file = os.fdopen(os.memfd_create("result"), "w+b")
        parent = os.getpid()
        self._process = fork()
        if not self._process:
            self._do(work, parent)

    def _do(self, work: Callable[[], bytes], parent: int) -> None:
        status = 1
        try:
            end_with_parent(parent)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what fails here is done again there
            self._file.write(work())
            self._file.flush()
            status = 0
        finally:
            os._exit(status)

    def result(self) -> bytes | None:
        """What the work returned, when it has ended; None if it failed."""
        process, self._process = self._process, 0
        if os.waitpid(process, 0)[1]:
            return None
        self._file.seek(0)
        return self._file.read()

    def end(self) -> None:
        """Stop it if it still runs, and free its memory."""
        self._file.close()
        if self._process:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)
