"""Child processes: their limits, how they died, and that none outlives its parent.

The idea: code that may abort, hang or use up the machine's memory runs in a child process.  The
parent checks it from time to time and reports in one line why there is no result.

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
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flint.errors import FlintError
from flint.host.readable import human_bytes

#: From <sys/prctl.h>: the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
#: Also from there: orphans among a process's descendants become its children.
_PR_SET_CHILD_SUBREAPER = 36


#: Seconds between looks whether the parent of a group's leader is there.
_LOOK = 0.2
#: The leader of the group that children join; 0 for none.
_group = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a child.

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
        """Refuse to continue beyond a limit.

        Args:
            process: its process id.
            seconds: how long it has run.
            what: what runs in it, for the message.
            subject: " for what", or nothing.
            faster, smaller: ", or what else to do" instead of raising the limit.

        Raises:
            FlintError: a limit was exceeded.
        """
        if seconds > self.seconds:
            raise FlintError(
                f"{what} took more than {self.seconds:g} s{subject} and was stopped: "
                f"raise the time limit{faster}"
            )
        occupied = resident_bytes(process)
        if occupied > self.memory:
            raise FlintError(
                f"{what} used {human_bytes(occupied)}{subject}, more than the limit of "
                f"{human_bytes(self.memory)}, and was stopped: raise the memory limit{smaller}"
            )


def resident_bytes(process: int) -> int:
    """Resident set of a process, in bytes; 0 if the system has no /proc."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGESIZE")


def data_bytes() -> int:
    """This process's amount of the memory that ``RLIMIT_DATA`` bounds, used or not (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


def death(status: int) -> str:
    """How a process with a negative status died, as a phrase that follows its name."""
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
    """Called in a child: set permanent limits from now on.

    Args:
        seconds: processor time, after which the system ends it by SIGXCPU.
        memory: bytes that it may allocate, and that a file that it writes may have.
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
    """Called in a child: makes Linux kill it when its parent ends; elsewhere it would continue.

    Args:
        parent: the parent's process id, if known: if it has already ended, the child ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def adopt_orphans(adopt: bool) -> None:
    """Whether this process is the parent of descendants whose parents end, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """At its end, what was started within it and still runs is killed, on Linux.

    A program's own processes outlive it if it is stopped: workers that load data, for example.  If
    this process is killed instead, those of its children that have joined a group
    (``join_group``) end, with all that they have started and that has stayed in the group.
    """
    global _group
    before, outer = _children(), _group
    adopt_orphans(True)
    _group = _leader()
    try:
        yield
    finally:
        _group = outer
        while left := _children() - before:  # whose children become this process's
            for process in left:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
        adopt_orphans(False)


def join_group() -> None:
    """Called in a child: end with the parent, together with all that this process starts."""
    if _group:
        os.setpgid(0, _group)
        # It may use the terminal, from which the system stops a group in the background.
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)


def _leader() -> int:
    """A new child that kills its group when this process ends."""
    parent = os.getpid()
    process = fork()
    if not process:
        os.setpgid(0, 0)
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os.killpg(0, signal.SIGKILL)
    os.setpgid(process, process)  # both do it: the next child may join at once
    return process


def _children() -> set[int]:
    """This process's children; none if the system does not list them."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, thread.read_text(encoding="ascii").split()))
    return found


def fork() -> int:
    """``os.fork``, for children that compute; without its warning about threads.

    Numerical libraries recreate their threads.  Garbage of the parent is never collected in the
    child: ending an XLA client there, for example, would wait for threads that it does not have.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process = os.fork()
    if not process:
        gc.freeze()
    return process


def kill_group(process: int) -> None:
    """Kill a process that leads a group, with all processes that it has started."""
    for kill in (os.killpg, os.kill):  # it may not lead its group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)
