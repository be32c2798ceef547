"""The memory limit of a reader in this process.

The idea: sizes in a file can be checked, but not how much memory its content takes.  So a thread
watches the process's memory while a file is read (only on Linux) and raises a MemoryError in the
reader beyond the limit, which is reported in one line.  Large single allocations are refused by the
system, at ``SLACK`` beyond the limit and not at the limit: at such a limit glibc would look for
another arena at each allocation, and a reader that should end would continue, 500 times more
slowly. The limit applies to the whole process, in addition to what it has before a file is read.

    with allowed(2 << 30):
        with bounded(Path("trace.json.gz")):
            ...                             # reads it, with 2 GiB more than is in use now
            check_room(16 << 20)            # 16 MiB more are available, or MemoryError
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flint.errors import FlintError
from flint.host.child_processes import data_bytes
from flint.host.packed_files import MEMORY_LIMIT

#: Bytes beyond the limit at which the system refuses.
SLACK = 128 << 20
#: Seconds between checks of the process's memory: readers take 20 MB in this time.
_INTERVAL = 0.02
#: Advice if the limit is exceeded.
RAISE = "raise the limit (--memory-limit, in GiB) if you trust the file"
#: Parts of the messages of processes that get no more memory.
_NO_MEMORY = (
    "bad_alloc", "MemoryError", "out of memory", "annot allocate memory", "malloc() failed",
    "strdup() failed", "failed to map segment",
)  # fmt: skip

_allowed: ContextVar[int | None] = ContextVar("allowed", default=MEMORY_LIMIT)
_lock = threading.Lock()
#: The limits of current readings, and the process's limit before them (bytes).
_limits: list[int] = []
_before: tuple[int, int] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def too_large(limit: int) -> str:
    """The message about a file whose reader exceeds its limit (bytes)."""
    return f"reading it takes more than {limit / 2**30:g} GiB of memory: {RAISE}"


def says_no_memory(words: str) -> bool:
    """Whether a process's last output says that it got no more memory."""
    return any(text in words for text in _NO_MEMORY)


def allowed_bytes() -> int | None:
    """The limit of a reading, in bytes; None for no limit."""
    return _allowed.get()


@contextmanager
def allowed(limit: int | None) -> Iterator[None]:
    """Set the limit of readings in the block, in bytes each; None for no limit."""
    token = _allowed.set(limit)
    try:
        yield
    finally:
        _allowed.reset(token)


@contextmanager
def bounded(path: object) -> Iterator[None]:
    """Refuse to take more memory for a reading in the block than is allowed.

    Args:
        path: the file that is read, for the message.

    Raises:
        FlintError: it takes more.
    """
    limit = _allowed.get()
    if limit is None or sys.platform != "linux":
        yield
        return
    done = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(threading.get_ident(), done), name="memory of a reader", daemon=True
    )
    watch.start()  # its stack counts as the process's memory
    highest = data_bytes() + limit
    _change(_limits.append, highest)
    try:
        try:
            yield
        finally:
            done.set()
            watch.join()
            _deliver()
        _check()
    except MemoryError as error:
        raise FlintError(f"{path}: {too_large(limit)}") from error
    finally:
        _change(_limits.remove, highest)


def _check() -> None:
    """If several readings run in threads, the highest limit applies."""
    if data_bytes() > max(_limits, default=sys.maxsize):
        raise MemoryError


def _watch(reader: int, done: threading.Event) -> None:
    """Raise a MemoryError in a thread as soon as the process exceeds its limit, until done."""
    while not done.wait(_INTERVAL):
        try:
            _check()
        except MemoryError:
            _raise_in(reader, MemoryError)
            return


def _raise_in(thread: int, error: type[Exception]) -> None:
    """Raise an error in a thread at its next call or loop."""
    number, given = ctypes.c_ulong(thread), ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, given)


def _deliver() -> None:
    """A call, at which a pending exception of this thread is raised at the latest.

    Cancelling it (NULL for the error) leaves CPython 3.11 in a permanent state of checking, and
    makes it hang if a profiler is set.
    """


def check_room(size: int) -> None:
    """Check that this many bytes can be allocated; none of them is touched.

    For native decoders that do not check allocations: msgspec 0.22 does not for strings.

    Raises:
        MemoryError: the system refuses them.
    """
    if sys.platform != "linux":
        return
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError(f"{size} bytes") from error


def _change(how: Callable[[int], None], highest: int) -> None:
    """Begin or end a reading."""
    global _before
    with _lock:
        if not _limits:
            _before = resource.getrlimit(resource.RLIMIT_DATA)
        how(highest)
        soft, hard = _before
        if _limits:
            known = [item for item in (soft, hard) if item != resource.RLIM_INFINITY]
            soft = min([max(_limits) + SLACK, *known])
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
