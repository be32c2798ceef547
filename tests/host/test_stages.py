"""Progress messages of a capture on a terminal, and none on a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from flint.host.stages import heard_by, stage
from tests.support.shared import quick

STEP = """
import torch
def setup(mesh):
    return (torch.zeros(8, 8, device=mesh.device_type),)
def step(x):
    return (x @ x).sum()
"""


def test_a_stage_is_heard_in_the_block_only() -> None:
    heard: list[str] = []
    stage("before")
    with heard_by(heard.append):
        stage("one")
        with heard_by(None):
            stage("inside")
        stage("two")
    stage("after")
    assert heard == ["one", "two"]


@pytest.mark.parametrize("terminal", quick([True, False], True))
def test_a_capture_shows_what_it_does_on_a_terminal_alone(terminal: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(STEP)
    ours, theirs = pty.openpty() if terminal else os.pipe()  # to read, to write
    command = [
        sys.executable, "-m", "flint", "capture", "train.py:step", "--mesh", "2", "--setup",
        "setup", "-o", "out",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        said = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # how a terminal ends
                break
            if not data:
                break
            said += data
        assert run.wait() == 0, said
    os.close(ours)
    stages = [part in said for part in (b"capturing step for 2 devices", b"recording 2 ranks")]
    assert stages == [terminal, terminal]
    assert (b"\x1b[K" in said) == terminal
