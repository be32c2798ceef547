"""What programs read from ``nvidia-smi`` where there is none."""

from __future__ import annotations

import os
import subprocess

import pytest

from flint.launching import nvidia_smi
from flint.launching.notes import noted


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command as programs do, on a host of two GPUs of 80 GiB."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    nvidia_smi.provide(tmp_path / "bin", "H100-SXM", 80 << 30, (9, 0), 2)

    def printed(*words, **options):
        return subprocess.run(
            words[0] if options else ["nvidia-smi", *words],
            capture_output=True, text=True, check=True, **options,
        ).stdout.splitlines()  # fmt: skip

    yield printed
    noted.clear()


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"),
            ["81920, 0", "81920, 0"],
        ),
        (
            ("--query-gpu=index,name,ecc.mode.current", "--format=csv"),
            ["index, name, ecc.mode.current", "0, H100-SXM, [N/A]", "1, H100-SXM, [N/A]"],
        ),
        (("--query-gpu=compute_cap", "--format=csv,noheader", "-i", "1"), ["9.0"]),
        (("--id=0", "--query-gpu=memory.free", "--format=csv,noheader"), ["81920 MiB"]),
    ],
)
def test_a_query_is_answered_as_csv(run, words, lines):
    assert run(*words) == lines


def test_its_list_has_a_line_for_each_gpu(run):
    assert [line.partition(":")[0] for line in run("-L")] == ["GPU 0", "GPU 1"]


def test_a_shell_finds_it_and_its_use_is_noted_with_the_line(run):
    noted.clear()
    assert "H100-SXM" in "\n".join(run("nvidia-smi", shell=True))
    assert [text.partition(" at ")[0] for text in noted] == ["nvidia-smi is run"]


def test_a_real_one_stays(tmp_path, monkeypatch):
    real = tmp_path / "real"
    real.mkdir()
    (real / "nvidia-smi").write_text("#!/bin/sh\necho real\n")
    (real / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(real), "/usr/bin", "/bin")))
    nvidia_smi.provide(tmp_path / "bin", "H100-SXM", 80 << 30, (9, 0), 2)
    assert subprocess.check_output(["nvidia-smi"], text=True) == "real\n"
