"""Training steps on two ranks, each written for its test alone, by name in ``STEPS``."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import flint

RANKS = 2


class UNet(nn.Module):
    """Down and up again, with what was there before beside it."""

    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.last = nn.Conv2d(2 * width, 3, 1)

    def forward(self, x):
        kept = F.silu(self.first(x))
        deep = F.relu(self.norm(self.down(kept)))
        return self.last(torch.cat([kept, self.up(deep)], 1))


class Depthwise(nn.Module):
    """A convolution per channel and one over channels, a mean over the picture, classes."""

    def __init__(self, width=12, classes=10):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2),
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.Hardswish(),
            nn.Conv2d(width, 2 * width, 1),
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Tagger(nn.Module):
    """Embedded words through a recurrent layer in both directions."""

    def __init__(self, words=50, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, 5)

    def forward(self, x):
        return self.tags(self.layer(self.words(x))[0])


class Summary(nn.Module):
    """The last state of a plain recurrent layer, of batches that come first."""

    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.RNN(8, 20, batch_first=True), nn.Linear(20, 3)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


class Block(nn.Module):
    """Attention and a perceptron with norms in front, as vision transformers have them."""

    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        mixed = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)))
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class Patches(nn.Module):
    """Pictures as words of a transformer."""

    def __init__(self, width=16, depth=2, classes=10):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Gated(nn.Module):
    """A perceptron with a gate."""

    def __init__(self, width=16):
        super().__init__()
        self.gate, self.wide = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.narrow(torch.sigmoid(self.gate(x)) * self.wide(x))


class Experts(nn.Module):
    """An expert per rank: everybody's words go there and come back."""

    def __init__(self, mesh, width=16):
        super().__init__()
        self.group = mesh.get_group()
        self.expert, self.head = Gated(width), nn.Linear(width, width)

    def forward(self, x):
        share = [len(x) // RANKS] * RANKS
        sent = all_to_all_single_autograd(x, share, share, self.group)
        back = all_to_all_single_autograd(self.expert(sent), share, share, self.group)
        return self.head(back + x)


def train(model, optimizer, x, *wanted):
    found = model(x)
    loss = F.cross_entropy(found, *wanted) if wanted else found.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _step(build, function=train):
    def setup(mesh):
        with torch.device(mesh.device_type):
            return build(mesh)

    return flint.capture(function, mesh=(RANKS,), axes=("ranks",), setup=setup, framework="torch")


def _replicated(make, optimizer, *inputs):
    def build(_):
        model = DistributedDataParallel(make())
        return model, optimizer(model.parameters()), *(new() for new in inputs)

    return _step(build)


def _sharded(mesh):
    model = Patches()
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
    return model, optimizer, torch.ones(2, 3, 16, 16)


def _split(mesh):
    model = nn.Sequential(nn.Linear(8, 16), Gated(), Gated(), nn.Linear(16, 4))
    plan = {"gate": ColwiseParallel(), "wide": ColwiseParallel(), "narrow": RowwiseParallel()}
    for place in (1, 2):
        parallelize_module(model[place], mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    return model, optimizer, torch.ones(6, 8)


def _experts(mesh):
    model = Experts(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    return model, optimizer, torch.ones(8, 16)


def _stages(mesh):
    rank = mesh.get_local_rank()
    part = nn.Sequential(nn.Linear(8, 24), nn.Tanh()) if rank == 0 else nn.Linear(24, 6)
    stage = PipelineStage(part, rank, RANKS, torch.device(mesh.device_type), group=mesh.get_group())
    schedule = ScheduleGPipe(stage, 3, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1, foreach=True)
    return schedule, rank, optimizer, torch.ones(6, 8), torch.ones(6, 6)


def piped(schedule, rank, optimizer, x, wanted):
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=wanted)
    optimizer.step()
    optimizer.zero_grad()


def averaged(model, optimizer, x):
    """Gradients summed by hand, once all are there."""
    model(x).square().mean().backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    optimizer.step()
    optimizer.zero_grad()


def _by_hand(_):
    model = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 8))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=True), torch.ones(4, 8)


def _turned(mesh):
    parts = [distribute_tensor(torch.ones(8, 8), mesh, [part]) for part in (Shard(0), Replicate())]
    first, second = (nn.Parameter(part) for part in parts)
    optimizer = torch.optim.SGD([first, second], lr=0.1, foreach=True)
    return first, second, optimizer, distribute_tensor(torch.ones(6, 8), mesh, [Shard(0)])


def turned(first, second, optimizer, x):
    """Rows are softened, and then columns: each rank first has the ones, then the others."""
    mesh = x.device_mesh
    found = (x @ first).redistribute(mesh, [Shard(1)]).softmax(0)
    (found.redistribute(mesh, [Shard(0)]).softmax(1) @ second).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


_sgd = functools.partial(torch.optim.SGD, lr=0.1, foreach=True)
_adam = functools.partial(torch.optim.Adam, lr=0.1, foreach=True)

STEPS = {
    "by_hand": _step(_by_hand, averaged),
    "ddp_unet": _replicated(UNet, _adam, lambda: torch.ones(2, 3, 16, 16)),
    "ddp_depthwise": _replicated(
        Depthwise, _sgd, lambda: torch.ones(4, 3, 16, 16), lambda: torch.zeros(4, dtype=torch.long)
    ),
    "ddp_rnn": _replicated(
        Summary, _sgd, lambda: torch.ones(3, 5, 8), lambda: torch.zeros(3, dtype=torch.long)
    ),
    "ddp_gru": _replicated(Tagger, _adam, lambda: torch.ones(4, 7, dtype=torch.long)),
    "fsdp_patches": _step(_sharded),
    "tp_gated": _step(_split),
    "moe_all_to_all": _step(_experts),
    "pp_gpipe": _step(_stages, piped),
    "dtensor_turned": _step(_turned, turned),
}
