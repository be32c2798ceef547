"""Python programs as forks of a process that has imported what they need.

Most of a small capture is starting Python and importing PyTorch or JAX.  A warm process does it
once for all tests of a worker, runs no test's code, and has no threads and no devices.  A fork of
it gets the arguments, the folder and the environment that a process of its own would have had, and
ends as that would.  What a variable changes while a package is imported it cannot change here: such
a program needs a new process.

    done = warm("torch").run(["-m", "flint", "run", ...], cwd, environment)
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

#: What each kind of process imports beside the command line.
MODULES = {
    "flint": (),
    "torch": (
        "torch", "flint.capturing.request", "flint.frontends.torch.capturing",
        "flint.frontends.torch.session", "flint.frontends.torch.programs.rank",
        "flint.cli.run", "flint.launching.capturing",
    ),
    "jax": (
        "jax", "jax.numpy", "flint.capturing.request", "flint.frontends.jax.capturing",
        "flint.frontends.jax.programs.running", "flint.cli.run", "flint.launching.capturing",
    ),
}  # fmt: skip
#: Read by packages when they are imported.  Copies of a process wait for threads that it had.
FIXED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Warm:
    """A process of one kind."""

    def __init__(self, kind):
        path = os.pathsep.join(filter(None, sys.path))
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", kind], text=True,
            env=os.environ | FIXED | {"PYTHONPATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, arguments, cwd, environment):
        """``python ARGUMENTS``, a script or ``-m module`` and its own, as a completed process."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            request = {
                "arguments": arguments, "cwd": str(cwd or Path.cwd()),
                "environment": dict(environment), "out": str(out), "err": str(err),
            }  # fmt: skip
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            try:
                status = json.loads(self._server.stdout.readline() or '"the warm process ended"')
            except BaseException:  # a test that takes too long: no answer may be taken for another
                self._server.kill()
                raise
            assert isinstance(status, int), status
            return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())

    def is_there(self):
        """Whether it can be asked."""
        return self._server.poll() is None

    def end(self):
        """End it."""
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


_running: dict[str, Warm] = {}


def warm(kind):
    """This worker's process of a kind."""
    if kind not in _running or not _running[kind].is_there():
        _running[kind] = Warm(kind)
    return _running[kind]


def end_all():
    """End this worker's processes."""
    while _running:
        _running.popitem()[1].end()


def serve(kind):
    """Import, then fork for each request, until the input ends."""
    from flint.cli import forks
    from flint.host.child_processes import end_with_parent

    gc.disable()
    forks.import_flint()
    for name in MODULES[kind]:
        importlib.import_module(name)
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the input ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(0, closefd=False) as requests:
        for line in iter(requests.readline, ""):
            server = os.getpid()
            process = forks.fork()
            if not process:
                status = 1
                try:
                    end_with_parent(server)
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    answers.close()
                    become(json.loads(line))
                    status = 0
                except SystemExit as stopped:
                    status = code_of(stopped)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    with contextlib.suppress(OSError):
                        sys.stdout.flush()
                        sys.stderr.flush()
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            print(json.dumps(status), file=answers, flush=True)
    os._exit(0)


def code_of(stopped):
    """The status of a process that SystemExit ends."""
    if stopped.code is None or isinstance(stopped.code, int):
        return stopped.code or 0
    print(stopped.code, file=sys.stderr)
    return 1


def become(request):
    """Run what is asked for, as Python's own command line does."""
    wanted = ((0, os.devnull, os.O_RDONLY), (1, request["out"], None), (2, request["err"], None))
    for descriptor, place, how in wanted:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if how is None else how
        opened = os.open(place, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    arguments = request["arguments"]
    sys.orig_argv[1:] = arguments
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        sys.path[0] = request["cwd"]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
