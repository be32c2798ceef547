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
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jaxlib import xla_client

from flint import registry
from flint.cli import forks
from flint.host import spare_process
from flint.host.child_processes import adopt_orphans, end_with_parent, fork
from flint.host.environment import import_numpy
from flint.host.packed_files import MEMORY_LIMIT
from tests.support.lending import borrow, lend

PARTITION, SAVED = "flint.frontends.jax.partition.child", "flint.frontends.saved.child"
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
    # What captures and conversions start.
    SAVED: (
        SAVED, "flint.frontends.saved.parsing", "flint.stablehlo.packed.packing",
        "flint.stablehlo.read.bindings", "flint.hlo.messages", "flint.hlo.text",
    ),
    PARTITION: (
        PARTITION, "jax", "jax.numpy", "jax.interpreters.mlir",
        "flint.frontends.jax.internals.xla", "flint.frontends.jax.saved_module",
        "flint.stablehlo.read.bindings", "flint.hlo.messages", "flint.hlo.text",
    ),
}  # fmt: skip
#: The processes that commands of a kind start.
STARTED = {"flint": (SAVED,), "torch": (), "jax": (PARTITION,)}
#: How many objects more than before, and collections of younger ones, begin one of Python's cycle
#: collector: fourteen times as many objects as by default, as caches of JAX and PyTorch are large.
SELDOM = (10_000, 20, 20)
#: Of Linux's prctl.
GET_CHILD_SUBREAPER = 37
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
            status = self._ask(request)
            return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())

    def spare(self):
        """A process that stands ready to become a module's: a child of this one."""
        order, control = os.pipe()
        entry, stdin = os.pipe()
        adopts = ctypes.c_int()
        ctypes.CDLL(None).prctl(GET_CHILD_SUBREAPER, ctypes.byref(adopts))
        adopt_orphans(True)
        try:
            process = self._ask({"parent": os.getpid(), "order": order, "entry": entry})
        finally:
            adopt_orphans(bool(adopts.value))
            os.close(order)
            os.close(entry)
        return spare_process.Spare(process, control, io.FileIO(stdin, "wb"))

    def _ask(self, request):
        """A number: the status or the process."""
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        try:
            answer = json.loads(self._server.stdout.readline() or '"the warm process ended"')
        except BaseException:  # a test that takes too long: no answer may be taken for another
            self._server.kill()
            raise
        assert isinstance(answer, int), answer
        return answer

    def is_there(self):
        """Whether it can be asked."""
        return self._server.poll() is None

    def end(self):
        """End it."""
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


#: The tests' process, whose copies must not ask for it.
_OWN = os.getpid()
_running: dict[str, Warm] = {}


def warm(kind):
    """This worker's process of a kind."""
    if kind not in _running or not _running[kind].is_there():
        _running[kind] = Warm(kind)
    return _running[kind]


def take(spare, taken, module, arguments, *words):
    """As ``spare_process.take``, with a warm process if there is none.

    What a copy has imported counts against a limit of memory, so that a tight one gets a new
    process.
    """
    is_tight = module == SAVED and int(arguments[1]) < MEMORY_LIMIT
    if module in MODULES and spare_process._spare is None and not is_tight:
        spare_process._spare = spare(module)
    return taken(module, arguments, *words)


def own_spare(module):
    """A process of a module for the tests' process itself."""
    return warm(module).spare() if os.getpid() == _OWN else None


def lent(module, addresses):
    """The same for a copy of a warm process; None where nothing lends such."""
    return borrow(addresses[module]) if module in addresses else None


def end_all():
    """End this worker's processes."""
    while _running:
        _running.popitem()[1].end()


def serve(kind):
    """Import, then fork for each request, until the input ends."""
    gc.disable()
    if kind in STARTED:
        addresses = {module: lend(functools.partial(_import, module)) for module in STARTED[kind]}
        find = functools.partial(lent, addresses=addresses)
        spare_process.take = functools.partial(take, find, spare_process.take)
        spare_process.prepare_if_small = lambda: None
    _import(kind)
    gc.set_threshold(*SELDOM)
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the input ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(0, closefd=False) as requests:
        for line in iter(requests.readline, ""):
            request = json.loads(line)
            found = orphan(request) if "parent" in request else ended(request, answers)
            print(json.dumps(found), file=answers, flush=True)
    os._exit(0)


def _import(kind):
    import_numpy()
    if kind != SAVED:  # whose memory counts against its limit
        forks._import_flint()
    register = xla_client.register_custom_call_partitioner
    if kind in registry.SPARES:  # its own answers to XLA's questions come before JAX's
        xla_client.register_custom_call_partitioner = lambda *_, **__: None
    for name in MODULES[kind]:
        importlib.import_module(name)
    xla_client.register_custom_call_partitioner = register


def ended(request, answers):
    """The status of a fork that does what is asked for."""
    server = os.getpid()
    process = fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    status = 1
    try:
        end_with_parent(server)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        answers.close()
        become(request)
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


def orphan(request):
    """The number of a fork that is now a child of the tests' process and waits for its order."""
    numbers, telling = os.pipe()
    between = fork()
    if not between:
        if fork():
            os._exit(0)
        parent, status = request["parent"], 1
        try:
            order, entry = (
                os.open(f"/proc/{parent}/fd/{request[name]}", os.O_RDONLY)
                for name in ("order", "entry")
            )
            os.write(telling, str(os.getpid()).encode())
            os.close(telling)
            while os.getppid() != parent:
                time.sleep(0.0005)
            status = spare_process._become(order, entry, parent)
        finally:
            os._exit(status)
    os.waitpid(between, 0)
    os.close(telling)
    with open(numbers, "rb") as known:
        return int(known.read() or 0)


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
    own = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[1:] = [*own, *(place for place in sys.path[1:] if place not in own)]
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
