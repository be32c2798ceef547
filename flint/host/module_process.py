"""A module in a child process, as seen by the parent: limits, and how it ended, in one line.

The idea: compilers and parsers can abort, hang or use up the machine's memory, so they run where
they can be stopped.  The child may be started before there is work for it, so that its start costs
no time; it gets a request as a file and a line on its stdin as the signal to begin.  Its result is
the files in its folder.

    with ModuleProcess("flint.frontends.jax.partition.child", ["cpu", "512"],
                       "XLA's partitioner", "512 devices", limits) as child:
        child.begin({"parameters": 2}, bytecode)
        while not child.ended():
            child.check_limits()
        child.place                     # the folder with what it has made
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from flint.errors import FlintError
from flint.host import spare_process
from flint.host.child_processes import Limits, death, resident_bytes
from flint.host.requests import REASON, is_through, send
from flint.host.temporary import full, make_temporary_folder, no_temporary_files

#: Seconds between checks of a child: the first, and the longest.
_FIRST_LOOK, _LONGEST_LOOK = 0.001, 0.02
#: Seconds to wait for a child that already has a result: about the cost of starting another one.
_REST = 1.0
#: Patterns in the last line of a failing process, the most informative first.
_LAST_WORDS = ("reason:", "Check failed", "bad_alloc", "LLVM ERROR", "FATAL", "Error:", "what():")
_MAX_REASON = 400


class ModuleProcess:
    """A Python module that runs in a separate process and waits for requests.

    Args:
        module: run as ``python -m module ARGUMENTS FOLDER``.
        arguments: the first arguments; the scratch folder follows.
        what: what runs in it, for messages ("XLA's partitioner").
        subject: what it works for ("512 devices"), "" if ``what`` includes it.
        limits: its limits.
        environment: variables in addition to the parent's.
        attend: called with the folder while it works, to answer its questions there.
        advice: what else to do if it exceeds a limit (", or keep repeated layers in a scan").

    Attributes:
        place: folder of the request that was begun last.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        what: str,
        subject: str,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        attend: Callable[[Path], None] | None = None,
        advice: str = "",
    ) -> None:
        self.what, self.limits, self.advice = what, limits, advice
        self.subject = f" for {subject}" if subject else ""
        self._attend = attend
        self.folder = make_temporary_folder()
        self.place = self.folder
        self._words = self.folder / "stderr"
        self._printed_before = 0  # bytes on stderr before the last request
        self._requests = 0
        self._look = _FIRST_LOOK
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
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=words,
                env=variables,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self, words: Mapping[str, Any], data: bytes) -> None:
        """Send a request; the time limit starts here."""
        self._requests += 1
        self.place = self.folder / str(self._requests)
        self._printed_before = self._words.stat().st_size if self._words.exists() else 0
        send(self.place, words, data)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: ``ended`` and ``reason`` say so
            self.process.stdin.write(f"{self.place.name}\n".encode())
        self._look = _FIRST_LOOK
        self._began = time.monotonic()

    def ended(self) -> bool:
        """Whether the process has finished; waits a moment for it, and answers its questions."""
        if self._attend is not None:
            self._attend(self.folder)
        if is_through(self.place) or self.process.poll() is not None:
            return True
        time.sleep(self._look)
        self._look = min(2 * self._look, _LONGEST_LOOK)
        return False

    def waits(self) -> bool:
        """Whether it can take another request: it has finished, and has not grown too large."""
        until = time.monotonic() + _REST
        while self._requests and not is_through(self.place):
            if self.process.poll() is not None or time.monotonic() > until:
                return False
            time.sleep(_FIRST_LOOK)
        return resident_bytes(self.process.pid) < self.limits.memory // 2

    def check_limits(self) -> None:
        """Refuse to continue beyond a limit.

        Raises:
            FlintError: a limit was exceeded.
        """
        self.limits.check(
            self.process.pid, time.monotonic() - self._began, self.what, self.subject,
            faster=self.advice, smaller=self.advice,
        )  # fmt: skip

    def log(self) -> str:
        """What the process has written to stderr since its last request."""
        if not self._words.exists():  # a spare process that was killed before it began
            return ""
        with self._words.open("rb") as words:
            words.seek(self._printed_before)
            return words.read().decode("utf-8", errors="replace")

    def failure(self) -> FlintError:
        """The error for a request without a result."""
        if (error := full(self.folder)) is not None:
            return FlintError(no_temporary_files(error))
        return FlintError(f"{self.what} failed{self.subject}: {self.reason()}")

    def reason(self) -> str:
        """Why a request has no result, in one line."""
        status = self.process.poll()
        lines = [" ".join(line.split()) for line in self.log().splitlines() if line.strip()]
        last = next(
            (line for word in _LAST_WORDS for line in reversed(lines) if word in line), ""
        ).removeprefix(REASON)
        last = "".join(char if char.isprintable() else "?" for char in last[:_MAX_REASON])
        if status is not None and status < 0:
            return f"its process {death(status)}" + (f" ({last})" if last else "")
        ended = "gave" if status is None else f"ended with status {status} and"
        return last or f"its process {ended} no result"
