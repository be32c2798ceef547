"""Tensor and sequence parallelism of a transformer: which module is split how.

split_tensors(model, mesh["tp"])
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def split_tensors(
    model: nn.Module, mesh: DeviceMesh, *, whole_ends: bool = False, blocks: bool = True
) -> None:
    """Tensor and sequence parallelism over a mesh of one axis.

    Args:
        model: as ``parallelise``'s.
        mesh: of the axis "tp".
        whole_ends: as ``Ends.whole``.
        blocks: blocks are Llama's, and are split too.
    """
    plan: dict[str, Any] = {}
    if model.embedding is not None and whole_ends:
        _replicate(model.embedding, mesh)
    elif model.embedding is not None:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if model.head is not None:
        plan["norm"] = SequenceParallel()
        # Scores stay split over the vocabulary: see parallel_loss.
        scores = Replicate() if whole_ends else Shard(-1)
        plan["head"] = ColwiseParallel(
            input_layouts=Shard(1), output_layouts=scores, use_local_output=whole_ends
        )
    parallelize_module(model, mesh, plan, src_data_rank=None)
    for block in model.layers.values() if blocks else ():
        normed = getattr(block.attention, "q_norm", None) is not None
        parallelize_module(block, mesh, _block_plan(normed), src_data_rank=None)
        if normed:
            for norm in (block.attention.q_norm, block.attention.k_norm):
                distribute_module(norm, mesh, output_fn=_gathered)


def _gathered(_: nn.Module, heads: Any, mesh: DeviceMesh) -> Any:
    """Every rank has what a module returns (torchtitan's ``NoParallel``)."""
    return heads.redistribute(mesh, [Replicate()])


def _replicate(embedding: nn.Module, mesh: DeviceMesh) -> None:
    """Every rank looks up all positions and keeps its part of them."""

    def given(_: nn.Module, tokens: Any, mesh: DeviceMesh) -> Any:
        return tuple(DTensor.from_local(item, mesh, [Replicate()]) for item in tokens)

    def returned(_: nn.Module, rows: Any, mesh: DeviceMesh) -> Any:
        return rows.redistribute(mesh, [Shard(1)]).to_local()

    distribute_module(embedding, mesh, input_fn=given, output_fn=returned)


def _block_plan(normed: bool) -> dict[str, Any]:
    """How a block is split; with norms of queries and keys, as torchtitan splits its Qwen3.

    There what the norms return is gathered: each rank rotates and copies all heads.
    """
    table = Replicate() if normed else None
    heads = {
        f"attention.{name}": ColwiseParallel(use_local_output=not normed)
        for name in ("wq", "wk", "wv")
    }
    return {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), table), desired_input_layouts=(Replicate(), table)
        ),
        **heads,
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
