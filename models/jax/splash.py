"""Attention as training on TPUs runs it: JAX's splash attention, a kernel of Pallas.

The idea: the kernel goes over blocks of queries and keys, and skips those that a causal mask hides
whole; its backward pass is one kernel for the gradients of keys and values, and with
``use_fused_bwd_kernel`` for those of queries too.  A kernel cannot be split by XLA: every
device runs it on its own sequences and heads.

    flint capture models/jax/splash.py:train_8b --mesh 64,4 -o out/

Blocks are those that MaxText takes by default (``sa_block_*`` of its ``base.yml``: 512).
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as kernels,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from flint.models.jax.layers import attention, plain
from flint.models.jax.llama3 import LLAMA3_8B, training
from flint.models.jax.sharding import parts, spec

#: Queries and keys of a block.
BLOCK = 512


@functools.cache
def _kernel(heads: int, length: int) -> kernels.SplashAttentionKernel:
    """Causal attention for these numbers of heads and positions."""
    block = min(BLOCK, length)
    sizes = kernels.BlockSizes(
        block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block,
        block_kv_dkv=block, block_kv_dkv_compute=block, block_q_dq=block, block_kv_dq=block,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    with jax.ensure_compile_time_eval():
        made = kernels.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
        return jax.tree.map(np.asarray, made)


def splash(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention of whole sequences; where the mesh splits them, attention is spelled out.

    Args:
        q: (B, S, H, size).
        k, v: (B, S, K, size), K divides H.

    Returns:
        (B, S, H * size).
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and parts("sequence", mesh) > 1:
        return plain(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1])

    def device(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        kernel = _kernel(q.shape[2], q.shape[1])
        q, k, v = (item.swapaxes(1, 2) for item in (q * scale, k, v))
        return jax.vmap(kernel)(q, k, v).swapaxes(1, 2)

    run = device
    if not mesh.empty:
        split = spec(("batch", None, "tensor", None), mesh)
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        run = jax.shard_map(
            device, in_specs=(split,) * 3, out_specs=split, axis_names=axes, check_vma=False
        )
    return run(q, k, v).reshape(*q.shape[:2], -1)


#: ``layers.attention`` as training on TPUs runs it.
splash_attention = functools.partial(attention, kernel=splash)

train_8b = training(replace(LLAMA3_8B, mixer=splash_attention), mesh=(64, 4))
