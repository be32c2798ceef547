"""Child process: a step on gloo ranks, one process each, under PyTorch's profilers.

    python torch_profiling.py FOLDER MODULE:ATTRIBUTE

Leaves FOLDER/kineto_rank<r>.json and FOLDER/et_rank<r>.json of two steps, after two of warming up:
DDP makes its buckets anew after the first.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule


def run(rank, folder, module, attribute):
    captured = getattr(importlib.import_module(module), attribute)
    shape, axes, setup = captured._flint[:3]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=math.prod(shape)
    )
    mesh = init_device_mesh("cpu", tuple(shape), mesh_dim_names=tuple(axes))
    arguments = setup(mesh)

    def step():
        captured.__wrapped__(*arguments)

    for _ in range(2):
        step()
    observer = ExecutionTraceObserver().register_callback(f"{folder}/et_rank{rank}.json")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2),
        record_shapes=True,
        execution_trace_observer=observer,
        on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/kineto_rank{rank}.json"),
    ) as profiler:
        for _ in range(3):
            step()
            profiler.step()
    dist.barrier()
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()


def main(folder, place):
    module, _, attribute = place.partition(":")
    captured = getattr(importlib.import_module(module), attribute)
    world = math.prod(captured._flint[0])
    mp.spawn(run, args=(str(Path(folder).absolute()), module, attribute), nprocs=world)


if __name__ == "__main__":
    main(*sys.argv[1:])
