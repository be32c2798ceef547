"""Child process: a step on gloo ranks, one process each, under PyTorch's profilers.

    python torch_profiling.py FOLDER MODULE:NAME

NAME is a step, or one in the module's table ``STEPS``; those that the module lists in ``ATTENTION``
run with a GPU's attention kernels, computed by the CPU's.

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

from tests.frontends.torch.real.kernels import accelerator_kernels


def step_of(place):
    """The step of MODULE:NAME, and which of a GPU's kernels its real run needs."""
    name, _, attribute = place.partition(":")
    module = importlib.import_module(name)
    step = getattr(module, "STEPS", {}).get(attribute) or getattr(module, attribute)
    return step, ("attention",) if attribute in getattr(module, "ATTENTION", ()) else ()


def run(rank, folder, place, observed):
    captured, kernels = step_of(place)
    shape, axes, setup = captured._flint[:3]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=math.prod(shape)
    )
    mesh = init_device_mesh("cpu", tuple(shape), mesh_dim_names=tuple(axes))
    with accelerator_kernels(kernels):
        arguments = setup(mesh)
        observed(lambda: captured.__wrapped__(*arguments), rank, folder)
    dist.barrier()
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()


def observed(step, rank, folder):
    """Run a step five times, and leave what the profilers say of the last two."""
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


def main(folder, place, watch=observed):
    world = math.prod(step_of(place)[0]._flint[0])
    # Forked: a rank that imports PyTorch for itself costs more than the step.
    arguments = str(Path(folder).absolute()), place, watch
    mp.start_processes(run, args=arguments, nprocs=world, start_method="fork")


if __name__ == "__main__":
    main(*sys.argv[1:])
