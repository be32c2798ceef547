"""What a reader in this process may take: as much memory as the user allows, and no more.

The idea: sizes in a file can be checked, but not what its content becomes in memory.  So the system
refuses what goes beyond a limit while a file is read (Linux; elsewhere there is none), which ends
in one line.  The limit is the whole process's: what it has before a file is read comes on top.

    with allowed(2 << 30):
        with bounded(Path("trace.json.gz")):
            ...                             # reads it, with 2 GiB more than there is in use now
            check_room(16 << 20)            # there are 16 MiB more, or MemoryError
"""

from __future__ import annotations

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
    highest = data_bytes() + limit
    _change(_limits.append, highest)
    try:
        yield
    except MemoryError as error:
        raise FlintError(f"{path}: {too_large(limit)}") from error
    finally:
        _change(_limits.remove, highest)


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
    """Begin or end a reading; of several at once, in threads, the highest limit holds."""
    global _before
    with _lock:
        if not _limits:
            _before = resource.getrlimit(resource.RLIMIT_DATA)
        how(highest)
        soft, hard = _before
        if _limits:
            known = [item for item in (soft, hard) if item != resource.RLIM_INFINITY]
            soft = min([max(_limits), *known])
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
