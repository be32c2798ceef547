"""Programs that catch what ends their training, and go on to their end."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.support.command_line import flint_with_torch as flint

#: Its inference must not pass for its step.
CATCHES = """
import torch
layer = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for features in (4, 4, 4, 5):
    try:
        with torch.set_grad_enabled(features == 5):
            loss = layer(torch.ones(2, features, device="cuda")).sum()
    except RuntimeError as error:
        print("logged", error)
"""


def test_an_error_that_the_program_catches_is_why_it_has_no_step(tmp_path):
    (tmp_path / "train.py").write_text(CATCHES)
    done = flint("run", "--world", "2", "-o", "out", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert done.stderr.startswith("flint: train.py:8: the program failed: RuntimeError: ")
