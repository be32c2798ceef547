"""Streams that are closed, numbers that make no sense, options that would be passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flint.cli import COMMANDS, main
from tests.support.children import HUNG
from tests.support.command_line import failed, flint_here
from tests.support.shared import quick

TINY = Path(__file__).parent.parent / "data/stablehlo/llama_tiny_scan_fsdp4_tp2.mlirbc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("places") / "out"
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(TINY), "-o", str(path)])
    return path


@pytest.mark.parametrize("closed", quick(["<&-", ">&-", "2>&-", "<&- >&- 2>&-"], "<&- >&- 2>&-"))
def test_a_closed_stream_is_not_an_error_and_no_file_takes_its_place(closed, folder, tmp_path):
    """What is printed to a closed stream must not end in a file that was opened after it."""
    command = f"'{sys.executable}' -m flint simulate '{folder}' --html page.html {closed}"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 0
    assert "internal error" not in run.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [("simulate none 2>/dev/full", 2), ("systems >/dev/full", 1), ("systems --json | true", 1)],
)
def test_an_exit_status_is_the_same_where_nothing_can_be_said(arguments, status, tmp_path):
    command = f"'{sys.executable}' -m flint {arguments}; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == status
    assert "Traceback" not in run.stderr and run.stderr.count("\n") <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are not cut at a limit")
@pytest.mark.parametrize("unbuffered", quick(["", "1"], ""))
def test_a_result_that_is_written_in_part_is_an_error(unbuffered, tmp_path):
    """A file may grow to so many bytes; the write that passes them is done in part."""
    command = f"trap '' XFSZ; ulimit -f 8; '{sys.executable}' -m flint systems --json > out.json"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    assert (tmp_path / "out.json").stat().st_size == 8 * 1024
    assert run.returncode == 1
    assert run.stderr.startswith("flint: ") and run.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", quick(["", "1"], ""))
@pytest.mark.parametrize("arguments", [["systems"], ["systems", "--json"], ["--help"]])
def test_a_reader_that_has_gone_is_told_nothing(arguments, unbuffered):
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "flint", *arguments], stdout=write, stderr=subprocess.PIPE,
        text=True, check=False, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    os.close(write)
    assert (run.returncode, run.stderr) == (1, "")


def test_a_step_that_ends_the_process_is_a_line(tmp_path):
    (tmp_path / "step.py").write_text(
        "import jax\n"
        "def arguments(mesh):\n    return (jax.ShapeDtypeStruct((8,), 'float32'),)\n"
        "def step(x):\n    raise SystemExit('no GPU')\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "flint", "capture", "step.py:step", "--setup", "arguments",
         "--mesh", "2", "--axes", "data", "-o", "out"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "SystemExit: no GPU" in run.stderr and run.stderr.count("\n") == 1


def test_what_a_step_prints_is_not_on_stdout(tmp_path):
    """Neither from Python nor from a child process nor by number; JSON alone is there."""
    (tmp_path / "loud.py").write_text(
        "import os, sys\nimport jax\n"
        "print('printed')\nos.system('echo from a child')\nos.write(1, b'by number')\n"
        "sys.__stdout__.write('kept')\n"
        "def arguments(mesh):\n    return (jax.ShapeDtypeStruct((8,), 'float32'),)\n"
        "def step(x):\n    print('traced')\n    return x.sum()\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "flint", "capture", "loud.py:step", "--setup", "arguments",
         "--mesh", "2", "--axes", "data", "-o", "out", "--json"],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert json.loads(run.stdout)["ranks"] == 2
    for words in ("printed", "from a child", "by number", "kept", "traced"):
        assert words in run.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "out", "--limit", "-1"], "--limit"),
        (["check", "out", "--npus-count", "x"], "--npus-count 'x'"),
        (["convert", str(TINY), "-o", "o", "--trip-count", "-4"], "of at least 0"),
        (["convert", str(TINY), "-o", "o", "--branch", "main=-1"], "of at least 0"),
        (["convert", str(TINY), "-o", "o", "--mesh", ""], "expected sizes such as 64,8"),
        (["simulate", str(TINY)], "is a file, not a workload folder"),
        (["diff", "out", str(TINY)], "is a file, not a workload folder"),
        (["simulate", "out", "--time-limit", "0"], "--time-limit 0"),
        (["inspect", "out", "--rank", "2"], "--perfetto"),
        (["inspect", "out", "--system", "dgx-h100"], "--perfetto"),
        (["validate", "out", "--trace", "out/et", "--top", "-1"], "--top"),
        (["validate", "out", "--trace", "out/et", "--html", "out"], "is a folder"),
        (["validate", "out", "--trace", "out/et", "--html", "none/a.html"], "no folder"),
    ],
)
def test_what_makes_no_sense_is_a_line_and_exit_status_2(arguments, words, folder, capsys):
    found = [item.replace("out", str(folder), 1) if "out" in item else item for item in arguments]
    with pytest.raises(SystemExit) as ended:
        main(found)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in said
    assert said.count("\n") == 1


def test_an_interrupt_in_the_garbage_collector_is_not_lost(tmp_path):
    """Python passes over what callbacks of the collector raise; the step would go on forever."""
    (tmp_path / "loud.py").write_text(
        "import gc, threading\n"
        "def callback(phase, info):\n    gc.callbacks.clear()\n    raise KeyboardInterrupt\n"
        "gc.callbacks.append(callback)\ngc.collect()\nthreading.Event().wait(60)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "flint", "capture", "loud.py:f", "--mesh", "2", "-o", "out"],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=HUNG,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (130, "flint: interrupted\n")


@pytest.mark.parametrize(
    "limit", ["--memory-limit inf", "--memory-limit 1e+300", "--time-limit nan", "--time-limit 0"]
)
def test_a_limit_that_is_not_a_positive_number_is_refused(limit, tmp_path):
    run = subprocess.run(  # a capture leaves its process without cleaning up
        [sys.executable, "-m", "flint", "capture", "s.py:f", "-o", "o", *limit.split()],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.startswith(f"flint: {limit}: expected a positive number")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "kept"), "kept exists and is not a workload folder"),
        (("-o", "loud.py"), "is a file"),
        (("-o", "out", "--system", "abacus"), "abacus"),
        (("-o", "out", "--granularity", "warp"), "granularity 'warp'"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_capture(options, words, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes").write_text("mine")
    (tmp_path / "loud.py").write_text("raise RuntimeError('imported')")
    run = subprocess.run(
        [sys.executable, "-m", "flint", "capture", "loud.py:step", "--mesh", "2", *options],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert words in run.stderr
    assert "imported" not in run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "loud.py"]


def test_the_list_of_commands_is_whole_on_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    listed = shown.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert not [line for line in listed if "..." in line]
    assert [line.split()[0] for line in listed] == list(COMMANDS)


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("microbench {folder} --framework none -o none/k.csv", 2, "none/k.csv: there is no folder"),
        ("calibrate {tiny} --accelerator none -o none/a.toml", 2, "none/a.toml: there is no folde"),
        ("simulate {folder} --system nodes.toml --html .", 2, ". is a folder: give the name of a"),
        ("explain {folder} --top 3 --html none/a.html", 2, "none/a.html: there is no folder"),
        ("validate {folder} --trace none --html none/a.html", 2, "none/a.html: there is no folder"),
        ("capture train.py:step -o kept.txt/out", 2, "kept.txt is a file, not a folder"),
        ("sweep train.py:step --mesh 2 -o kept.txt/out", 2, "kept.txt is a file, not a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    line, status, said, folder, tmp_path
):
    """The other arguments are wrong, too: they are looked at later."""
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "train.py").write_text("def step(): pass\n")
    run = flint_here(*line.format(folder=folder, tiny=TINY).split(), cwd=tmp_path)
    assert said in failed(run, status)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.txt", "train.py"]


def test_a_folder_without_permission_is_named_before_the_work(tmp_path, monkeypatch):
    """As root every folder may be written: the system's answer is replaced."""
    (tmp_path / "train.py").write_text("raise NotImplementedError\n")
    monkeypatch.setattr("os.access", lambda path, mode, **options: False)
    run = flint_here("capture", "train.py:step", "-o", "new/out", cwd=tmp_path)
    assert "new/out: cannot be written (no permission to write in " in failed(run, 1)


def test_a_file_for_a_pipe_whose_reader_has_gone_is_no_failure(folder):
    command = f"'{sys.executable}' -m flint inspect '{folder}' --dot /dev/stdout"
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | true"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (1, "")


def test_a_file_whose_name_is_not_utf_8_gives_a_folder_that_can_be_read(tmp_path):
    name = os.fsdecode(b"step \xff.mlirbc")
    (tmp_path / name).write_bytes(TINY.read_bytes())
    assert flint_here("convert", name, "-o", "out", cwd=tmp_path).returncode == 0
    checked = flint_here("check", "out", cwd=tmp_path)
    assert checked.returncode == 0 and " 0 errors" in checked.stdout, checked.stderr
