"""``flint`` commands as processes that end together: forks of one that has imported everything.

The idea: where forking is safe (Linux), a process imports once and forks for each command
(``flint.cli.forks``); elsewhere each command starts a new Python.  In both cases a command has its
own process group, and its failure is one line.

    commands = Processes("flint.cli.forks")
    commands.prepare(["jax"])
    text = commands.run(["simulate", "out", "--json"])
    commands.end()
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from flint.errors import FlintError
from flint.host.child_processes import death, kill_group
from flint.sweeps.scratch import Scratch

#: The most characters of a reason in a row.
_LONGEST_REASON: Final = 500
#: Whether commands are forks.
_FORKS: Final = sys.platform == "linux"


class Processes:
    """The running commands.  Used from several threads.

    Attributes:
        folder: for temporary files, the commands' too; removed at the end.
    """

    def __init__(
        self,
        forks: str,
        variables: Mapping[str, str] | None = None,
        paths: Sequence[str] = (),
    ) -> None:
        """Start the process that imports; only the first command waits for it.

        Args:
            forks: the module of the process that imports and forks; it reads requests on standard
                input.
            variables: environment variables of the commands, in addition to this process's.
            paths: folders in front of Python's path.

        Raises:
            FlintError: no process can be started.
        """
        self._environment = environment(paths) | dict(variables or {})
        self._lock = threading.Lock()
        self._ended = False
        self._numbers = itertools.count(1)
        #: Number of a command -> its process, and its future exit status; None if unknown.
        self._running: dict[int, int] = {}
        self._statuses: dict[int, Future[int | None]] = {}
        self._answered = False
        self._server: subprocess.Popen[bytes] | None = None
        self._scratch = Scratch()
        self.folder = self._scratch.folder
        # A killed command leaves its files there.
        self._environment["TMPDIR"] = str(self.folder)
        if _FORKS:
            self._server = _start(
                [forks],
                self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            threading.Thread(target=self._listen, args=(self._server,), daemon=True).start()

    def prepare(self, modules: Sequence[str]) -> None:
        """Import further modules once for all commands; before the first command."""
        if self._server is not None:
            with self._lock:
                self._send({"modules": list(modules)})

    def run(self, arguments: list[str]) -> str:
        """Standard output of a command.

        Raises:
            FlintError: it failed; the text is the command's own message.
        """
        number = next(self._numbers)
        output, messages = self.folder / f"{number}.out", self.folder / f"{number}.err"
        start = self._fork if self._server is not None else self._start_alone
        status = start(number, arguments, output, messages)
        printed, errors = _text(output), _text(messages)
        for file in (output, messages):
            file.unlink(missing_ok=True)
        if status is None:
            raise FlintError("interrupted" if self._ended else "the process that forks has ended")
        if status:
            raise FlintError(reason(errors, status))
        return printed

    def end(self) -> None:
        """Kill the running commands, with the processes that they have started."""
        with self._lock:
            self._ended = True
            for process in self._running.values():
                kill_group(process)
        if self._server is not None:
            assert self._server.stdin is not None
            with contextlib.suppress(OSError):
                self._server.stdin.close()
            if not self._answered:  # it has no children, and may still be importing for a while
                self._server.kill()
            self._server.wait()
        self._give_up()
        self._scratch.end()

    def _fork(self, number: int, arguments: list[str], output: Path, messages: Path) -> int | None:
        """Status of a command that the server forks; None if there will be none."""
        status: Future[int | None] = Future()
        with self._lock:
            self._refuse_after_end()
            self._send(
                {
                    "number": number, "arguments": arguments,
                    "output": str(output), "messages": str(messages),
                }
            )  # fmt: skip
            self._statuses[number] = status
        return status.result()

    def _send(self, request: Mapping[str, object]) -> None:
        assert self._server is not None and self._server.stdin is not None
        try:
            self._server.stdin.write(json.dumps(request).encode() + b"\n")
            self._server.stdin.flush()
        except OSError as error:
            raise FlintError("the process that forks has ended; out of memory?") from error

    def _listen(self, server: subprocess.Popen[bytes]) -> None:
        assert server.stdout is not None
        with server.stdout as answers:
            for line in answers:
                with self._lock:
                    self._take(json.loads(line))
        self._give_up()  # it may have ended before its commands

    def _take(self, answer: dict[str, int]) -> None:
        self._answered = True
        number = answer["number"]
        if "process" in answer:
            self._running[number] = answer["process"]
            if self._ended:
                kill_group(answer["process"])
        else:
            self._running.pop(number, None)
            if number in self._statuses:  # otherwise nothing waits for it any more
                self._statuses.pop(number).set_result(answer["status"])

    def _give_up(self) -> None:
        """No status will come any more."""
        with self._lock:
            for status in self._statuses.values():
                status.set_result(None)
            self._statuses.clear()

    def _start_alone(self, number: int, arguments: list[str], output: Path, messages: Path) -> int:
        with self._lock:
            self._refuse_after_end()
            with output.open("wb") as out, messages.open("wb") as err:
                process = _start(["flint", *arguments], self._environment, stdout=out, stderr=err)
            self._running[number] = process.pid
        try:
            return process.wait()
        finally:
            with self._lock:
                del self._running[number]

    def _refuse_after_end(self) -> None:
        if self._ended:
            raise FlintError("interrupted")


def _start(
    module: list[str],
    variables: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    try:
        # -P: as the `flint` command, without the current folder in front of the path.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", *module],
            stdin=stdin, env=variables, start_new_session=True, **streams,
        )  # fmt: skip
    except OSError as error:
        raise FlintError(f"no process can be started ({error.strerror or error})") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def environment(paths: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment, with some folders and this Flint on the path."""
    root = str(Path(__file__).absolute().parents[2])
    places = [*paths, os.environ.get("PYTHONPATH", ""), root]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def reason(messages: str, status: int) -> str:
    """Why a command failed, from its standard error; one line."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    errors = [line.removeprefix("flint: ") for line in lines if line.startswith("flint: ")]
    errors = [line for line in errors if not line.startswith("warning: ")]
    if errors:
        return errors[-1][:_LONGEST_REASON]
    if status < 0:
        return f"the process {death(status)}"
    last = f": {lines[-1]}" if lines else ""
    return f"the process ended with status {status}{last}"[:_LONGEST_REASON]
