"""The command line as a user runs it: as a process, or in this one where it ends in an error.

A new process costs seconds of processor time, most of them imports: a fork of a warm one does as
well (``warm.py``).  What is refused before any work needs none.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys

from flint.cli import main
from flint.frontends.jax.internals.tracing import mesh_context
from tests.support.children import HUNG
from tests.support.warm import warm


def flint(*arguments, cwd=None, imported="flint", **environment):
    """A command as a process that has imported Flint, or also "torch" or "jax"; None: a new one."""
    kept = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = ["-m", "flint", *map(str, arguments)]
    if imported is not None:
        return warm(imported).run(command, cwd, kept | environment)
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=kept | environment,
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip


#: The same for programs of a framework.
flint_with_torch = functools.partial(flint, imported="torch")
flint_with_jax = functools.partial(flint, imported="jax")


def flint_here(*arguments, cwd):
    """A command in this process, which afterwards is as it was."""
    out, err = io.StringIO(), io.StringIO()
    environment, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    status = 0
    try:
        with (
            contextlib.chdir(cwd),
            mesh_context(None),  # the user's file may call jax.set_mesh
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main([str(argument) for argument in arguments])
    except SystemExit as stopped:
        status = stopped.code
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "__file__", None) and str(cwd) in str(
                sys.modules[name].__file__
            ):
                del sys.modules[name]
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def failed(run, status):
    """The one line of a run that failed as it should."""
    assert run.returncode == status, run.stderr
    lines = [line for line in run.stderr.splitlines() if line.startswith("flint: ")]
    assert "Traceback" not in run.stderr
    assert len(lines) == 1, run.stderr
    return lines[0]
