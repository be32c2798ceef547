"""The same work on several items in parallel, each in a forked process.

The idea: work on one file does not depend on the others.  A fork has everything imported and
returns its result.  Results come in the order of the items.

    for result in side_by_side(read, files, jobs=2):
        ...
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from flint.errors import FlintError
from flint.host.child_processes import end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

_one_of_several = False


def processors() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spare_processor() -> bool:
    """Whether this process may use a processor that none of ``side_by_side`` uses."""
    return not _one_of_several and processors() > 1


def free_memory() -> int | None:
    """Bytes that new processes may take without swapping; None if the system does not report it."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[Result]:
    """``map(work, items)``, in forked processes if the system has them and ``jobs`` is above 1.

    Args:
        work: a function of a module, or a ``functools.partial`` of one.
        items: what it is called with.
        jobs: processes at a time.

    Raises:
        FlintError: what ``work`` raises, or a process died.
    """
    if jobs < 2 or len(items) < 2:
        yield from map(work, items)
        return
    # Most commands do not need it, and it takes a fiftieth of their start-up time.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    if "fork" not in multiprocessing.get_all_start_methods():
        yield from map(work, items)
        return
    context = multiprocessing.get_context("fork")
    begin = partial(_begin, os.getpid())
    with ProcessPoolExecutor(min(jobs, len(items)), context, begin) as pool:
        try:
            yield from pool.map(work, items)
        except BrokenProcessPool as error:
            raise FlintError(
                "a process that read one of the files died, most likely because the machine ran "
                "out of memory: give fewer files"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(parent: int) -> None:
    global _one_of_several
    _one_of_several = True
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # its parent says that it was stopped
