"""Does a captured PyTorch step run as it was captured?  A test with four real processes.

The same function and the same setup are captured (no process group, no devices).  They are then run
by four gloo processes under PyTorch's profiler, on the CPU:

    python examples/validate_torch_step.py

On GPUs, keep ``train`` and your own launcher, use nccl and cuda in ``run``, keep the traces, and
compare with ``flint validate out/ --trace kineto_rank0.json ...``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import profile, schedule

import flint
from flint.validation.validating import validate

WIDTH, LAYERS, RANKS = 64, 3, 4


def build(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer and a rank's batch on a mesh: a captured one or a real one."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=mesh.device_type)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.01)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    return model, optimizer, torch.randn(8, WIDTH, device=mesh.device_type)


@flint.capture(mesh=(RANKS,), axes=("dp",), setup=build, framework="torch")
def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """One training step."""
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def run(rank: int, folder: str) -> None:
    """Run one rank and write a Kineto trace of two steps, after two steps of warm-up."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    arguments = build(init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",)))
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2),
        record_shapes=True,  # sizes of products; without them only names can be compared
        on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/kineto_rank{rank}.json"),
    ) as profiler:
        for _ in range(4):
            train(*arguments)
            profiler.step()
    dist.destroy_process_group()


def main() -> int:
    """Capture, run, compare; 1 if they differ."""
    workload = train.capture()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(folder,), nprocs=RANKS)
        report = validate(workload, sorted(Path(folder).glob("kineto_rank*.json")))
    for kind, count in report.classes.items():
        print(
            f"{kind:15} captured {count.captured:5}   executed {count.executed:5}   "
            f"matched {count.matched:5}   explained {count.explained:5}"
        )
    for reason, ops in report.explained.items():
        print(f"{ops:5}  {reason}")
    print(f"{report.edges - report.contradicted} of {report.edges} dependencies ran in order")
    print(report.verdict)
    return int(not report.ok)


if __name__ == "__main__":
    sys.exit(main())
