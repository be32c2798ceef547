"""Pipes and FIFOs as input: read once, recorded as what came."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flint.capturing.saved_files import convert
from flint.cost.systems import load_system, whole_description
from flint.errors import FlintError
from flint.post_execution.converting import convert_traces
from tests.support.command_line import failed, flint_here
from tests.validation import hand_made

PROGRAM = Path(__file__).parent.parent / "data" / "stablehlo" / "llama_tiny_scan_fsdp4_tp2.mlirbc"
TRACE = Path(__file__).parent.parent / "data" / "traces" / "resnet50_ddp_nccl_rank0.json.gz"


@pytest.fixture
def fifo(tmp_path: Path):
    """A function that makes a FIFO through which bytes come."""
    threads = []

    def through(data: bytes) -> Path:
        path = tmp_path / f"pipe_{len(threads)}"
        os.mkfifo(path)
        threads.append(threading.Thread(target=path.write_bytes, args=(data,)))
        threads[-1].start()
        return path

    yield through
    for thread in threads:
        thread.join()


def test_a_program_from_a_pipe_is_recorded_with_the_hash_of_what_came(fifo, tmp_path: Path) -> None:
    data = PROGRAM.read_bytes()
    run = flint_here("convert", fifo(data), "-o", tmp_path / "out", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    document = json.loads((tmp_path / "out" / "workload.json").read_text())
    assert document["input"]["sha256"] == hashlib.sha256(data).hexdigest()
    [module] = (tmp_path / "out" / "programs").glob("*.module")
    assert module.read_bytes() == data


def test_standard_input_is_a_file(tmp_path: Path) -> None:
    command = f"cat {PROGRAM} | {sys.executable} -m flint inspect /dev/stdin --json"
    path = os.pathsep.join(filter(None, sys.path))
    run = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert run.returncode == 0, run.stderr
    assert (
        json.loads(run.stdout)["input"]["sha256"]
        == hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
    )


def test_a_dash_is_no_file(tmp_path: Path) -> None:
    text = failed(flint_here("inspect", "-", cwd=tmp_path), 2)
    assert text == "flint: -: no such file or folder (/dev/stdin is standard input)"


def test_a_pipe_is_inspected(fifo, tmp_path: Path) -> None:
    run = flint_here("inspect", fifo(gzip.compress(PROGRAM.read_bytes())), cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_python_reads_a_pipe_once(fifo) -> None:
    workload = convert(fifo(PROGRAM.read_bytes()))
    assert workload.input["sha256"] == hashlib.sha256(PROGRAM.read_bytes()).hexdigest()


def test_an_empty_pipe_is_an_empty_file(fifo, tmp_path: Path) -> None:
    run = flint_here("convert", fifo(b""), "-o", tmp_path / "out", cwd=tmp_path)
    assert "this is an empty file" in failed(run, 1)
    assert not (tmp_path / "out").exists()


def test_a_profile_from_a_pipe_is_converted(fifo, tmp_path: Path) -> None:
    plain = flint_here("convert", TRACE, "-o", tmp_path / "plain", cwd=tmp_path)
    piped = flint_here("convert", fifo(TRACE.read_bytes()), "-o", tmp_path / "piped", cwd=tmp_path)
    assert piped.returncode == plain.returncode == 0, piped.stderr

    def traces(folder: str) -> list[bytes]:
        return [path.read_bytes() for path in sorted((tmp_path / folder / "et").glob("*.et"))]

    assert traces("piped") == traces("plain")


def test_python_converts_a_profile_from_a_pipe(fifo) -> None:
    plain, piped = convert_traces([TRACE]), convert_traces([fifo(TRACE.read_bytes())])
    assert piped.input["sha256"] == plain.input["sha256"]
    assert piped.input["file"] == "pipe_0"
    assert str(piped) == str(plain)


def test_a_profile_from_a_pipe_is_explained(fifo, tmp_path: Path) -> None:
    plain, piped = (
        flint_here("explain", path, "--json", cwd=tmp_path)
        for path in (TRACE, fifo(TRACE.read_bytes()))
    )
    assert plain.returncode == piped.returncode == 0, piped.stderr
    assert piped.stdout == plain.stdout.replace(str(TRACE), str(tmp_path / "pipe_0"))


@pytest.mark.parametrize("command", ["explain", "convert"])
def test_a_file_that_is_not_a_trace_is_not_explained(command: str, fifo, tmp_path: Path) -> None:
    pipe = fifo(b"nothing of the kind")
    into = ("-o", tmp_path / "out") if command == "convert" else ()
    text = failed(flint_here(command, pipe, *into, cwd=tmp_path), 1)
    assert text.startswith(f"flint: {pipe}: ")


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """The folder of a capture by hand."""
    hand_made.workload().save_programs(tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_trace_from_a_pipe_is_validated_and_called_by_its_name(
    packed, captured: Path, fifo, tmp_path: Path
) -> None:
    paths = hand_made.traces(tmp_path, extra=1)  # a product that was not captured, with its row
    pipes = [fifo(packed(path.read_bytes())) for path in paths]
    said = []
    for files in (paths, pipes):
        given = (word for file in files for word in ("--trace", file))
        run = flint_here("validate", captured, *given, "--json", cwd=tmp_path)
        assert run.returncode == 1, run.stderr
        said.append(run.stdout)
    plain, piped = said
    for path, pipe in zip(paths, pipes, strict=True):
        assert f"of {path}" in plain
        plain = plain.replace(str(path), str(pipe))
    assert piped == plain


def test_validate_reads_standard_input(captured: Path, tmp_path: Path) -> None:
    path = hand_made.traces(tmp_path)[0]
    command = f"cat {path} | {sys.executable} -m flint validate {captured} --trace /dev/stdin"
    run = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].endswith("1 of 4 ranks compared")


def test_what_is_not_a_trace_is_called_by_the_name_of_its_pipe(
    captured: Path, fifo, tmp_path: Path
) -> None:
    pipe = fifo(b"nothing of the kind")
    text = failed(flint_here("validate", captured, "--trace", pipe, cwd=tmp_path), 1)
    assert text.startswith(f"flint: {pipe}: not a trace of a known format")


def test_a_device_that_never_ends_is_not_a_trace(captured: Path, tmp_path: Path) -> None:
    text = failed(flint_here("validate", captured, "--trace", "/dev/zero", cwd=tmp_path), 1)
    assert text.startswith("flint: /dev/zero: not a trace")


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_a_pipe_that_never_ends_is_refused_at_the_limit(command: str, tmp_path: Path) -> None:
    into = ("-o", tmp_path / "out") if command == "convert" else ()
    run = flint_here(command, "/dev/zero", *into, "--memory-limit", "0.01", cwd=tmp_path)
    text = failed(run, 1)
    assert text.startswith("flint: /dev/zero: larger than 2,684,354 bytes")
    assert "raise --memory-limit" in text


COST = Path(__file__).parents[2] / "flint" / "cost"
FOLDER = Path(__file__).parent.parent / "data" / "folders" / "ring_attention"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("workload.json", "inspect"),
        ("programs/main.graph.npz", "simulate"),
        ("programs/main.mlirbc", "inspect"),
        ("et/trace.0.et", "check"),
    ],
)
def test_a_pipe_in_a_workload_folder_is_not_a_file(name: str, command: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "out")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    run = flint_here(command, folder, cwd=tmp_path)
    assert run.returncode == 1
    assert f"{name}: expected a file, found a pipe or device" in run.stderr + run.stdout


@pytest.mark.parametrize("name", ["rank0.json", "host.xplane.pb"])
@pytest.mark.parametrize("command", ["explain", "convert"])
def test_a_pipe_in_a_folder_of_traces_is_not_a_trace(
    name: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "profile").mkdir()
    os.mkfifo(tmp_path / "profile" / name)
    into = ("-o", tmp_path / "out") if command == "convert" else ()
    text = failed(flint_here(command, tmp_path / "profile", *into, cwd=tmp_path), 1)
    assert text.startswith("flint: ") and text.endswith(
        f"{name}: expected a file, found a pipe or device"
    )


def test_a_link_to_nothing_in_a_folder_of_traces_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "rank0.json").symlink_to("nowhere")
    text = failed(flint_here("explain", tmp_path / "profile", cwd=tmp_path), 1)
    assert text.endswith("rank0.json: cannot be read (No such file or directory)")


def test_a_system_from_a_pipe_is_read_once(fifo, tmp_path: Path) -> None:
    """A pipe gives its content once, and a command looks for it more than once."""
    text = whole_description("tpu-v4-pod")
    (tmp_path / "mine.toml").write_text(text)
    for command in (("systems", "--toml"), ("simulate", FOLDER, "--json", "--system")):
        plain, piped = (
            flint_here(*command, path, cwd=tmp_path) for path in ("mine.toml", fifo(text.encode()))
        )
        assert plain.returncode == piped.returncode == 0, piped.stderr
        assert piped.stdout == plain.stdout


@pytest.mark.parametrize("device", ["/dev/zero", "nobody_writes.toml"])
def test_a_device_or_pipe_that_a_system_names_is_not_an_accelerator(device, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nobody_writes.toml")
    ours = (COST / "systems/dgx-h100.toml").read_text()
    (tmp_path / "mine.toml").write_text(ours.replace('"h100-sxm"', f'"{device}"'))
    with pytest.raises(FlintError, match=f"accelerator '{device}'(:.* is not a file| is unknown)"):
        load_system(tmp_path / "mine.toml")
