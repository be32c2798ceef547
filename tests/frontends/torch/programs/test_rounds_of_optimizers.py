"""Rounds of two optimizers: the steps of one between those of another are one step."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.programs.comparing import captured

#: Of a row: forward, and of the weight's gradient.
ROW = 2 * 2 * 16 * 16


def test_a_round_with_a_loop_of_another_optimizer_is_one_step(tmp_path):
    """Three steps of a critic (16 x 16, 4 rows) and one of a generator (16 x 16, 8 rows)."""
    (tmp_path / "train.py").write_text("""
import torch
models = [torch.nn.Linear(16, 16, bias=False).cuda() for _ in range(2)]
critics, generators = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
def step(rounds):
    for _ in range(rounds):
        models[0](torch.ones(4, 16, device="cuda")).sum().backward()
        critics.step()
    models[1](torch.ones(8, 16, device="cuda")).sum().backward()
    generators.step()
def train():
    for _ in range(5):
        step(3)
train()
""")
    assert captured(tmp_path, 1, "train.py") == [{"collectives": {}, "flops": (3 * 4 + 8) * ROW}]


@pytest.mark.parametrize(("code", "rows"), [("outer.step()", 3 * 4 + 8), ("pass", 4)])
def test_steps_of_an_outer_optimizer_of_the_same_weights_end_rounds(tmp_path, code, rows):
    """Three inner steps (4 rows each) and an outer one (8 rows); without it, one inner step."""
    (tmp_path / "train.py").write_text(f"""
import torch
class Local:
    def __init__(self):
        self.model = torch.nn.Linear(16, 16, bias=False).cuda()
        inner = torch.optim.AdamW(self.model.parameters())
        outer = torch.optim.SGD(self.model.parameters(), lr=0.7)
        self.inner, self.outer = inner, outer
    def rows(self, count):
        self.model(torch.ones(count, 16, device="cuda")).sum().backward()
    def synchronize(self):
        outer = self.outer
        {"self.rows(8)" if code != "pass" else code}
        {code.replace("outer", "self.outer")}
    def round(self):
        for _ in range(3):
            self.rows(4)
            self.inner.step()
        self.synchronize()
def train(local):
    for _ in range(4):
        local.round()
train(Local())
""")
    assert captured(tmp_path, 1, "train.py") == [{"collectives": {}, "flops": rows * ROW}]
