"""The mixture on two real processes, against every expert applied to every token; see the tests.

python moe_processes.py FOLDER        # writes FOLDER/result.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from flint.models.torch.moe import TINY, Mixture

RANKS = 2
CONFIG = replace(TINY, width=32, hidden=48, experts=6)


def dense(x, router, gate, up, down):
    """Each token's best experts, by masks: (B, S, D) -> (B, S, D)."""
    weights, chosen = torch.topk(F.softmax(x @ router.T, -1), CONFIG.chosen)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for number in range(CONFIG.experts):
        mixed = (F.silu(x @ gate[number]) * (x @ up[number])) @ down[number]
        out = out + mixed * (weights * (chosen == number)).sum(-1, keepdim=True)
    return out


def work(rank, folder):
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(shape, generator=generator) / shape[-1] ** 0.5

    width, hidden, experts = CONFIG.width, CONFIG.hidden, CONFIG.experts
    router = drawn(experts, width).mul(3)
    weights = [drawn(experts, width, hidden), drawn(experts, width, hidden)]
    weights.append(drawn(experts, hidden, width))
    # Each rank's tokens lean to other experts, so that splits are uneven and differ.
    inputs = [drawn(2, 8, width).mul(6) + router[i] for i in range(RANKS)]

    model = Mixture(CONFIG, dist.group.WORLD)
    own = slice(rank * experts // RANKS, (rank + 1) * experts // RANKS)
    with torch.no_grad():
        model.router.weight.copy_(router)
        for parameter, whole in zip(model.experts.parameters(), weights, strict=True):
            parameter.copy_(whole[own])
    x = inputs[rank].clone().requires_grad_()
    model(x).square().sum().backward()

    reference = [item.clone().requires_grad_() for item in (router, *weights)]
    everyone = [item.clone().requires_grad_() for item in inputs]
    parts = [dense(item, *reference).square().sum() for item in everyone]
    sum(parts).backward()
    (router_of_mine,) = torch.autograd.grad(
        dense(inputs[rank], *reference).square().sum(), reference[:1]
    )
    pairs = {
        "tokens": (x.grad, everyone[rank].grad),
        "router": (model.router.weight.grad, router_of_mine),
        "other rank's tokens": (x.grad, everyone[1 - rank].grad),
    }
    for name, parameter, whole in zip(
        ("gate", "up", "down"), model.experts.parameters(), reference[1:], strict=True
    ):
        pairs[name] = (parameter.grad, whole.grad[own])
    distances = {
        name: float((one - other).norm() / other.norm()) for name, (one, other) in pairs.items()
    }
    with torch.no_grad():
        loads = torch.topk(inputs[rank] @ router.T, CONFIG.chosen)[1].flatten().bincount()
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, (distances, loads.tolist()))
    if rank == 0:
        (Path(folder) / "result.json").write_text(json.dumps(gathered))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), RANKS, start_method="fork")
