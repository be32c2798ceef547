"""A disk that is full from one write on: every place in a command where it can happen.

The idea: Python tells an audit hook of every file that is opened to be written, and of every folder
that is made, renamed or linked.  The command is a fork of a process that has imported what it
needs, and so are the processes of captures and sweeps: imports are paid once, and all have the
hook.  A pipe has a byte for each place that is still free; whoever gets the last one fills the
disk, and it stays full: what makes or opens a file fails ("open"), or files open and nothing goes
into them ("write", a limit on the length of files, which libraries in C++ have, too; each process
has it from its next file on).  Then the next number, until the command comes to its end.

    for place, found in every_place(JOBS[0], "write", tmp_path): ...
"""

from __future__ import annotations

import errno
import os
import resource
import select
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flint.cli import forks
from flint.host import interrupts, spare_process
from flint.sweeps import processes, sources
from tests.torture.jobs import Job
from tests.torture.running import GONE, Fate, Found, judged, prepared

MODES = ("open", "write")
_MAKING = ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate")
_FREE, _LAST = b".", b"!"


def every_place(job: Job, mode: str, folder: Path, step: int = 1) -> Iterator[tuple[int, Found]]:
    """The number of the event at which the disk is full, and what was found afterwards.

    Args:
        job: a command; what it imports is imported here.
        mode: one of ``MODES``.
        folder: a new one.
        step: look at every n-th event only.
    """
    number = 0
    while True:
        own = folder / f"{job.name} {mode} {number}"
        place, environment = prepared(job, own)
        if not number:
            _import(job, place)
        reached, status, text = _run(job, own, place, environment, number, mode)
        if not reached:
            assert number > 5 and status == 0, (status, text)  # it did write something
            return
        yield number, judged(Fate(job, "full disk", 0), own, place, status, text)
        number += step


def _import(job: Job, place: Path) -> None:
    steps = [place / item.partition(":")[0] for item in job.arguments if item.endswith("py:step")]
    forks._import_flint()
    forks._import(sources.modules(steps))
    interrupts.default_handlers()


def _run(
    job: Job, own: Path, place: Path, environment: dict[str, str], number: int, mode: str
) -> tuple[bool, int, str]:
    """Whether the event came, the exit status, and what was said."""
    said, mark = own / "said", own / "reached"
    left, filled = os.pipe()
    os.set_blocking(left, False)
    os.write(filled, _FREE * number + _LAST)
    os.close(filled)
    over, held = os.pipe()  # which every process of the command holds
    child = os.fork()
    if child == 0:
        try:
            os.close(over)
            output = os.open(said, os.O_WRONLY | os.O_CREAT)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(output, 2)
            reached = os.open(mark, os.O_WRONLY | os.O_CREAT)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(place)
            processes._start = _Forked  # type: ignore[assignment]  # instead of a new Python
            _fill_at_last(left, mode, reached)
            _command(job)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(left)
    os.close(held)
    _, ended = os.waitpid(child, 0)
    text = said.read_text(errors="replace")
    if not select.select([over], [], [], GONE)[0]:
        text += "\nTraceback of none: a process goes on"
    os.close(over)
    return bool(mark.stat().st_size), os.waitstatus_to_exitcode(ended), text


def _command(job: Job) -> None:
    """Run it as ``python -m flint`` does, which ends the process."""
    from flint.__main__ import main

    tempfile.tempdir = None
    if job.arguments[0] == "capture":
        spare_process.prepare()
    sys.argv = ["flint", *job.arguments]
    main()


class _Forked(spare_process.Spare):
    """The process of a sweep that imports and forks."""

    def __init__(self, module: list[str], variables: Mapping[str, str], **_: Any) -> None:
        assert module == [forks.__name__]
        entry, requests = os.pipe()
        output, answers = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(requests)
                os.close(output)
                os.setsid()
                os.dup2(entry, 0)
                os.dup2(answers, 1)
                os.environ.clear()
                os.environ.update(variables)
                tempfile.tempdir = None
                forks.serve()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        os.close(entry)
        os.close(answers)
        super().__init__(child, -1, open(requests, "wb"))  # noqa: SIM115
        self.stdout = open(output, "rb")  # noqa: SIM115


def _fill_at_last(left: int, mode: str, reached: int) -> None:
    full = False

    def hook(event: str, given: tuple[object, ...]) -> None:
        nonlocal full
        if not _makes(event, given):
            return
        if not full:
            with suppress(BlockingIOError):  # another process had the last one
                if os.read(left, 1) == _FREE:
                    return
                os.write(reached, f"{event} {given[0]}".encode())
            full = True
            if mode == "write":
                hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        if mode == "open":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(given[0]))

    sys.addaudithook(hook)


def _makes(event: str, given: tuple[object, ...]) -> bool:
    if event == "open":
        path, mode, flags = given
        if isinstance(path, int):  # which is open
            return False
        writes = bool(int(str(flags or 0)) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        return (writes or bool(set(str(mode or "")) & set("wax+"))) and path != os.devnull
    return event in _MAKING
