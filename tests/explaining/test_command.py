"""``flint explain``, as a user runs it."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from tests.support.command_line import failed, flint_here

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
NCCL = PROFILES / "nccl_before_2.2_rank0.json.gz"


@pytest.fixture
def folder(loop, tmp_path):
    out = tmp_path / "out"
    loop.save(out, system="dgx-h100")
    return out


def test_a_profile_is_explained_on_the_terminal_in_json_and_on_a_page(tmp_path):
    run = flint_here("explain", NCCL, "--html", "why.html", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    for words in ("critical path", "causes", "--host none", "as in HolisticTraceAnalysis"):
        assert words in run.stdout
    page = (tmp_path / "why.html").read_text()
    assert "aten::mm" in page
    assert "Content-Security-Policy" in page
    run = flint_here("explain", NCCL, "--json", cwd=tmp_path)
    document = json.loads(run.stdout)
    assert document["step_seconds"] == pytest.approx(615.601e-3)
    assert sum(part["share"] for part in document["path"]) == pytest.approx(1)
    assert document["waits"] is None


def test_a_capture_is_explained_with_its_lines(folder, tmp_path):
    other = tmp_path / "other"
    folder.rename(other)
    run = flint_here("explain", other, "--other", other, "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    [same] = [item for item in document["remedies"] if item["how"] == str(other)]
    assert same["gain_seconds"] == 0
    assert not document["traces"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("out", "out"), "give no other input with it"),
        (("out", "--step", "4"), "--step is for profiles"),
        (("out", "--host", "measured"), "this workload has no measured times"),
        (("nothing",), "no such file or folder"),
        (("hand.mlir",), "it is MLIR text; `flint convert` makes a workload folder of it"),
        (("t.json.xz",), "it is compressed data (xz, zstd, bzip2 or 7z); decompress it first"),
        (
            ("empty",),
            "neither a workload folder (it has no workload.json) nor a folder of profiles",
        ),
    ],
)
def test_what_cannot_be_explained_is_one_clear_line(folder, loop_file, tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.json.xz").write_bytes(lzma.compress(b'{"traceEvents": []}'))
    line = failed(flint_here("explain", *arguments, cwd=tmp_path), 2)
    assert words in line
