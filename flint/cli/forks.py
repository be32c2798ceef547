"""A process that has everything imported and forks itself for each ``flint`` command.

The idea: most of a small capture or simulation is starting Python and importing.  This process does
it once, runs none of the user's code and creates no compiler client; each command is a fork of it,
with its own process group, as if it had been started alone.

    python -m flint.cli.forks

``flint.sweeps.processes`` starts it.  It reads one JSON object per line: ``{"modules": ["jax"]}``
makes it import these modules, too; ``{"number": 1, "arguments": [...], "output": FILE, "messages":
FILE}`` starts a command, and the answers are ``{"number": 1, "process": 4711}`` and at the end
``{"number": 1, "status": 0}``.  At the end of its input it kills the commands that still run.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any

from flint import registry
from flint.cli import main
from flint.host import interrupts, spare_process
from flint.host.child_processes import end_with_parent, fork, kill_group
from flint.host.environment import import_numpy

#: Modules that captures and simulations need in any case.
_ALWAYS = (
    "flint.cli.capture", "flint.cli.simulate", "flint.simulation.running", "flint.workload.saving",
    "flint.passes.aliases", "flint.passes.update_aliasing", "flint.passes.fuse",
)  # fmt: skip


def serve() -> None:
    """Import, then fork for every request until the input ends."""
    gc.disable()  # imported modules stay; a fork enables collection again
    _import_flint()
    answers = os.dup(1)
    os.dup2(2, 1)  # other output must not look like an answer
    interrupts.default_handlers()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the input ends this process
    running: dict[int, int] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _reap(running, answers))
    with open(0, "rb", closefd=False) as requests:
        for line in requests:
            request = json.loads(line)
            if "modules" in request:
                _import(request["modules"])
                continue
            process = _fork(request, answers)
            _answer(answers, {"number": request["number"], "process": process})
            running[process] = request["number"]
            _reap(running, answers)  # it may have ended before it was entered
    _end(running)
    os._exit(0)  # unloading the imported modules would take longer than everything else at the end


def _import_flint() -> None:
    import_numpy()
    registry.prepare(None)
    for name in _ALWAYS:
        import_module(name)
    for name in ("chakra", "chakra-nodes"):
        registry.converter(name)
    # The command line imports what it needs on first use.
    with contextlib.redirect_stdout(io.StringIO()):
        _run(["targets", "--json"])


def _import(modules: list[str]) -> None:
    with contextlib.suppress(Exception):  # as below
        registry.before_import(modules)
    for name in modules:
        with contextlib.suppress(Exception):  # the command that needs it will say what is wrong
            import_module(name)
    gc.freeze()  # forks do not scan the objects that exist already


def _fork(request: dict[str, Any], answers: int) -> int:
    parent = os.getpid()
    process = fork()
    if process:
        return process
    status = 1
    try:
        gc.enable()
        os.setsid()
        end_with_parent(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(answers)
        _redirect(request)
        if request["arguments"][0] == "capture":
            spare_process.prepare()
        status = _run(request["arguments"])
    finally:
        os._exit(status)


def _redirect(request: dict[str, Any]) -> None:
    for descriptor, place in ((0, os.devnull), (1, request["output"]), (2, request["messages"])):
        mode = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open(place, mode, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)


def _run(arguments: list[str]) -> int:
    sys.argv = ["flint", *arguments]
    status: Any = 0
    try:
        main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return status if isinstance(status, int) else 1


def _reap(running: dict[int, int], answers: int) -> None:
    """Answer for the commands that have ended; a signal handler may call this while it runs."""
    for process in list(running):
        with contextlib.suppress(ChildProcessError):  # the other call answered for it
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                _answer(answers, {"number": running.pop(process), "status": code})


def _answer(answers: int, document: dict[str, Any]) -> None:
    # Perhaps there is no reader any more: then the input ends next.
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, json.dumps(document).encode() + b"\n")


def _end(running: dict[int, int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for process in running:
        kill_group(process)
    for process in running:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)


if __name__ == "__main__":
    serve()
