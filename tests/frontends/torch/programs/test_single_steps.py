"""Programs that train a single step."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.programs.comparing import captured

#: A single training step, as in many introductions; a batch of 2 x 4, 4 -> 8 -> 4 features.
ONCE = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).cuda()
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.no_grad():
    layers(torch.ones(16, 4, device="cuda"))
loss = model(torch.ones(2, 4, device="cuda")).pow(2).mean()
loss.backward()
optimizer.step()
dist.destroy_process_group()
"""


def test_a_program_of_a_single_step_is_captured_from_its_forward_pass_to_its_update(tmp_path):
    """Products: two forward, and backward two for the weights and one for the hidden layer's input,
    each of 2 * 2 * 4 * 8 FLOPs.  All gradients, (4 * 8 + 8 + 8 * 4 + 4) floats, are summed once."""
    (tmp_path / "train.py").write_text(ONCE)
    flops, size = 5 * 2 * 2 * 4 * 8, 4 * (4 * 8 + 8 + 8 * 4 + 4)
    of_each = {"collectives": {"over 0, 1": [["all_reduce", size]]}, "flops": flops}
    assert captured(tmp_path, 2, "train.py") == [of_each] * 2
