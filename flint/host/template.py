"""A process that is copied on request, so that its earlier work is done once for all copies.

The idea: at some point a process leaves a copy of itself behind, the template.  The parent asks the
template for more copies.  Each starts where the template was left, with a task and a folder, and
continues from there.

    with Template() as template:
        run_all(work, [0], folder, limits)       # in it: came = template.leave()
        if template.is_there():
            run_each(template, [1, 2], folder, limits)
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from flint.errors import FlintError
from flint.host.child_processes import adopt_orphans, end_with_parent, fork
from flint.host.tasks import say_into

_POLL = 0.02


class Template:
    """The parent's handle of a template; a ``Starter`` of tasks."""

    def __init__(self) -> None:
        """No template yet: a process forked from now on may leave one."""
        requests, asking = os.pipe()
        answers, telling = os.pipe()
        self._requests, self._answers = os.fdopen(requests, "rb"), os.fdopen(answers, "rb")
        self._asking, self._telling = os.fdopen(asking, "wb"), os.fdopen(telling, "wb")
        self._process = 0
        self._ended: dict[int, int] = {}

    def __enter__(self) -> Template:
        adopt_orphans(True)  # so that the template's time is counted as this process's
        return self

    def __exit__(self, *_: object) -> None:
        """End the template and all of its copies."""
        there = self.is_there()
        self.discard()
        if there:
            self.kill(self._process)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process, 0)
        adopt_orphans(False)

    def discard(self) -> None:
        """From now on neither ask for copies nor leave a template."""
        for pipe in (self._requests, self._answers, self._asking, self._telling):
            with contextlib.suppress(OSError):
                pipe.close()

    # the asking side

    def is_there(self) -> bool:
        """Whether a process that has ended left its template behind."""
        if not self._telling.closed:
            self._telling.close()
            with contextlib.suppress(FlintError):
                self._process, _ = self._answer()
        return self._process > 0

    def start(self, task: int, folder: Path) -> int:
        """Have the template copied."""
        self._asking.write(_line(task, str(folder)))
        self._asking.flush()
        while True:
            process, status = self._answer()
            if status is None:
                return process
            self._ended[process] = status

    def ended(self, process: int) -> int | None:
        """The status that the template has reported for it."""
        while process not in self._ended and select.select([self._answers], [], [], 0)[0]:
            other, status = self._answer()
            self._ended[other] = status or 0
        return self._ended.pop(process, None)

    def kill(self, process: int) -> None:
        """Kill it; the template waits for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def _answer(self) -> tuple[int, int | None]:
        """A process and how it has ended, None if it begins.

        Raises:
            FlintError: the template has died.
        """
        # Unbuffered, so that ``select`` shows whether there is more.
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._answers.fileno(), 1)
            if not part:
                raise FlintError("the program's process, from which other ranks are forked, died")
            line += part
        process, status = json.loads(line)
        return process, status

    # what is copied

    def leave(self) -> tuple[int, Path] | None:
        """Leave the template behind, here.

        Returns:
            In each copy its task and folder; None in the process that leaves it.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        came = None if fork() else self._serve()
        self.discard()
        return came

    def _serve(self) -> tuple[int, Path]:
        """In the template: copy it for each request; returns in the copies."""
        try:
            self._asking.close()
            running: set[int] = set()
            self._tell(os.getpid(), 0)
            while True:
                wait = _POLL if running else None
                asked = select.select([self._requests], [], [], wait)[0]
                for process in list(running):
                    found, status = os.waitpid(process, os.WNOHANG)
                    if found:
                        running.remove(process)
                        self._tell(process, status)
                if not asked:
                    continue
                line = self._requests.readline()
                if not line:
                    _end(running)
                task, folder = json.loads(line)
                template = os.getpid()
                process = fork()
                if not process:
                    end_with_parent(template)
                    say_into(Path(folder))
                    return task, Path(folder)
                running.add(process)
                self._tell(process, None)
        except BaseException:
            os._exit(1)

    def _tell(self, process: int, status: int | None) -> None:
        self._telling.write(_line(process, status))
        self._telling.flush()


def _line(*items: Any) -> bytes:
    return (json.dumps(items) + "\n").encode()


def _end(running: set[int]) -> NoReturn:
    for process in running:
        os.kill(process, signal.SIGKILL)
    os._exit(0)
