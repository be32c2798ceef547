"""Activation checkpointing: what blocks keep for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    create_selective_checkpoint_contexts,
)

_ATEN: Any = torch.ops.aten
#: What PyTorch's attention may run as.
_ATTENTION = frozenset((
    _ATEN._scaled_dot_product_cudnn_attention.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_flash_attention.default,
))  # fmt: skip

#: Marks of profilers.  PyTorch counts the ops of a block's two forward passes, and FSDP within it
#: (experts that are split by themselves) sets more marks when it runs in the backward pass.
_MARKS = frozenset((
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
))  # fmt: skip


def selective() -> Any:
    """Contexts of selective activation checkpointing: what is kept and what is computed again.

    Attention's results and those of every other matrix product are kept (the policy "op" of
    torchtitan, ``torchtitan/distributed/activation_checkpoint.py``).
    """
    SAC_IGNORED_OPS.update(_MARKS)
    counts = {False: 0, True: 0}

    def policy(context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if function is _ATEN.mm.default:
            counts[context.is_recompute] += 1
            keep = counts[context.is_recompute] % 2 == 1
        else:
            keep = function in _ATTENTION
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpoint_blocks(model: nn.Module, checkpoint: bool | int | str) -> None:
    """Have blocks compute again for the backward pass what they do not keep.

    Args:
        model: has ``layers``, a ModuleDict of blocks.
        checkpoint: False: they keep everything; True: only their inputs; a number n: that of every
            n-th block; "selective": attention and every other matrix product too.
    """
    if not checkpoint:
        return
    options = {"context_fn": selective} if checkpoint == "selective" else {}
    every = checkpoint if isinstance(checkpoint, int) else 1
    for name, block in list(model.layers.items())[::every]:
        model.layers[name] = checkpoint_wrapper(block, **options)
