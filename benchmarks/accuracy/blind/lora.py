"""Llama, frozen, with low-rank adapters of attention's products (Hu et al., "LoRA", 2021).

The idea: as Megatron-Core runs it.  Queries, keys and values are one product, one adapter; ranks
of "dp" and "cp" have all weights, and add up the adapters' gradients once a step; over "tp", the
first product of an adapter of split columns is split too and gathered, that of split rows is added
up, and what the second makes is exchanged.

    training(config, rank=16, mesh=(8,), axes=("dp",)).capture()
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import flint
from flint.models.mixtures import Heads
from flint.models.torch import parallel
from flint.models.torch.batches import batch_of, loss_of
from flint.models.torch.checkpointing import checkpoint_blocks
from flint.models.torch.layers import rotated
from flint.models.torch.llama3_model import Config, Llama

#: Weight of an adapter's result (alpha over rank), and the share of its input that is dropped.
SCALE, DROPOUT = 2.0, 0.1


class Attention(nn.Module):
    """Causal self-attention of (B, S, D) with adapters."""

    def __init__(self, width: int, heads: Heads, rank: int) -> None:
        super().__init__()
        self.size, self.group = heads.size, heads.queries // heads.keys
        columns = (heads.queries + 2 * heads.keys) * heads.size
        self.wqkv = nn.Linear(width, columns, bias=False)
        self.qkv_in = nn.Linear(width, rank, bias=False)
        self.qkv_out = nn.Linear(rank, columns, bias=False)
        self.wo = nn.Linear(heads.queries * heads.size, width, bias=False)
        self.o_in = nn.Linear(heads.queries * heads.size, rank, bias=False)
        self.o_out = nn.Linear(rank, width, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Attend; heads lie as Megatron has them: a group's queries, its key, its value."""
        batch, length, _ = x.shape
        made = self.wqkv(x) + self.qkv_out(self.qkv_in(F.dropout(x, DROPOUT))) * SCALE
        made = made.view(batch, length, -1, self.group + 2, self.size)
        q, k, v = made.split((self.group, 1, 1), dim=3)
        q, k, v = (item.reshape(batch, length, -1, self.size) for item in (q, k, v))
        q, k = rotated(q, table), rotated(k, table)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
        return self.wo(mixed) + self.o_out(self.o_in(F.dropout(mixed, DROPOUT))) * SCALE


def split_tensors(model: Llama, mesh: DeviceMesh) -> None:
    """Tensor and sequence parallelism, as ``parallel.split_tensors``."""
    ends = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    whole = {"input_layouts": (Shard(1), None), "desired_input_layouts": (Replicate(), None)}
    block = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(**whole),
        "attention.wqkv": ColwiseParallel(),
        "attention.qkv_in": ColwiseParallel(output_layouts=Replicate()),
        "attention.qkv_out": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "attention.o_in": RowwiseParallel(output_layouts=Replicate()),
        "attention.o_out": ColwiseParallel(output_layouts=Shard(1)),
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, ends, src_data_rank=None)
    for one in model.layers.values():
        parallelize_module(one, mesh, block, src_data_rank=None)


def build(config: Config, rank: int, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``step``."""
    with torch.device("meta"):
        model = Llama(config)
        for block in model.layers.values():
            block.attention = Attention(config.width, config.heads, rank)
    model.to(config.dtype)
    for name, item in model.named_parameters():
        item.requires_grad_(name.endswith(("_in.weight", "_out.weight")))
    if parallel.size(mesh, "tp") > 1:
        split_tensors(model, mesh["tp"])
    checkpoint_blocks(model, config.checkpoint)
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        model.initialise()
    adapters = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(adapters, fused=True)
    over = [axis for axis in ("dp", "cp") if parallel.size(mesh, axis) > 1]
    group = None
    if over:
        joined = mesh[tuple(over)]._flatten("replicas") if len(over) > 1 else mesh[over[0]]
        group = joined.get_group()
    shape = config.sequences * config.accumulation, config.sequence
    batch = batch_of(config.vocabulary, shape, mesh.device_type)
    return model, adapters, optimizer, batch, mesh, group


def step(
    model: Llama,
    adapters: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    batch: Sequence[torch.Tensor],
    mesh: DeviceMesh,
    replicas: Any,
) -> torch.Tensor:
    """One training step."""
    with parallel.split_sequence(mesh, batch, [model.rotary]), parallel.parallel_loss(mesh):
        for tokens, targets in zip(
            *(item.chunk(model.config.accumulation) for item in batch), strict=True
        ):
            loss = loss_of(model(tokens), targets)
            loss.backward()
    found = [item.grad for item in adapters if item.grad is not None]
    local = [item.to_local() if isinstance(item, DTensor) else item for item in found]
    flat = torch.cat([item.flatten() for item in local])
    if replicas is not None:
        dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=replicas)
    parts = flat.split([item.numel() for item in local])
    torch._foreach_copy_(local, [part.view_as(to) for part, to in zip(parts, local, strict=True)])
    parallel.clip_gradients(adapters, mesh, 0.3)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def training(config: Config, rank: int, mesh: tuple[int, ...], axes: tuple[str, ...]) -> Any:
    """A step of adapters of a rank."""
    setup = functools.partial(build, config, rank)
    return flint.capture(step, mesh=mesh, axes=axes, setup=setup, framework="torch")
