"""Commands as processes: forks of one, or each started alone; failures and the end of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from flint.cli import forks
from flint.errors import FlintError
from flint.sweeps import processes
from flint.sweeps.processes import Processes
from tests.support.children import HUNG
from tests.support.shared import quick
from tests.sweeps.test_command import alive, happens


@pytest.fixture(params=["forks", "alone"])
def commands(request, monkeypatch):
    if request.param == "forks" and sys.platform != "linux":
        pytest.skip("forks on Linux only")
    monkeypatch.setattr(processes, "_FORKS", request.param == "forks")
    made = Processes(forks.__name__)
    yield made
    made.end()


def test_a_command_says_what_it_says_alone(commands):
    assert json.loads(commands.run(["systems", "dgx-h100", "--json"]))[0]["name"] == "dgx-h100"
    with pytest.raises(FlintError, match="unknown system 'nothing'"):
        commands.run(["systems", "nothing"])
    assert "dgx-h100" in commands.run(["systems"])  # a failure is not the end of the others


def sleeper(tmp_path):
    """A step file that leaves its process's number and its child's in `mark`, and sleeps."""
    step = tmp_path / "step.py"
    step.write_text(
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "mark.with_suffix('.new').write_text(f'{os.getpid()} {child.pid}')\n"
        "mark.with_suffix('.new').rename(mark)\n"
        "time.sleep(600)\n"
    )
    return ["capture", f"{step}:f", "--mesh", "2", "-o", str(tmp_path / "out")]


def failure(commands, command):
    with pytest.raises(FlintError) as failed:
        commands.run(command)
    return str(failed.value)


def test_the_end_ends_what_runs(commands, tmp_path):
    command = sleeper(tmp_path)
    found = []
    worker = threading.Thread(target=lambda: found.append(failure(commands, command)))
    worker.start()
    assert happens((tmp_path / "mark").is_file)
    numbers = [int(number) for number in (tmp_path / "mark").read_text().split()]
    commands.end()
    worker.join(timeout=HUNG)
    assert found == ["interrupted"] or "SIGKILL" in found[0]
    assert happens(lambda: not any(map(alive, numbers)))
    with pytest.raises(FlintError, match="interrupted"):
        commands.run(["systems"])


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_modules_are_imported_once_for_all_commands(tmp_path):
    (tmp_path / "of_the_step.py").write_text(
        f"with open({str(tmp_path / 'imports')!r}, 'a') as file:\n    file.write('imported ')\n"
    )
    made = Processes(forks.__name__, paths=[str(tmp_path)])
    made.prepare(["of_the_step", "a_module_that_is_not_there"])
    try:
        assert made.run(["systems"]) == made.run(["systems"])
    finally:
        made.end()
    assert (tmp_path / "imports").read_text() == "imported "


STEPS = {
    "jax": (
        "import jax, jax.numpy as jnp\n"
        "def step(x): return (x @ x.T).sum()\n"
        "def setup(mesh): return (jax.ShapeDtypeStruct((64, 32), jnp.float32),)\n"
    ),
    "torch": (
        "import torch\n"
        "def setup(mesh): return (torch.ones(64, 32, device='cuda'),)\n"
        "def step(x): return (x @ x.T).sum()\n"
    ),
}


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
@pytest.mark.parametrize("framework", quick(STEPS, "jax"))
def test_all_of_flint_that_a_capture_needs_is_imported_before_the_fork(framework, tmp_path):
    (tmp_path / "train.py").write_text(STEPS[framework])
    code = (
        "import sys\n"
        "from flint.cli import forks\n"
        "from flint.sweeps import sources\n"
        "forks._import_flint()\n"
        "forks._import(sources.modules(['train.py']))\n"
        "before = set(sys.modules)\n"
        "status = forks._run(['capture', 'train.py:step', '--mesh', '2', '--axes', 'data',"
        " '--setup', 'setup', '-o', 'out', '--ranks', '0', '--json'])\n"
        "assert status == 0\n"
        "later = sorted(set(sys.modules) - before)\n"
        "print(*(name for name in later if name.startswith('flint.')))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, cwd=tmp_path, timeout=HUNG, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "", run.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_a_process_that_was_never_asked_for_anything_is_killed_while_it_imports():
    made = Processes(forks.__name__)
    made.end()
    assert made._server.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_a_process_that_imports_is_killed_although_a_command_waits_for_it(tmp_path):
    (tmp_path / "imported_for_ever.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'mark')!r}).touch()\ntime.sleep(600)\n"
    )
    made = Processes(forks.__name__, paths=[str(tmp_path)])
    made.prepare(["imported_for_ever"])
    found = []
    worker = threading.Thread(target=lambda: found.append(failure(made, ["systems"])))
    worker.start()
    assert happens((tmp_path / "mark").is_file)
    threading.Thread(target=made.end, daemon=True).start()
    worker.join(timeout=HUNG)
    assert found == ["interrupted"]


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_commands_fail_in_words_when_the_process_that_forks_is_gone():
    made = Processes(forks.__name__)
    made.run(["systems"])
    os.kill(made._server.pid, signal.SIGKILL)
    made._server.wait()
    with pytest.raises(FlintError, match="the process that forks has ended"):
        made.run(["systems"])
    made.end()


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_a_command_does_not_outlive_the_process_that_forks(tmp_path):
    made = Processes(forks.__name__)
    worker = threading.Thread(target=failure, args=(made, sleeper(tmp_path)))
    worker.start()
    assert happens((tmp_path / "mark").is_file)
    number, child = map(int, (tmp_path / "mark").read_text().split())
    os.kill(made._server.pid, signal.SIGKILL)
    assert happens(lambda: not alive(number))
    worker.join(timeout=HUNG)
    os.kill(child, signal.SIGKILL)
    made.end()


#: A sweep's processes, of which a command has left something in the folder for temporary files.
LEAVING = """
import pathlib, sys, tempfile
from flint.sweeps import processes
processes._FORKS = sys.argv[1] == "forks"
made = processes.Processes("flint.cli.forks")
step = pathlib.Path(sys.argv[2])
step.write_text("import tempfile\\ntempfile.mkdtemp(prefix='left-')\\nimport nothing_there\\n")
try:
    made.run(["capture", f"{step}:f", "--mesh", "2", "-o", "out"])
except processes.FlintError as error:
    print(made.folder, error, flush=True)
{}
"""


@pytest.mark.parametrize("how", ["forks", "alone"])
@pytest.mark.parametrize(
    "end", ["made.end()", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_no_temporary_file_outlives_the_process_of_the_sweep(how, end, tmp_path):
    place = tmp_path / "temporary"
    place.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", LEAVING.replace("{}", end), how, str(tmp_path / "step.py")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(place)},
    )  # fmt: skip
    assert run.stdout.startswith(f"{place}/flint-") and "nothing_there" in run.stdout
    assert happens(lambda: not any(place.iterdir()))
