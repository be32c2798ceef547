"""Small things that a hostile or damaged input, or a full machine, made an internal error of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.host import module_process, temporary
from flint.host.module_process import ModuleProcess
from flint.sweeps.running import FIGURES, _stored
from tests.support.children import HUNG
from tests.support.command_line import failed, flint_here

DATA = Path(__file__).parents[1] / "data"
MODULE = DATA / "stablehlo/pipeline_ppermute_8x8.mlirbc"
TRACES = DATA / "folders/ring_attention"


@pytest.mark.parametrize("text", ["²", "９", "1" * 5000, "-1", "1e3", ""])
def test_a_lookahead_that_is_not_a_number_is_a_usage_error(text, tmp_path):
    run = flint_here("convert", MODULE, "--loop-lookahead", text, "-o", "out", cwd=tmp_path)
    assert "--loop-lookahead" in failed(run, 2)


PERMUTE = """module @m {
 func.func public @main(%%x: tensor<4xf32>) -> tensor<4xf32> {
  %%y = "stablehlo.collective_permute"(%%x) {source_target_pairs = dense<[[0, %d]]> :
    tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %%y : tensor<4xf32>
 }
}"""


@pytest.mark.parametrize("target", [10**12, 2**63 - 1])
def test_a_permute_to_a_huge_id_is_one_line(target, tmp_path):
    """No table of so many devices is made, be it that the module does not say how many it has."""
    (tmp_path / "p.mlir").write_text(PERMUTE % target)
    failed(flint_here("convert", "p.mlir", "-o", "out", cwd=tmp_path), 1)
    failed(flint_here("convert", "p.mlir", "--mesh", "8", "-o", "out", cwd=tmp_path), 1)


@pytest.mark.parametrize("extent", [1, 2])
def test_a_network_of_100_000_dims_is_one_short_line(extent, tmp_path):
    (tmp_path / "et").symlink_to(TRACES / "et")
    (tmp_path / "network.yml").write_text(json.dumps({"npus_count": [extent] * 100_000}))
    line = failed(flint_here("check", tmp_path, cwd=tmp_path), 1)
    assert "100,000 dims" in line and len(line) < 300
    dims = ",".join([str(extent)] * 100_000)
    line = failed(flint_here("check", tmp_path, "--npus-count", dims, cwd=tmp_path), 2)
    assert len(line) < 300


def test_a_network_of_too_many_ranks_is_one_line(tmp_path):
    (tmp_path / "et").symlink_to(TRACES / "et")
    (tmp_path / "network.yml").write_text(json.dumps({"npus_count": [2] * 64}))
    assert "ranks" in failed(flint_here("check", tmp_path, cwd=tmp_path), 1)


@pytest.mark.parametrize("text", ["{} = 1", "[{}]", "x = {{ {} = 1 }}"])
def test_a_dotted_key_of_200_kb_is_one_line(text, tmp_path):
    """tomllib takes time and memory with the square of its parts."""
    (tmp_path / "s.toml").write_text(text.format(".".join(["a"] * 100_000)))
    with pytest.raises(FlintError, match="dots"):
        load_system(tmp_path / "s.toml")


def test_a_full_disk_for_temporary_files_is_not_the_partitioners_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    process = object.__new__(ModuleProcess)
    process.folder = tmp_path
    monkeypatch.setattr(temporary, "_ROOM", 2**63)
    line = str(module_process.ModuleProcess.failure(process))
    assert line.startswith(f"{tmp_path}: temporary files cannot be written there (the disk is full")


def test_a_place_for_temporary_files_that_is_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FlintError, match="temporary files cannot be written there"):
        temporary.make_temporary_folder()


def test_a_current_folder_that_is_gone_is_named(tmp_path):
    """It was: "standard output: No such file or directory"."""
    script = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        f"from flint.cli import main; main(['convert', {str(MODULE)!r}, '-o', 'out'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, timeout=HUNG,
    )  # fmt: skip
    line = failed(run, 1)
    assert "current folder has been removed" in line


def test_results_of_a_sweep_that_were_edited_are_simulated_again(tmp_path):
    path = tmp_path / "point.json"
    good = dict.fromkeys(FIGURES, 1.0) | {"fits": True, "mfu": None, "notes": []}
    for change, taken in (
        ({}, True),
        ({"step_seconds": -1.0}, False),
        ({"step_seconds": None}, False),
        ({"peak_memory_bytes": "many"}, False),
        ({"flops": float("inf")}, False),
    ):
        path.write_text(json.dumps(good | change))
        assert (_stored(path) is not None) == taken, change
    del good["idle_seconds"]
    path.write_text(json.dumps(good))
    assert _stored(path) is None


def test_a_pipe_or_device_in_the_place_of_a_result_is_none(tmp_path):
    """A sweep that was continued waited for the pipe forever."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zeros.json").symlink_to("/dev/zero")
    assert _stored(tmp_path / "pipe.json") is None
    assert _stored(tmp_path / "zeros.json") is None


def test_what_a_simulation_says_is_taken_by_a_sweep(tmp_path):
    done = flint_here("simulate", TRACES, "--json", cwd=tmp_path)
    (tmp_path / "point.json").write_text(done.stdout)
    assert _stored(tmp_path / "point.json") is not None
