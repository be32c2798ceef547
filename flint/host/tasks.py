"""Tasks in forked children with limits: several ranks at a time.

The idea: a capture changes much of torch's state (devices, process groups, shims), so it runs in a
copy of the user's process, which has the user's functions without importing their files.  A child
leaves its result as files in a folder; its errors, and how it dies, become one line.

    folders = run_all(work, [0, 511], folder, limits)     # work(task, its folder) in a child each

The children may also be started by a template (``template.py``): see ``run_each``.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flint.errors import FlintError
from flint.host.child_errors import leave, raise_left
from flint.host.child_processes import Limits, death, end_with_parent, fork, join_group
from flint.host.crashes import Frames, frames_in, without_report
from flint.host.temporary import full, no_temporary_files

_POLL = 0.02
#: The most characters of a child's output that ``--debug`` shows.
_MOST_WORDS = 4000

#: The parent's stderr; a child's own stderr is a file.
_parents_stderr = 2

#: The work of a child, from a task and the folder for its result.
Work = Callable[[int, Path], None]
#: The line to name of a crashed process, by its frames; "" for none.
LineOf = Callable[[Frames], str]


class Starter(Protocol):
    """Starts children and reports how they end."""

    def start(self, task: int, folder: Path) -> int:
        """Start a child for a task, which leaves its result in the folder; returns its process
        id.
        """

    def ended(self, process: int) -> int | None:
        """Its status, as from ``os.waitpid``; None while it runs."""

    def kill(self, process: int) -> None:
        """End it now."""


@dataclass(frozen=True, slots=True)
class Forks:
    """Copies of this process, in which ``work`` is called.

    Attributes:
        work: called in each copy.
        before: called before each copy is made: imports what all need, when the first is needed.
    """

    work: Work
    before: Callable[[], object] = lambda: None

    def start(self, task: int, folder: Path) -> int:
        """Fork."""
        self.before()
        return _fork(self.work, task, folder)

    def ended(self, process: int) -> int | None:
        """Ask the system."""
        found, status = os.waitpid(process, os.WNOHANG)
        return status if found else None

    def kill(self, process: int) -> None:
        """Kill it, and wait until it is gone."""
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def run_all(
    work: Work,
    tasks: Sequence[int],
    folder: Path,
    limits: Limits,
    jobs: int | None = None,
    line_of: LineOf = lambda _: "",
) -> dict[int, Path]:
    """Run ``work(task, folder)`` for every task, each in a child with a separate folder.

    Args:
        work: called in the child; must leave its result in the folder.
        tasks: ranks.
        folder: for the folders of the tasks.
        limits: limits of each child.
        jobs: children at a time; default: number of processors.
        line_of: the line that an error names if a child crashes.

    Returns:
        The folder of each task.

    Raises:
        UsageError, FlintError: a child raised it, or died; the others are stopped.
    """
    return run_each(Forks(work), tasks, folder, limits, jobs, line_of)


def run_each(
    starter: Starter,
    tasks: Sequence[int],
    folder: Path,
    limits: Limits,
    jobs: int | None = None,
    line_of: LineOf = lambda _: "",
) -> dict[int, Path]:
    """``run_all`` with children from another starter."""
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
                running[starter.start(task, folders[task])] = task, time.monotonic()
            for process, (task, started) in list(running.items()):
                status = starter.ended(process)
                if status is not None:
                    del running[process]
                    _raise_from(status, task, folders[task], line_of)
                else:
                    limits.check(
                        process, time.monotonic() - started, f"the capture of rank {task:,}",
                        smaller=", or build the model on the meta device",
                    )  # fmt: skip
            time.sleep(_POLL)
    finally:
        for process in running:
            starter.kill(process)
    return folders


def tell(line: str, place: int | None = None) -> None:
    """In a child: print a line to its parent's stderr, or to another open file."""
    place = _parents_stderr if place is None else place
    start = "\r\x1b[K" if os.isatty(place) else ""
    os.write(place, f"{start}flint: {line}\n".encode())


def _fork(work: Work, task: int, folder: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    process = fork()
    if process:
        return process
    # From here on in the child, which must not return.
    global _parents_stderr
    status = 1
    try:
        end_with_parent(parent)
        join_group()
        _parents_stderr = os.dup(2)
        say_into(folder)
        work(task, folder)
        status = 0
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        leave(error, folder, "the capture")
    finally:
        sys.stdout.flush()
        os._exit(status)


def say_into(folder: Path) -> None:
    """In a child: send its output to its folder, where the parent looks for errors."""
    words = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT)
    os.dup2(words, 2)
    os.close(words)
    faulthandler.enable(2, all_threads=False)


def _raise_from(status: int, task: int, folder: Path, line_of: LineOf) -> None:
    """Raise the error that an ended child left, if it failed."""
    if os.WIFSIGNALED(status):
        line = line_of(frames_in((folder / "stderr").read_text(errors="replace")))
        how = death(-os.WTERMSIG(status)) + (line and f" at {line}")
        raise FlintError(f"the capture of rank {task:,} {how}{_words_of(folder)}")
    if os.WEXITSTATUS(status) == 0:
        return
    if (error := full(folder)) is not None:
        raise FlintError(no_temporary_files(error))
    raise_left(folder, _words(folder))
    raise FlintError(f"the capture of rank {task:,} ended without a result{_words_of(folder)}")


def _words(folder: Path) -> str:
    """The end of what a child printed."""
    words = (folder / "stderr").read_text(errors="replace")
    return f"\nits last output:\n{words[-_MOST_WORDS:]}" if words else ""


def _words_of(folder: Path) -> str:
    words = without_report((folder / "stderr").read_text(errors="replace"))
    lines = words.strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
