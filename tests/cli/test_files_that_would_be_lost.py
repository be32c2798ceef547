"""A result is never written over what the command reads, nor over another result."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flint.cli import main

MODULE = Path(__file__).parents[1] / "data/stablehlo/pipeline_ppermute_8x8.mlirbc"


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return left.value.code


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("place")
    shutil.copy(MODULE, path / "step.mlirbc")
    os.symlink("step.mlirbc", path / "link")
    assert run("convert", str(path / "step.mlirbc"), "--ranks", "0", "-o", str(path / "out")) == 0
    return path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("inspect step.mlirbc --dot ./step.mlirbc", "--dot step.mlirbc: the command reads this"),
        ("inspect step.mlirbc --graphml link", "--graphml link: the command reads this file"),
        ("inspect link --dot step.mlirbc", "--dot step.mlirbc: the command reads this file"),
        ("inspect step.mlirbc --dot x --graphml y/../x", "--dot and --graphml name the same file"),
        ("simulate out --html out/workload.json", "the command reads this file"),
        ("explain out --html out/programs/main.graph.npz", "the command reads this file"),
        ("explain out --other out --html out/et/trace.0.et", "the command reads this file"),
        ("calibrate step.mlirbc --accelerator a100 -o link", "--output link: the command reads"),
    ],
)
def test_a_result_in_place_of_an_input_is_refused(place, capsys, monkeypatch, command, message):
    monkeypatch.chdir(place)
    (place / "y").mkdir(exist_ok=True)
    assert run(*command.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert (place / "step.mlirbc").read_bytes() == MODULE.read_bytes()
    assert run("check", "out") == 0  # its checksums are those of what was written


def test_a_folder_may_hold_reports_of_its_own(place, capsys):
    for _ in range(2):
        assert run("inspect", str(place / "out"), "--dot", str(place / "out" / "step.dot")) == 0
    assert (place / "out" / "step.dot").read_text().startswith("digraph")
