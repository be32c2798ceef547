"""A data-parallel training step of PyTorch's in which everything can be something else.

trained().capture(), trained(act=F.silu).capture()
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import flint

CLASSES, CHANNELS, SIZE = 10, 8, 8


def squared(x):
    return F.relu(x).square()


def clip_by_norm(parameters):
    nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)


def clip_by_value(parameters):
    nn.utils.clip_grad_value_(parameters, 1.0, foreach=True)


def unscaled(parameters):
    """As a GradScaler has it."""
    one = torch.ones(1, device=parameters[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_([p.grad for p in parameters], one, one)
    clip_by_norm(parameters)


@dataclass(frozen=True)
class Options:
    """What a step is made of."""

    act: Any = F.gelu
    convolution: Any = None
    norm: Any = nn.LayerNorm
    group_norm: Any = None
    pool: Any = None
    hidden: int = 32
    depth: int = 1
    batch: int = 4
    size: int = SIZE
    bias: bool = True
    dropout: float = 0.1
    residual: bool = True
    swapped: bool = False
    checkpointed: bool = False
    frozen: str = ""
    dtype: Any = torch.float32
    autocast: Any = None
    scores: Any = None
    loss: Any = F.cross_entropy
    penalty: bool = False
    optimizer: Any = torch.optim.AdamW
    settings: Any = None
    clip: Any = clip_by_norm
    ema: bool = False
    steps: bool = True
    zero: bool = True
    none: bool = True
    forwards: int = 1
    backwards: int = 1
    synced: bool = True
    detached: bool = False
    logged: Any = None
    buckets: Any = None
    wrapped: bool = True
    hook: Any = None
    buffers: bool = False
    transposed: bool = False


class Model(nn.Module):
    """A convolution, group norm, and perceptrons with a layer norm."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        convolution = options.convolution or {"padding": 1}
        self.convolution = nn.Conv2d(3, CHANNELS, 3, bias=options.bias, **convolution)
        self.group_norm = (options.group_norm or (lambda: nn.GroupNorm(4, CHANNELS)))()
        self.pool = (options.pool or (lambda: nn.AdaptiveAvgPool2d(2)))()
        self.enter = nn.Linear(4 * CHANNELS, 32, bias=options.bias)
        self.blocks = nn.ModuleList(
            nn.ModuleList((nn.Linear(32, options.hidden), nn.Linear(options.hidden, 32)))
            for _ in range(options.depth)
        )
        self.norm = options.norm(32)
        self.leave = nn.Linear(32, CLASSES)
        if options.buffers:
            self.register_buffer("seen", torch.zeros(4))
        for name, one in self.named_parameters():
            one.requires_grad_(not options.frozen or not name.startswith(options.frozen))

    def block(self, x, first, second):
        hidden = F.dropout(self.options.act(first(x)), self.options.dropout)
        return x + second(hidden) if self.options.residual else second(hidden)

    def forward(self, x):
        x = self.pool(F.relu(self.group_norm(self.convolution(x)))).flatten(1)
        x = self.enter(x)
        x = self.norm(x) if self.options.swapped else x
        for first, second in self.blocks:
            if self.options.checkpointed:
                x = checkpoint(self.block, x, first, second, use_reentrant=False)
            else:
                x = self.block(x, first, second)
        x = x if self.options.swapped else self.norm(x)
        x = x.detach() if self.options.detached else x
        return self.leave(x)


def _run(options, model, optimizer, averaged, x, labels):
    parameters = [one for one in model.parameters() if one.requires_grad]
    if options.transposed:
        x = x.transpose(2, 3).contiguous()
    for number in range(options.forwards):
        with torch.autocast(x.device.type, options.autocast, enabled=options.autocast is not None):
            found = model(x)
        found = options.scores(found) if options.scores else found
        loss = options.loss(found.float(), labels)
        if options.penalty:
            loss = loss + sum(one.square().sum() for one in parameters) * 1e-4
        if number < options.backwards:
            loss.backward()
    if options.logged:
        options.logged(loss)
    if options.clip:
        options.clip(parameters)
    if options.steps:
        optimizer.step()
    if options.ema:
        with torch.no_grad():
            torch._foreach_lerp_(averaged, parameters, 0.1)
    if options.zero:
        optimizer.zero_grad(set_to_none=options.none)


def trained(base=None, **changes):
    """A captured step on two ranks, with these changes."""
    options = replace(base or Options(), **changes)

    def setup(mesh):
        model = Model(options).to(mesh.device_type, options.dtype)
        averaged = [one.detach().clone() for one in model.parameters()]
        if options.wrapped:
            buckets = {"bucket_cap_mb": options.buckets} if options.buckets else {}
            model = nn.parallel.DistributedDataParallel(model, **buckets)
            if options.hook:
                model.register_comm_hook(None, options.hook)
        parameters = [one for one in model.parameters() if one.requires_grad]
        settings = {"lr": 0.1, "foreach": True} | (options.settings or {})
        optimizer = options.optimizer(parameters, **settings)
        shape = options.batch, 3, options.size, options.size
        x = torch.ones(shape, device=mesh.device_type, dtype=options.dtype)
        return (
            model,
            optimizer,
            averaged,
            x,
            torch.zeros(options.batch, dtype=torch.int64, device=mesh.device_type),
        )

    def step(model, optimizer, averaged, x, labels):
        _run(options, model, optimizer, averaged, x, labels)

    return flint.capture(step, mesh=(2,), axes=("dp",), setup=setup, framework="torch")


def log_loss(loss):
    """The mean of a loss over all ranks, as training loops log it."""
    dist.all_reduce(loss.detach(), dist.ReduceOp.SUM)


def log_maximum(loss):
    dist.all_reduce(loss.detach(), dist.ReduceOp.MAX)


def log_barrier(_loss):
    dist.barrier()


def compressed(_state, bucket):
    """Gradients are reduced in bfloat16."""
    half = bucket.buffer().to(torch.bfloat16)
    dist.all_reduce(half)
    future = torch.futures.Future()
    future.set_result(half.to(torch.float32))
    return future


base = trained()
