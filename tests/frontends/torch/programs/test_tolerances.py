"""Trainings that end by a tolerance, against their real runs on gloo processes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.programs.comparing import captured, real
from tests.programs.packages import HERE
from tests.support.command_line import flint_with_torch as flint
from tests.support.shared import quick

PROGRAM = "tolerances.py"
WAYS = (
    "difference", "broken", "on_device", "until_close", "patience", "accuracy", "large", "by_hand",
)  # fmt: skip


@pytest.mark.parametrize("way", quick(WAYS))
def test_a_training_until_a_tolerance_is_captured_as_it_runs(tmp_path, way):
    command = str(HERE / PROGRAM), way
    found = captured(tmp_path, 2, "torchrun", "--nproc-per-node=2", *command)
    rounds = ("--rounds-of", "round_by_hand") if way == "by_hand" else ()
    assert found == real(tmp_path, 2, *rounds, *command)


UNDECIDED = """
import torch
layer = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(10):
    loss = layer(torch.ones(2, 4, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    if loss.item() < 1e6:
        break
with torch.no_grad():
    for _ in range(4):
        layer(torch.ones(2, 4, device="cuda"))
"""


@pytest.mark.thorough
def test_a_training_that_ends_whatever_its_values_is_one_line_that_names_what_it_read(tmp_path):
    (tmp_path / "train.py").write_text(UNDECIDED)
    out = tmp_path / "out"
    done = flint("run", "--world", 1, "-o", out, "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert "steps seen: " in said and "optimizer at train.py:8 (begun, not ended)" in said
    assert "may have ended it: a float tensor's value is read at train.py:9" in said
    assert not out.exists()
