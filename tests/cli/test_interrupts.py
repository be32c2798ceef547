"""Ctrl-C, SIGTERM and SIGHUP: heard wherever they come, but not where they would do harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_that_is_lost_while_the_command_line_is_imported_is_a_line(number, tmp_path):
    """Locks of imports have callbacks, which lose what is raised in them."""
    (tmp_path / "typer.py").write_text(
        "import gc, threading\n"
        "import os\ndef callback(phase, info):\n    gc.callbacks.clear()\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "gc.callbacks.append(callback)\ngc.collect()\nthreading.Event().wait(60)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "flint", "systems"],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=HUNG,
    )  # fmt: skip
    said = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert (run.returncode, run.stdout, run.stderr) == (128 + number, "", f"flint: {said}\n")


def test_flint_imports_nothing_before_it_hears_ctrl_c():
    """What is imported before shows its traceback."""
    script = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "old = set(sys.modules); import flint.__main__; print(sorted(set(sys.modules) - old))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True, text=True, check=False, timeout=HUNG,
    )  # fmt: skip
    assert run.stdout == "['flint', 'flint.__main__']\n", run.stderr


#: Ctrl-C each time that Python looks for a module, or a list of those that it looks for.
AT_A_MODULE = """
import os, sys
left = [2]
class Finder:
    def find_spec(name, path=None, target=None):
        if "LISTED" in os.environ:
            with open(os.environ["LISTED"], "a") as file:
                file.write(name + "\\n")
        if name == os.environ.get("CTRL_C_AT") and left[0]:
            left[0] -= 1
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Finder)
"""
#: What the installed command is.
ENTRY = "import sys\nfrom flint.__main__ import main\nsys.exit(main())"


@pytest.fixture
def started(tmp_path):
    """Runs ``flint systems`` with these variables under ``AT_A_MODULE``."""
    (tmp_path / "sitecustomize.py").write_text(AT_A_MODULE)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    # `make coverage` imports modules before the command does.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}

    def run(**variables):
        return subprocess.run(
            [sys.executable, "-c", ENTRY, "systems"], capture_output=True, text=True, check=False,
            timeout=HUNG, cwd=tmp_path, env=environment | {"PYTHONPATH": path} | variables,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    "module", ["flint.host", "flint.host.interrupts", "signal", "flint.cli", "typer"]
)
def test_ctrl_c_while_a_command_starts_is_a_line(module, started):
    """Twice where it is looked for once more: the end needs ``signal``, too."""
    run = started(CTRL_C_AT=module)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "flint: interrupted\n")


def test_ctrl_c_while_a_command_ends_is_a_line(started):
    run = started(CTRL_C_AT="atexit")
    assert (run.returncode, run.stderr) == (130, "flint: interrupted\n")
    assert run.stdout == started().stdout


@pytest.mark.thorough
def test_ctrl_c_at_any_module_of_a_command_is_a_line(started, tmp_path):
    listed = tmp_path / "listed"
    assert started(LISTED=str(listed)).returncode == 0
    names = listed.read_text().splitlines()
    names = names[names.index("flint.__main__") + 1 :]
    assert len(names) > 50
    for name in dict.fromkeys(names):
        run = started(CTRL_C_AT=name)
        assert (run.returncode, run.stderr) == (130, "flint: interrupted\n"), name


#: Writes a folder and is told to end in the middle of it, twice, as ``timeout`` does.
WRITING = """
import os, signal, sys
from pathlib import Path
from flint.host import interrupts
from flint.host.temporary import temporary_folder
from flint.host.writing import replacing_folder
number = int(sys.argv[1])
interrupts.install_handler()
try:
    with replacing_folder(Path("out")) as folder, temporary_folder(Path.cwd()):
        (folder / "half").write_text("half")
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            (folder / "more").write_text("half")
except KeyboardInterrupt:
    print(*interrupts.ending())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_batch_system_that_ends_the_work_leaves_nothing_half_written(number, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", WRITING, str(int(number))],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=HUNG,
    )  # fmt: skip
    assert (run.stdout, run.stderr) == (f"{128 + number} ended by {number.name}\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_command_under_nohup_outlives_its_terminal():
    script = (
        "import os, signal; from flint.host import interrupts\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\ninterrupts.install_handler()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('goes on')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=HUNG
    )
    assert run.stdout == "goes on\n"


#: A command in which an extension module makes an error of its own of what was raised in it.
MASKED = """
import os, signal, sys, flint.cli
def application(names):
    def run(**options):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("Invalid bounding box") from None
    return run
flint.cli.application = application
flint.cli.main(["systems"])
"""


def test_an_error_that_a_signal_was_turned_into_is_the_signal():
    """``make torture`` 103: Matplotlib's own error where SIGTERM came while it drew."""
    run = subprocess.run(
        [sys.executable, "-c", MASKED], capture_output=True, text=True, check=False, timeout=HUNG
    )
    assert (run.returncode, run.stderr) == (143, "flint: ended by SIGTERM\n")
