"""What a reader in this process may take: as much memory as the user allows, and no more.

The idea: sizes in a file can be checked, but not what its content becomes in memory.  So a thread
looks at what the process has while a file is read (Linux; elsewhere nothing does) and raises a
MemoryError in the reader where that is beyond the limit, which ends in one line.  The system
refuses what comes in one piece, ``SLACK`` beyond it and not at it: at such a wall glibc looks for
another arena at each allocation, and a reader that should end goes on, 500 times more slowly.
The limit is the whole process's: what it has before a file is read comes on top.

    with allowed(2 << 30):
        with bounded(Path("trace.json.gz")):
            ...                             # reads it, with 2 GiB more than there is in use now
            check_room(16 << 20)            # there are 16 MiB more, or MemoryError
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

#: Bytes beyond the limit from which on the system refuses.
SLACK = 128 << 20
#: Seconds from one look at what the process has to the next: readers take 20 MB in this time.
_INTERVAL = 0.02
#: What to do then.
RAISE = "raise the limit (--memory-limit, in GiB) if you trust the file"
#: Of what a process says when it gets no more memory.
_NO_MEMORY = (
    "bad_alloc", "MemoryError", "out of memory", "annot allocate memory", "malloc() failed",
    "strdup() failed",
)  # fmt: skip

_allowed: ContextVar[int | None] = ContextVar("allowed", default=MEMORY_LIMIT)
_lock = threading.Lock()
#: The limits of the readings that go on, and the one that the process had before them (bytes).
_limits: list[int] = []
_before: tuple[int, int] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def too_large(limit: int) -> str:
    """What is said of a file whose reader goes over its limit (bytes)."""
    return f"reading it takes more than {limit / 2**30:g} GiB of memory: {RAISE}"


def says_no_memory(words: str) -> bool:
    """Whether the last words of a process are that it got no more memory."""
    return any(said in words for said in _NO_MEMORY)


def allowed_bytes() -> int | None:
    """What a reading may take, bytes; None for any number."""
    return _allowed.get()


@contextmanager
def allowed(limit: int | None) -> Iterator[None]:
    """Readings in the block may take so many bytes each; None: any number."""
    token = _allowed.set(limit)
    try:
        yield
    finally:
        _allowed.reset(token)


@contextmanager
def bounded(path: object) -> Iterator[None]:
    """Refuse to take more memory for what is read in the block than is allowed.

    Args:
        path: what is read, for the message.

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
    watch.start()  # its stack counts as what the process has
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
    """Of several readings at once, in threads, the highest limit holds."""
    if data_bytes() > max(_limits, default=sys.maxsize):
        raise MemoryError


def _watch(reader: int, done: threading.Event) -> None:
    """Raise a MemoryError in a thread as soon as the process has more than it may, until done."""
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
    """A call: where what was raised in this thread is raised at the latest.

    To take it back (NULL for the error) leaves CPython 3.11 at it forever, and makes it hang where
    a profiler is set.
    """


def check_room(size: int) -> None:
    """Refuse what needs so many bytes where they are not to be had; none of them is touched.

    For native decoders that write to what they were not given: msgspec 0.22 does for strings.

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
