"""Ctrl-C: heard wherever it comes, never where it would crash the process."""

from __future__ import annotations

import subprocess
import sys

from tests.support.children import HUNG

#: An extension module whose loading is interrupted half way.
LOADED = """
import _imp, os, signal, sys, time
from flint.host import interrupts
interrupts.install_handler()
load = _imp.create_dynamic

def interrupted(spec):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)  # several attempts come meanwhile
    print("loaded", flush=True)
    return load(spec)

_imp.create_dynamic = interrupted
try:
    import _lsprof
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted", "_lsprof" in sys.modules)
"""


def test_an_extension_module_is_loaded_to_its_end_before_an_interrupt_is_raised():
    """C++ code that meets an exception while it makes its module aborts or crashes the process."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=False, timeout=HUNG
    )
    assert (run.stdout, run.stderr) == ("loaded\ninterrupted True\n", "")


def test_an_interrupt_that_is_lost_while_the_command_line_is_imported_is_a_line(tmp_path):
    """Locks of imports have callbacks, which lose what is raised in them."""
    (tmp_path / "typer.py").write_text(
        "import gc, threading\n"
        "def callback(phase, info):\n    gc.callbacks.clear()\n    raise KeyboardInterrupt\n"
        "gc.callbacks.append(callback)\ngc.collect()\nthreading.Event().wait(60)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "flint", "systems"],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=HUNG,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "flint: interrupted\n")
