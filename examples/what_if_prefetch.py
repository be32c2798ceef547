"""What if FSDP gathered its weights ahead?  Time and memory of a Llama step, gather by gather.

The step is real PyTorch code without prefetching.  Every weight is a parametrisation that gathers
its shards when it is used ("SimpleFSDP", Zhang et al., 2024, without its compiler), so each
all-gather comes directly before the product that needs it ("in line").  The results of products and
attention are kept for the backward pass; everything else, the gathers too, is recomputed there.
Then the pass ``hoist`` issues the gathers k places earlier, in the recorded graph only, and
``defer`` issues the reductions of gradients, which are in line too, k places later:

    python examples/what_if_prefetch.py                  # 8B on 8 and 64 ranks, 70B on 64
    python examples/what_if_prefetch.py --layers 4       # in seconds

A block has 9 gathers and 9 reductions, so that 9 places are a block.
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.utils.parametrize import register_parametrization
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import flint
from flint.cost.hardware import System
from flint.cost.systems import load_system
from flint.models.torch import llama3
from flint.models.torch.batches import batch_of

#: What the backward pass finds; everything else it computes, or gathers, again.
KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default,
}
#: What is shown, and the passes; the third hoists further than any step has gathers.
PASSES = {
    "in line": [],
    "1 ahead": ["hoist:by=1"],
    "9 ahead": ["hoist:by=9"],
    "all in front": ["hoist:by=100000"],
    "9 ahead, 9 later": ["hoist:by=9", "defer:by=9"],
}


class Gathered(nn.Module):
    """A sharded float32 parameter as what the layer sees: whole, and of another type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, shard: DTensor) -> torch.Tensor:
        """Cast and gather; in the backward pass the gradient is reduced and scattered."""
        whole = shard.redistribute(
            placements=[Replicate()], forward_dtype=self.dtype, backward_dtype=torch.float32
        )
        return whole.to_local(grad_placements=[Partial()])


class Recomputed(nn.Module):
    """A block of which the backward pass finds ``KEPT`` only."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: torch.Tensor) -> Any:
        """What the block returns."""
        contexts = functools.partial(create_selective_checkpoint_contexts, _policy)
        return checkpoint(
            self.block, *args, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )


def _policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def build(config: llama3.Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer and batch of a rank; their values are never used."""
    with torch.device("meta"):
        model = llama3.Llama(config)
    for module in list(model.modules()):
        if isinstance(module, nn.Linear | nn.Embedding | nn.RMSNorm):
            shard = distribute_tensor(module.weight, mesh, [Shard(0)], src_data_rank=None)
            module.weight = nn.Parameter(shard)
            register_parametrization(module, "weight", Gathered(config.dtype), unsafe=True)
    for name, block in model.layers.items():
        model.layers[name] = Recomputed(block)
    model.to_empty(device=mesh.device_type)
    batch = batch_of(config.vocabulary, (config.sequences, config.sequence), mesh.device_type)
    return model, llama3.optimizer_of(model.parameters()), batch


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    """One training step."""
    tokens, targets = batch
    loss = llama3.loss_of(model(tokens), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@dataclass(frozen=True, slots=True)
class Case:
    """A model with that many tokens per rank, on that many ranks of a system."""

    name: str
    config: llama3.Config
    ranks: int
    system: System


def cases() -> list[Case]:
    """The three that are shown."""
    node, rack = load_system("dgx-h100"), load_system("gb200-nvl72")
    slow = tuple(replace(tier, bandwidth=12.5e9, efficiency=1.0) for tier in node.network)
    ethernet = replace(node, name="H100 at 12.5 GB/s", network=slow)
    small = replace(llama3.LLAMA3_8B, sequence=2048)
    large = replace(llama3.LLAMA3_70B, sequence=2048, checkpoint=False)
    return [
        Case("8B", small, 8, node),
        Case("8B", small, 64, rack),
        Case("70B", large, 64, ethernet),
    ]


def main() -> None:
    """Capture each case once and print what hoisting does to it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, help="blocks, instead of all")
    parser.add_argument("--vocabulary", type=int, help="tokens, instead of all")
    given = parser.parse_args()
    smaller = {
        name: value
        for name, value in (("layers", given.layers), ("vocabulary", given.vocabulary))
        if value is not None
    }
    print(
        f"model ranks system              {'gathers':16}       step     exposed     memory   gain"
    )
    for case in cases():
        captured = flint.capture(
            step,
            mesh=(case.ranks,),
            axes=("dp",),
            setup=functools.partial(build, replace(case.config, **smaller)),
            framework="torch",
        ).capture()
        base = captured.simulate(case.system)
        for what, passes in PASSES.items():
            found = captured.simulate(case.system, passes=passes)
            print(
                f"{case.name:5} {case.ranks:5} {case.system.name:19} {what:16}"
                f"{1e3 * found.step_seconds:9.1f} ms"
                f"{1e3 * found.exposed_communication_seconds:9.1f} ms"
                f"{found.peak_memory_bytes / 1e9:8.2f} GB"
                f"{1 - found.step_seconds / base.step_seconds:7.1%}"
            )


if __name__ == "__main__":
    main()
