"""PyTorch's collectives over the two axes of a mesh, one after another.

exchanged().capture(), exchanged(first="model").capture()
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce

import flint


@dataclass(frozen=True)
class Options:
    """What a step does."""

    first: str = "data"
    second: str = "model"
    reduction: Any = dist.ReduceOp.SUM
    functional: str = "sum"
    over: str = "model"
    dtype: Any = torch.float32
    sent: Any = torch.float32
    scattered: Any = torch.float32
    gathered: int = 16
    root: int = 0
    exchanged: str = "model"
    turned: bool = False
    reordered: bool = False
    reduces: bool = True
    gathers: bool = True
    doubled: bool = False
    whole: bool = False
    scaled: bool = False


def _run(options, groups, x, w, half, parts):
    product = x @ w
    if options.reduces:
        group = None if options.whole else groups[options.first]
        dist.all_reduce(product, options.reduction, group=group)
    if options.scaled:
        product.div_(2)
    summed = all_reduce(product, options.functional, groups[options.over])
    found = torch.empty(2 * len(half), dtype=half.dtype, device=half.device)
    if options.gathers:
        for _ in range(1 + options.doubled):
            dist.all_gather_into_tensor(found, half, group=groups[options.second])
    mine = torch.empty(len(parts) // 2, dtype=parts.dtype, device=parts.device)
    dist.reduce_scatter_tensor(mine, parts, group=groups[options.second])
    members = dist.get_process_group_ranks(groups[options.first])
    dist.broadcast(w, members[options.root], group=groups[options.first])
    there = torch.empty_like(parts)
    dist.all_to_all_single(there, parts, group=groups[options.exchanged])
    again = summed @ w
    others = dist.get_process_group_ranks(groups[options.second])
    here = others.index(dist.get_rank())
    peer = others[1 - here]
    first = here == (1 if options.turned else 0)
    if first:
        dist.send(again, peer)
    else:
        dist.recv(again, peer)
    return again, found, mine, there


def _reordered(options, groups, x, w, half, parts):
    """The broadcast of the weight after the step instead of in its midst."""
    kept = w.clone()
    made = _run(options, groups, x, w, half, parts)
    dist.broadcast(kept, dist.get_process_group_ranks(groups[options.first])[0],
                   group=groups[options.first])  # fmt: skip
    return made


def exchanged(**changes):
    """A captured step on four ranks, with these changes."""
    options = replace(Options(), **changes)

    def setup(mesh):
        groups = {name: mesh.get_group(name) for name in ("data", "model")}
        device = mesh.device_type
        x = torch.ones(8, 12, device=device, dtype=options.dtype)
        w = torch.ones(12, 12, device=device, dtype=options.dtype)
        half = torch.ones(options.gathered, device=device, dtype=options.sent)
        parts = torch.ones(64, device=device, dtype=options.scattered)
        return groups, x, w, half, parts

    def step(groups, x, w, half, parts):
        return (_reordered if options.reordered else _run)(options, groups, x, w, half, parts)

    return flint.capture(step, mesh=(2, 2), axes=("data", "model"), setup=setup, framework="torch")


base = exchanged()
