"""What a command imports: its own modules, not those of every other command."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def imported(*arguments):
    code = (
        "import json, sys\n"
        "from flint.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_a_command_does_not_import_the_others():
    found = imported("check", "--help")
    assert "flint.cli.check" in found
    assert not {"flint.cli.simulate", "flint.cli.sweep", "flint.simulation"} & found


def test_a_sweep_starts_its_processes_before_it_imports_what_they_do_not_wait_for():
    found = imported("sweep", "--help")
    assert "flint.sweeps.processes" in found
    assert not {"numpy", "flint.workload.workload", "flint.sweeps.points"} & found


@pytest.mark.parametrize("arguments", [["--help"], ["chekc"]])
def test_without_a_known_command_all_are_there(arguments):
    assert {"flint.cli.check", "flint.cli.sweep"} <= imported(*arguments)


def test_the_version_needs_no_command():
    assert not {"numpy", "flint.workload.workload", "flint.cli.check"} & imported("--version")


def test_an_interrupt_while_the_command_line_is_imported_is_a_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    run = subprocess.run(
        [sys.executable, "-m", "flint", "systems"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "flint: interrupted\n")


def test_a_temporary_folder_of_matplotlib_is_removed(tmp_path):
    """It makes one where its own cannot be written, and removes it at exit."""
    pytest.importorskip("matplotlib")
    (tmp_path / "file").touch()
    code = (
        "import sys\nimport matplotlib\nprint(matplotlib.get_cachedir(), flush=True)\n"
        "from flint.__main__ import main\nsys.argv = ['flint', '--version']\nmain()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path / "file"), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert run.stdout.startswith(f"{tmp_path}/matplotlib-")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
