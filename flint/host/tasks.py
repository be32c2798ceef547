"""Tasks in forked children with limits: several ranks at a time.

The idea: a capture changes torch's state everywhere (devices, process groups, shims), so it runs in
a copy of the user's process, which has the user's functions without asking for their files.  A
child leaves its result in files of a folder; what it raises, and how it dies, become one line.

    folders = run_all(work, [0, 511], folder, limits)     # work(task, its folder) in a child each
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flint.errors import FlintError
from flint.host.child_errors import leave, raise_left
from flint.host.child_processes import Limits, death, end_with_parent, fork

_POLL = 0.02
#: Characters of a child's output that ``--debug`` shows.
_MOST_WORDS = 4000

#: What a child does: a task and the folder for its result.
Work = Callable[[int, Path], None]


def run_all(
    work: Work, tasks: Sequence[int], folder: Path, limits: Limits, jobs: int | None = None
) -> dict[int, Path]:
    """Run ``work(task, folder of its own)`` for every task, each in a child.

    Args:
        work: called in the child; must leave its result in the folder.
        tasks: ranks.
        folder: for the folders of the tasks.
        limits: of each child.
        jobs: children at a time; default: processors.

    Returns:
        The folder of each task.

    Raises:
        UsageError, FlintError: what a child raised, or how it died; the others are stopped.
    """
    if not hasattr(os, "fork"):
        raise FlintError("capturing PyTorch needs a system that can fork (Linux, macOS)")
    jobs = jobs or os.cpu_count() or 1
    waiting = list(dict.fromkeys(tasks))
    folders = {task: folder / f"rank{task}" for task in waiting}
    running: dict[int, tuple[int, float]] = {}  # process -> task, start
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop(0)
                folders[task].mkdir()
                running[_fork(work, task, folders[task])] = task, time.monotonic()
            for process, (task, started) in list(running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    del running[process]
                    _raise_from(status, task, folders[task])
                else:
                    limits.check(
                        process, time.monotonic() - started, f"the capture of rank {task:,}",
                        smaller=", or build the model on the meta device",
                    )  # fmt: skip
            time.sleep(_POLL)
    finally:
        for process in running:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return folders


def _fork(work: Work, task: int, folder: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    process = fork()
    if process:
        return process
    # From here on in the child; it must not come back.
    status = 1
    try:
        end_with_parent(parent)
        words = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT)
        os.dup2(words, 2)
        work(task, folder)
        status = 0
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        leave(error, folder, "the capture")
    finally:
        sys.stdout.flush()
        os._exit(status)


def _raise_from(status: int, task: int, folder: Path) -> None:
    """Raise what a child that has ended left, if it failed."""
    if os.WIFSIGNALED(status):
        how = death(-os.WTERMSIG(status))
        raise FlintError(f"the capture of rank {task:,} {how}{_said(folder)}")
    if os.WEXITSTATUS(status) == 0:
        return
    raise_left(folder, _words(folder))
    raise FlintError(f"the capture of rank {task:,} ended without a result{_said(folder)}")


def _words(folder: Path) -> str:
    """The end of what a child printed."""
    words = (folder / "stderr").read_text(errors="replace")
    return f"\nits last words:\n{words[-_MOST_WORDS:]}" if words else ""


def _said(folder: Path) -> str:
    lines = (folder / "stderr").read_text(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
