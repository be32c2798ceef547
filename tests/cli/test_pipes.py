"""Pipes and FIFOs as input: read once, recorded as what came."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flint.capturing.saved_files import convert
from tests.support.command_line import failed, flint_here

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


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_a_pipe_that_never_ends_is_refused_at_the_limit(command: str, tmp_path: Path) -> None:
    into = ("-o", tmp_path / "out") if command == "convert" else ()
    run = flint_here(command, "/dev/zero", *into, "--memory-limit", "0.01", cwd=tmp_path)
    text = failed(run, 1)
    assert text.startswith("flint: /dev/zero: larger than 2,684,354 bytes")
    assert "raise --memory-limit" in text
