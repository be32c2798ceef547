"""A small transformer and steps over it, as a user would write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

DIM, HIDDEN, VOCAB, LENGTH, LAYERS, HEADS = 32, 64, 64, 16, 2, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            w(x).view(batch, length, -1, DIM // HEADS).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = Attention()
        self.w1, self.w2 = nn.Linear(DIM, HIDDEN, bias=False), nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.w2(F.silu(self.w1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, layers=range(LAYERS), first=True, last=True):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM) if first else None
        self.layers = nn.ModuleDict({str(i): Block() for i in layers})
        self.head = nn.Linear(DIM, VOCAB, bias=False) if last else None

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)


def batch(size=2):
    return tuple(torch.randint(0, VOCAB, (size, LENGTH), device="cuda") for _ in range(2))


def loss_of(output, labels):
    return F.cross_entropy(output.flatten(0, 1).float(), labels.flatten())


def step(model, optimizer, tokens):
    loss = loss_of(model(tokens[0]), tokens[1])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def plain(mesh):
    model = Transformer().cuda()
    return model, torch.optim.AdamW(model.parameters()), batch()


def sharded(mesh):
    """FSDP2 over the mesh's axis "dp", or "replicate" and "shard"."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    names = mesh.mesh_dim_names
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    over = mesh["replicate", "shard"] if "shard" in names else mesh["dp"]
    with torch.device("meta"):
        model = Transformer()
    if "tp" in names:
        tensor_parallel(model, mesh["tp"])
    for layer in model.layers.values():
        fully_shard(layer, mesh=over, mp_policy=policy)
    fully_shard(model, mesh=over, mp_policy=policy)
    model.to_empty(device="cuda")
    return model, torch.optim.AdamW(model.parameters()), batch()


def tensor_parallel(model, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    def whole():
        return PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))

    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for i in model.layers:
        plan |= {
            f"layers.{i}.norm1": SequenceParallel(),
            f"layers.{i}.norm2": SequenceParallel(),
            f"layers.{i}.attention": whole(),
            f"layers.{i}.attention.wq": ColwiseParallel(),
            f"layers.{i}.attention.wk": ColwiseParallel(),
            f"layers.{i}.attention.wv": ColwiseParallel(),
            f"layers.{i}.attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            f"layers.{i}.w1": ColwiseParallel(input_layouts=Shard(1)),
            f"layers.{i}.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
    parallelize_module(model, mesh, plan)


def stages(mesh, kind="1F1B", microbatches=4, per_rank=1, shard=False, places="loop"):
    """A pipeline over the axis "pp", two layers to a stage; stages of a rank in a loop or a V."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class

    here, ranks = mesh["pp"].get_local_rank(), mesh["pp"].size()
    count = ranks * per_rank
    made = []
    for index in range(here, count, ranks) if places == "loop" else (here, count - 1 - here):
        with torch.device("meta"):
            part = Transformer(range(2 * index, 2 * index + 2), index == 0, index == count - 1)
        if shard:
            for layer in part.layers.values():
                fully_shard(layer, mesh=mesh["dp"])
            fully_shard(part, mesh=mesh["dp"])
        part.to_empty(device="cuda")
        device = torch.device("cuda", torch.cuda.current_device())
        made.append(PipelineStage(part, index, count, device, group=mesh.get_group("pp")))
    schedule = get_schedule_class(kind)(
        made if per_rank > 1 else made[0], microbatches, loss_fn=loss_of
    )
    optimizers = [torch.optim.AdamW(stage.submod.parameters()) for stage in made]
    first, last = (any(getattr(stage, end) for stage in made) for end in ("is_first", "is_last"))
    return schedule, optimizers, batch(2 * microbatches), first, last


def pipeline_step(schedule, optimizers, tokens, first, last):
    schedule.step(*([tokens[0]] if first else []), **({"target": tokens[1]} if last else {}))
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
