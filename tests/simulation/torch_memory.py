"""Additional bytes that eager PyTorch steps need: the allocator's account, and ours.

Run as a program; prints one JSON list per case: of one device, and of FSDP2 on two ranks of gloo.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import flint
from flint.simulation.caching_allocator import usage

WIDTH, TOKENS, VOCABULARY, BLOCKS = 128, 256, 512, 3


class Block(nn.Module):
    """A feed-forward network beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.up(x)))


class Net(nn.Module):
    """A language model without attention; its kernels are the same on every device."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


OPTIMIZERS = {
    "AdamW foreach": functools.partial(torch.optim.AdamW, foreach=True),
    "AdamW loop": functools.partial(torch.optim.AdamW, foreach=False),
}


def build(optimizer, again, mesh=None):
    """Arguments of ``step``, on the mesh's device or the CPU; over more than one rank, sharded."""
    device = mesh.device_type if mesh is not None else "cpu"
    net = Net(again).to(device)
    if mesh is not None and mesh.size() > 1:
        options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
        for block in net.blocks:
            fully_shard(block, **options)
        fully_shard(net, **options)
    tokens = torch.randint(0, VOCABULARY, (2, TOKENS), device=device)
    return net, OPTIMIZERS[optimizer](net.parameters()), tokens


def step(net, optimizer, tokens):
    """One training step."""
    loss = F.cross_entropy(net(tokens[0]).float(), tokens[1])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def allocated(optimizer, again, mesh=None):
    """The most that the CPU's allocator had given out beyond what there was before a step."""
    arguments = build(optimizer, again, mesh)
    step(*arguments)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step(*arguments)
    events = seen.profiler.kineto_results.events()
    found = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    now = most = 0
    for event in found:
        now += event.nbytes()
        most = max(most, now)
    return most


def recorded(optimizer, again, ranks):
    """The same of the recording."""
    setup = functools.partial(build, optimizer, again)
    captured = flint.capture(step, mesh=(ranks,), axes=("dp",), setup=setup, framework="torch")
    program = captured.capture().programs[0]
    rows = program.allocations
    before = int(rows.size[(rows.born < 0) & (rows.pool >= 0)].sum())
    return usage(rows).allocated - before


def sharded(optimizer, again):
    """On the first of two ranks of gloo's: what the allocator gave out."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (Path(folder), optimizer, again), nprocs=2)
        return json.loads((Path(folder) / "0").read_text())


def _rank(rank, folder, optimizer, again):
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    # A thread of gloo's may hold what was gathered for a moment longer than FSDP does.
    found = min(allocated(optimizer, again, mesh) for _ in range(3))
    (folder / str(rank)).write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    """Print both accounts of every case."""
    for optimizer in OPTIMIZERS:
        for again in (False, True):
            found = allocated(optimizer, again)
            print(json.dumps([optimizer, again, found, recorded(optimizer, again, 1)]))
    for again in (False, True):
        name = "AdamW foreach"
        found = sharded(name, again)
        print(json.dumps([f"FSDP2, {name}", again, found, recorded(name, again, 2)]))


if __name__ == "__main__":
    main()
