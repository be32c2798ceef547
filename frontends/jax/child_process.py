"""A compiler in a child process, from the parent's side: limits, and how it ended, in one line.

The idea: XLA and its plugins can abort, hang or eat the machine's memory, so they run where they
can be stopped.  The child is started before the step is traced, so that its start costs nothing;
it gets its request as a file and the end of its stdin as the signal to begin.  What it has made is
judged by the files in its folder.

    with ChildProcess("flint.frontends.jax.partition.child", ["cpu", "512"],
                      "XLA's partitioner", "512 devices", limits) as child:
        child.begin(Compilation(bytecode))
        while not child.ended():
            child.check_limits()
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from flint.errors import FlintError
from flint.frontends.jax.internals.questions import Answer, serve
from flint.frontends.jax.requests import REASON, Compilation, send
from flint.host import spare_process
from flint.host.child_processes import Limits, death
from flint.host.temporary import make_temporary_folder

_POLL = 0.02
#: What the last line of a process that gives up may contain, the most telling first.
_LAST_WORDS = ("reason:", "Check failed", "bad_alloc", "LLVM ERROR", "FATAL", "Error:", "what():")
_MAX_REASON = 400


class ChildProcess:
    """A Python module that runs in a process of its own and waits for a request.

    Args:
        module: run as ``python -m module ARGUMENTS FOLDER``.
        arguments: the first ones; the scratch folder follows.
        what: what runs in it, for messages ("XLA's partitioner").
        subject: what it works for ("512 devices").
        limits: what it may take.
        environment: variables beyond the parent's.
        answer: what the process may ask, while it works, in the form of
            ``internals/questions.py``.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        what: str,
        subject: str,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        answer: Answer | None = None,
    ) -> None:
        self.what, self.subject, self.limits = what, subject, limits
        self._answer = answer
        self.folder = make_temporary_folder()
        self._words = self.folder / "stderr"
        self._began = time.monotonic()
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TF_CPP_MIN_LOG_LEVEL": "1",
        }
        # Flags for the user's own backend may be unknown to this one, which would then abort.
        variables.pop("XLA_FLAGS", None)
        variables |= environment or {}
        arguments = [*arguments, str(self.folder)]
        ready = spare_process.take(module, arguments, variables, self._words)
        self.process = ready or self._start(module, arguments, variables)

    def _start(
        self, module: str, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> spare_process.Process:
        with self._words.open("wb") as words:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=words,
                env=variables,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self, request: Compilation) -> None:
        """Hand the request over; the time limit runs from here."""
        send(self.folder, request)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._began = time.monotonic()

    def ended(self) -> bool:
        """Whether the process has ended; waits a moment for it, and answers what it asks."""
        if self._answer is not None:
            serve(self.folder, self._answer)
        try:
            self.process.wait(_POLL)
        except subprocess.TimeoutExpired:
            return False
        return True

    def check_limits(self) -> None:
        """Refuse to go on beyond a limit.

        Raises:
            FlintError: which limit.
        """
        advice = ", or keep repeated layers in a scan"
        self.limits.check(
            self.process.pid, time.monotonic() - self._began, self.what, f" for {self.subject}",
            faster=advice, smaller=advice,
        )  # fmt: skip

    def log(self) -> str:
        """What the process has written on stderr so far."""
        return self._words.read_text(encoding="utf-8", errors="replace")

    def failure(self) -> FlintError:
        """The error for a process that has ended without a result."""
        return FlintError(f"{self.what} failed for {self.subject}: {self.reason()}")

    def reason(self) -> str:
        """Why a process that has ended gave no result, in one line."""
        status = self.process.poll()
        lines = [" ".join(line.split()) for line in self.log().splitlines() if line.strip()]
        last = next(
            (line for word in _LAST_WORDS for line in reversed(lines) if word in line), ""
        ).removeprefix(REASON)
        last = "".join(char if char.isprintable() else "?" for char in last[:_MAX_REASON])
        if status is not None and status < 0:
            return f"its process {death(status)}" + (f" ({last})" if last else "")
        return last or f"its process ended with status {status} and no result"
