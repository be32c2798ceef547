"""``flint`` commands as processes that end together: forks of one that has imported everything.

The idea: where forking is safe (Linux), a process imports once and forks for each command
(``flint.cli.forks``); elsewhere each command starts a new Python.  Either way a command is a
process group of its own, and its failure is one line.

    commands = Processes("flint.cli.forks")
    commands.prepare(["jax"])
    text = commands.run(["simulate", "out", "--json"])
    commands.end()
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from flint.errors import FlintError
from flint.host.child_processes import death, kill_group
from flint.sweeps.scratch import Scratch

#: Characters of a reason that a row gives.
_LONGEST_REASON: Final = 500
#: Whether commands are forks.
_FORKS: Final = sys.platform == "linux"


class Processes:
    """The commands that run.  Used from several threads.

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
            variables: of the commands' environment, beyond this process's.
            paths: folders in front of Python's path.

        Raises:
            FlintError: no process can be started.
        """
        self._environment = environment(paths) | dict(variables or {})
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._ended = False
        self._waiting: dict[int, _Wait] = {}
        self._count = 0
        self._answered = False
        self._server: subprocess.Popen[bytes] | None = None
        self._scratch = Scratch("flint-sweep-")
        self.folder = self._scratch.folder
        # A command that is killed leaves what it has there.
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
        """Have more modules imported once for all, besides Flint; before the first command."""
        if self._server is not None:
            with self._lock:
                self._tell({"modules": list(modules)})

    def run(self, arguments: list[str]) -> str:
        """Standard output of a command.

        Raises:
            FlintError: it failed; the text is its own reason.
        """
        wait = self._ask(arguments) if self._server is not None else self._start_alone(arguments)
        wait.over.wait()
        output = _text(wait.output)
        messages = _text(wait.messages)
        for file in (wait.output, wait.messages):
            file.unlink(missing_ok=True)
        if wait.status is None:
            raise FlintError("interrupted" if self._ended else "the process that forks has ended")
        if wait.status:
            raise FlintError(reason(messages, wait.status))
        return output

    def end(self) -> None:
        """Kill what runs, with the processes that it has started."""
        with self._lock:
            self._ended = True
            for process in self._running:
                kill_group(process)
            waiting = list(self._waiting.values())
        if self._server is not None:
            assert self._server.stdin is not None
            with contextlib.suppress(OSError):
                self._server.stdin.close()
            if not self._answered:  # it has no children, and may be importing for a while yet
                self._server.kill()
            self._server.wait()
        for wait in waiting:
            wait.over.set()
        self._scratch.end()

    def _new(self) -> _Wait:
        if self._ended:
            raise FlintError("interrupted")
        self._count += 1
        return _Wait(
            self._count, self.folder / f"{self._count}.out", self.folder / f"{self._count}.err"
        )

    def _ask(self, arguments: list[str]) -> _Wait:
        with self._lock:
            wait = self._new()
            self._waiting[wait.number] = wait
            request = {
                "number": wait.number, "arguments": arguments,
                "output": str(wait.output), "messages": str(wait.messages),
            }  # fmt: skip
            try:
                self._tell(request)
            except FlintError:
                del self._waiting[wait.number]
                raise
        return wait

    def _tell(self, request: Mapping[str, object]) -> None:
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
                self._heard(json.loads(line))
        with self._lock:  # it has ended before its commands
            left = list(self._waiting.values())
            self._waiting.clear()
        for wait in left:
            wait.over.set()

    def _heard(self, answer: dict[str, Any]) -> None:
        with self._lock:
            self._answered = True
            wait = self._waiting[answer["number"]]
            if "process" in answer:
                wait.process = answer["process"]
                self._running.add(wait.process)
                if self._ended:
                    kill_group(wait.process)
                return
            self._running.discard(wait.process)
            del self._waiting[wait.number]
            wait.status = answer["status"]
        wait.over.set()

    def _start_alone(self, arguments: list[str]) -> _Wait:
        with self._lock:
            wait = self._new()
            with wait.output.open("wb") as output, wait.messages.open("wb") as messages:
                process = _start(
                    ["flint", *arguments], self._environment, stdout=output, stderr=messages
                )
            self._running.add(process.pid)
        try:
            wait.status = process.wait()
        finally:
            with self._lock:
                self._running.discard(process.pid)
        wait.over.set()
        return wait


class _Wait:
    """A command that runs, and the event that it is over."""

    def __init__(self, number: int, output: Path, messages: Path) -> None:
        self.number, self.output, self.messages = number, output, messages
        self.process = 0
        self.status: int | None = None
        self.over = threading.Event()


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
    """Ours, with some folders and this Flint to be found."""
    root = str(Path(__file__).absolute().parents[2])
    places = [*paths, os.environ.get("PYTHONPATH", ""), root]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def reason(messages: str, status: int) -> str:
    """Why a command failed, by what it has written to standard error; one line."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    errors = [line.removeprefix("flint: ") for line in lines if line.startswith("flint: ")]
    errors = [line for line in errors if not line.startswith("warning: ")]
    if errors:
        return errors[-1][:_LONGEST_REASON]
    if status < 0:
        return f"the process {death(status)}"
    last = f": {lines[-1]}" if lines else ""
    return f"the process ended with status {status}{last}"[:_LONGEST_REASON]
