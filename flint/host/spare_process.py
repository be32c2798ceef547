"""A spare process that is ready to run a module, with its imports already done.

The idea: a compiler's process (``flint.host.module_process``) is a new Python, which takes longer
to import than to compile a small program.  If many commands are forks of one process that has
imported everything (``flint.cli.forks``), each also forks a spare one before it runs any user code:
a copy without threads or clients, which later becomes the compiler's process.

    prepare()                                   # early, before anything has threads
    process = take("module", [...], variables, stderr) or subprocess.Popen(...)
"""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from flint import registry
from flint.host.child_processes import data_bytes, end_with_parent, fork, resident_bytes

#: The most seconds between checks whether it has ended.
_LONGEST_LOOK = 0.02
#: Limits (bytes): a process that has imported numpy and what every command needs has 40 MiB, and
#: twice as much writable memory.  pyarrow alone has a GiB of that, mostly unused.
_SMALL, _SMALL_DATA = 96 << 20, 160 << 20


class Spare:
    """A child that was forked and not started; looks like ``subprocess.Popen``.

    Attributes:
        pid: its number.
        stdin: its standard input.
    """

    def __init__(self, pid: int, control: int, stdin: IO[bytes]) -> None:
        self.pid, self.stdin = pid, stdin
        self._control = control
        self._status: int | None = None

    def run(self, order: Mapping[str, object]) -> None:
        """Send its order."""
        with open(self._control, "wb") as control:
            control.write(json.dumps(order).encode())

    def poll(self) -> int | None:
        """Its status if it has ended, negative for a signal."""
        if self._status is None:
            try:
                process, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                process, status = self.pid, 0  # another part has waited for it
            if process:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Its status.

        Raises:
            subprocess.TimeoutExpired: it has not ended in so many seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        look = 0.0005
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("spare process", timeout or 0.0)
            time.sleep(look)
            look = min(2 * look, _LONGEST_LOOK)
        return status

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


#: The common type of spare and newly started processes.
Process = subprocess.Popen[bytes] | Spare

_spare: Spare | None = None


def prepare() -> None:
    """Fork the process that stands ready.  Linux only; call it before there are threads."""
    global _spare
    order, control = os.pipe()
    entry, stdin = os.pipe()
    parent = os.getpid()
    process = fork()
    if not process:
        status = 1
        try:
            os.close(control)
            os.close(stdin)
            status = _become(order, entry, parent)
        finally:
            os._exit(status)
    os.close(order)
    os.close(entry)
    _spare = Spare(process, control, io.FileIO(stdin, "wb"))


def prepare_if_small() -> None:
    """``prepare`` if a copy is as good as a new process and saves its imports.

    That is, if this process has no threads, whose locks the copy would hold forever, and is small,
    because its memory would count against the limits of the copy.
    """
    if _spare is not None or sys.platform != "linux":
        return
    if len(os.listdir("/proc/self/task")) > 1 or resident_bytes(os.getpid()) > _SMALL:
        return
    if data_bytes() < _SMALL_DATA:
        prepare()


def take(
    module: str, arguments: Sequence[str], variables: Mapping[str, str], messages: Path
) -> Spare | None:
    """The spare process, as ``python -m module ARGUMENTS``; None if there is none.

    Args:
        module: one of ``registry.SPARES``.
        arguments: its command line.
        variables: its complete environment.
        messages: the file that its standard error goes to; standard output goes nowhere.
    """
    global _spare
    found, _spare = (_spare, None) if module in registry.SPARES else (None, _spare)
    if found is None:
        return None
    order = {
        "module": module, "arguments": list(arguments), "variables": dict(variables),
        "messages": str(messages), "path": [part for part in sys.path if part],
    }  # fmt: skip
    found.run(order)
    return found


def _become(order: int, entry: int, parent: int) -> int:
    """Wait for the order and carry it out; returns the exit status."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(order, "rb") as control:
        text = control.read()
    if not text:
        return 0
    wanted = json.loads(text)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, opened in (
        (0, entry),
        (1, os.open(os.devnull, os.O_WRONLY)),
        (2, os.open(wanted["messages"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)),
    ):
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(wanted["variables"])
    sys.path[:] = wanted["path"]
    sys.argv = [wanted["module"], *wanted["arguments"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it is imported already, on purpose
        try:
            runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
        except SystemExit as stopped:
            if stopped.code is None or isinstance(stopped.code, int):
                return stopped.code or 0
            print(stopped.code, file=sys.stderr, flush=True)
            return 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
            return 1
    return 0
