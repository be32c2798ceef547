"""Compiled models under DDP, whose graphs Dynamo divides by DDP's buckets."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from math import prod
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.frontends.torch.in_child import record_in_child

WIDTH, LAYERS, RANKS = 256, 3, 2
#: A layer of 256 x 1,024 and 1,024 x 256 is 2.1 MB of float32.
BUCKET_MB = 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def compiled_inside(model, backend):
    return DistributedDataParallel(torch.compile(model, backend=backend), bucket_cap_mb=BUCKET_MB)


def compiled_outside(model, backend):
    return torch.compile(DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB), backend=backend)


def parts(wrap, device, backend="inductor"):
    model = wrap(nn.Sequential(*(Layer() for _ in range(LAYERS))).to(device), backend)
    return model, torch.optim.AdamW(model.parameters()), torch.randn(8, WIDTH, device=device)


def step(model, optimizer, x):
    mixed = torch.autocast("cuda", torch.bfloat16) if x.device.type != "cpu" else nullcontext()
    with mixed:
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def inside(mesh):
    return parts(compiled_inside, "cuda")


def outside(mesh):
    return parts(compiled_outside, "cuda")


def recorded(setup):
    return record_in_child(step, setup, (RANKS,), ("dp",), compile_for="h100-sxm")


def reduced(recording):
    """Elements of each all-reduce, in their order."""
    found = [op for op in recording.ops if op.group >= 0]
    assert all("allreduce" in op.name or "all_reduce" in op.name for op in found)
    return [sum(prod(view.shape) for view in op.writes) for op in found]


@pytest.mark.thorough
def test_a_model_under_ddp_and_autocast_is_compiled():
    found = recorded(inside)
    assert not found.warnings
    assert sum(op.name.startswith("inductor_kernel.triton") for op in found.ops) >= 2 * LAYERS
    assert not any("gelu" in op.name for op in found.ops if op.name.startswith("aten."))


RUN = """
import json, sys
import torch.distributed as dist
from torch.profiler import profile
from tests.frontends.torch.inductor import test_compiled_ddp as test

rank, meeting, wrap = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=test.RANKS)
given = test.parts(getattr(test, wrap), "cpu", "aot_eager")
for _ in range(3):
    test.step(*given)
with profile(record_shapes=True) as profiled:
    test.step(*given)
events = sorted(profiled.events(), key=lambda event: event.time_range.start)
print(json.dumps([event.input_shapes for event in events if event.name == "gloo:all_reduce"]))
dist.destroy_process_group()
"""


def ran(wrap, meeting):
    """Elements of each all-reduce of a real step."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(rank), str(meeting), wrap], text=True,
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[4],
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    said = [run.communicate()[0] for run in runs]
    return [shape[0] for [shape] in json.loads(said[0].splitlines()[-1])]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("setup", "wrap"), [(inside, "compiled_inside"), (outside, "compiled_outside")]
)
def test_its_gradients_are_reduced_in_the_buckets_of_a_real_run(setup, wrap, tmp_path):
    """Both divide their graph by DDP's buckets, whatever compiles the parts."""
    found = recorded(setup)
    assert not found.warnings
    assert reduced(found) == ran(wrap, tmp_path / "meeting")
