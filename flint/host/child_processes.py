"""Child processes: what they may take, how they died, and that none outlives its parent.

The idea: what may abort, hang or eat the machine's memory runs in a child process.  Whoever starts
one looks at it from time to time and says in one line why there is no result.

    limits = Limits(seconds=600, memory=2**34)
    limits.check(process, time.monotonic() - began, "the capture of rank 3")
    f"the capture of rank 3 {death(-9)}"    # died of SIGKILL, most likely because the machine ...
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from flint.errors import FlintError

#: From <sys/prctl.h>: the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
#: From there, too: orphans among a process's descendants become its children.
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may take.

    Attributes:
        seconds: from the request to the result.
        memory: bytes of its resident set.
    """

    seconds: float
    memory: int

    def check(
        self, process: int, seconds: float, what: str, subject: str = "", *, faster: str = "",
        smaller: str = "",
    ) -> None:  # fmt: skip
        """Refuse to go on beyond a limit.

        Args:
            process: its number.
            seconds: that it has run.
            what: what runs in it, for the message.
            subject: " for what", or nothing.
            faster, smaller: ", or what else to do" beside raising the limit.

        Raises:
            FlintError: which limit.
        """
        if seconds > self.seconds:
            raise FlintError(
                f"{what} took more than {self.seconds:g} s{subject} and was stopped: "
                f"raise the time limit{faster}"
            )
        occupied = resident_bytes(process)
        if occupied > self.memory:
            raise FlintError(
                f"{what} used {occupied / 2**30:.1f} GiB{subject}, more than the limit of "
                f"{self.memory / 2**30:.1f} GiB, and was stopped: raise the memory limit{smaller}"
            )


def resident_bytes(process: int) -> int:
    """Resident set of a process, bytes; 0 where the system has no /proc."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGESIZE")


def data_bytes() -> int:
    """What this process has of the memory that ``RLIMIT_DATA`` bounds, used or not (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


def death(status: int) -> str:
    """How a process died whose status is negative, as a phrase that follows its name."""
    if -status == signal.SIGKILL:
        return "died of SIGKILL, most likely because the machine ran out of memory"
    return f"died of {signal_name(-status)}"


def signal_name(number: int) -> str:
    """A signal's name, "signal 40" for those that have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def restrict(seconds: int, memory: int) -> None:
    """Called in a child: bound what it may take from now on, for good.

    Args:
        seconds: of processor time; then the system ends it by SIGXCPU.
        memory: bytes that it may allocate, and that a file of its may have.
    """
    _bound(resource.RLIMIT_CPU, seconds, seconds + 1)
    _bound(resource.RLIMIT_DATA, memory, memory)
    _bound(resource.RLIMIT_FSIZE, memory, memory)
    _bound(resource.RLIMIT_CORE, 0, 0)


def _bound(kind: int, soft: int, hard: int) -> None:
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def end_with_parent(parent: int | None = None) -> None:
    """Called in a child: Linux kills it when its parent ends; elsewhere it would go on.

    Args:
        parent: its number, where it is known: if that one has ended already, the child ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def adopt_orphans(adopt: bool) -> None:
    """Whether this process is the parent of descendants whose parents end, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def fork() -> int:
    """``os.fork``, for children that compute; without its warning about threads.

    Numerical libraries make their threads again.  What was garbage in the parent is never collected
    in the child: to end a client of XLA there, say, is to wait for threads that it does not have.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process = os.fork()
    if not process:
        gc.freeze()
    return process


def kill_group(process: int) -> None:
    """Kill a process that leads a group, with all that it has started."""
    for kill in (os.killpg, os.kill):  # it may not lead its group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)
