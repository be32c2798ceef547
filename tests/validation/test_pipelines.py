"""Pipelines of two gloo processes, profiled plainly: captures and conversions of them.

The idea: stages are written as users write them, profiled with nothing but ``record_shapes``.  Each
micro-batch has 2 of 8 rows of 6 words, which are 40 numbers of four bytes between two stages: 1,920
bytes.  Every boundary of two stages has a message for each of 4 micro-batches, there and back.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.profiler import profile, schedule

import flint
from flint.post_execution.converting import convert_traces
from flint.validation.validating import validate

pytestmark = pytest.mark.thorough

ROWS, LENGTH, WORDS, NARROW, WIDE, PARTS = 8, 6, 50, 24, 40, 4
MESSAGE = ROWS // PARTS * LENGTH * WIDE * 4
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.up = nn.Embedding(WORDS, NARROW), nn.Linear(NARROW, WIDE)

    def forward(self, x):
        return torch.relu(self.up(self.words(x)))


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, x):
        return x + torch.tanh(self.mix(self.norm(x)))


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDE), nn.Linear(WIDE, WORDS)

    def forward(self, x):
        return self.out(self.norm(x))


def loss(found, wanted):
    return nn.functional.cross_entropy(found.flatten(0, 1), wanted.flatten())


def build(name, mesh):
    """The schedule, optimizer and batch of a rank; interleaved, each has every second stage."""
    rank, device = mesh.get_local_rank(), torch.device(mesh.device_type)
    torch.manual_seed(0)
    models = [First(), Middle(), Middle(), Last()] if name == "interleaved" else [First(), Last()]
    stages = [
        PipelineStage(model.to(device), number, len(models), device, group=mesh.get_group())
        for number, model in enumerate(models)
        if number % 2 == rank
    ]
    pipe = SCHEDULES[name](stages if len(stages) > 1 else stages[0], PARTS, loss_fn=loss)
    mine = [weight for model in models[rank::2] for weight in model.parameters()]
    optimizer = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
    words = torch.zeros(ROWS, LENGTH, dtype=torch.int64, device=device)
    return pipe, optimizer, words, words.clone(), rank


def train(pipe, optimizer, words, wanted, rank):
    if rank == 0:
        pipe.step(words)
    else:
        pipe.step(target=wanted)
    optimizer.step()
    optimizer.zero_grad()


def run(rank, name, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    arguments = build(name, init_device_mesh("cpu", (2,), mesh_dim_names=("pp",)))
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2),
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/rank{rank}.json"),
    ) as profiler:
        for _ in range(4):
            train(*arguments)
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize(("name", "boundaries"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3)])
def test_a_pipeline_runs_as_it_is_captured_and_its_messages_are_converted(
    tmp_path, name, boundaries
):
    mp.start_processes(run, args=(name, str(tmp_path)), nprocs=2, start_method="fork")
    traces = [tmp_path / f"rank{rank}.json" for rank in (0, 1)]
    setup = partial(build, name)
    step = flint.capture(mesh=(2,), axes=("pp",), setup=setup, framework="torch")(train)
    report = validate(step.capture(), traces)
    assert report.ok and report.ranks == [0, 1] and not report.unrecorded
    for program in convert_traces(traces).programs:
        graph = program.graph
        items = [node.communication for node in graph if node.communication is not None]
        messages = [(item.kind, *item.operand_bytes, *item.result_bytes) for item in items]
        sent, got = (messages.count((kind, MESSAGE)) for kind in ("send", "recv"))
        assert sent + got == len(messages) == 2 * PARTS * boundaries
        assert sent == got == PARTS * boundaries
