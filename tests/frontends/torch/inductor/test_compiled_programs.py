"""Whole programs that compile their step."""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.support.command_line import flint_with_torch as flint

pytestmark = pytest.mark.thorough


def kernels(tmp_path, text, *command):
    """Names of the nodes of a program that is compiled as a whole."""
    (tmp_path / "train.py").write_text(text)
    out = tmp_path / "out"
    line = ("run", "--world", 2, "--level", "optimized", "--target", "h100", "-o", out, "--")
    done = flint(*line, *command, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "eager code" not in done.stderr
    [program] = load(out).programs
    return [node.op for node in program.graph]


ENDS_INSIDE = """
import torch
from torch import nn

model = nn.Sequential(nn.Conv1d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 30, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

@torch.compile
def step(x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

for _ in range(5):
    step(torch.randn(4, 8, 32, device="cuda"))
"""


def test_a_step_that_ends_within_compiled_code_is_captured(tmp_path):
    """Dynamo does not trace what then writes the capture."""
    found = kernels(tmp_path, ENDS_INSIDE, "python")
    assert sum("triton_for_fused" in name for name in found) == 1


READS_VARIABLE = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return checkpoint(self.once, x, use_reentrant=False)

    def once(self, x):
        y = nn.functional.gelu(self.layer(x))
        return y if os.environ.get("PLAIN") == "1" else y.exp()


dist.init_process_group("nccl")
model = DistributedDataParallel(torch.compile(Part().cuda()))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    model(torch.randn(32, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_checkpointed_part_that_reads_the_environment_is_compiled(tmp_path):
    """A run of the capture watches who asks for its rank, which Dynamo must not see."""
    found = kernels(tmp_path, READS_VARIABLE, "torchrun", "--nproc-per-node", 2)
    assert any("triton" in name and "gelu" in name for name in found)
    assert not any(name.startswith("aten.gelu") for name in found)
