"""DDP of parameters that a step does not use, whose gradients are views of buckets."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from flint.workload.loading import load
from tests.support.command_line import flint_with_torch as flint

PROGRAM = """
import os, torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

class Partly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Linear(20, 12), torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.used(x)

model = torch.nn.parallel.DistributedDataParallel(
    Partly().cuda(), find_unused_parameters=True, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad(set_to_none=KEEPS)
    model(torch.randn(4, 20, device="cuda")).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_the_map_of_used_parameters_is_copied_to_the_hosts_own_memory(tmp_path, keeps):
    """Two all-reduces, as PyTorch's reducer makes: the gradients, (20 + 1) * 12 + (3 + 1) * 3
    floats in one bucket, and a flag of 4 bytes for each of four parameters.
    """
    (tmp_path / "train.py").write_text(PROGRAM.replace("KEEPS", str(keeps)))
    done = flint(
        "run", "--world", 2, "-o", "out", "--", "torchrun", "--nproc-per-node", 2, "train.py",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [program] = load(tmp_path / "out").programs
    sent = [node.communication for node in program.graph if node.communication is not None]
    assert [(one.kind, one.bytes_in) for one in sent] == [
        ("all_reduce", 4 * (21 * 12 + 4 * 3)),
        ("all_reduce", 4 * 4),
    ]
