"""Layers of a transformer, as functions of arrays and dicts of parameters.

The idea: shapes are written in one way: B batch, S sequence, D width, H heads, K key heads, F
hidden width of the feed-forward network.  Sums are in float32, products in the dtype of the input.

    x = x + attention(rms_norm(x, layer["norm"]), layer["attention"], heads, positions)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax.parameters import Parameter, Tree
from flint.models.jax.sharding import Dim, constrain, parts, spec
from flint.models.mixtures import Heads

#: What attention scores of hidden positions become before the softmax.
_HIDDEN = -1e30


def rms_norm(x: jax.Array, weight: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """``x`` (..., D) divided by its root mean square, times ``weight`` (D)."""
    with jax.named_scope("norm"):
        wide = x.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + epsilon)
        return (wide * weight).astype(x.dtype)


def norm_parameters(width: int) -> Parameter:
    """weight (D) of ``rms_norm``."""
    return Parameter((width,), (None,), scale=0.0, mean=1.0)


def normed_after(x: jax.Array, layer: Any, name: str) -> jax.Array:
    """``x`` (..., D), with the norm ``NAME_after`` if the layer has it."""
    weight = layer.get(f"{name}_after")
    return x if weight is None else rms_norm(x, weight)


def rotary(x: jax.Array, positions: jax.Array, theta: float) -> jax.Array:
    """Rotary position embedding (Su et al., 2021) of ``x`` (B, S, heads, size).

    Args:
        positions: (S,) or (B, S), of int32.
        theta: base of the wavelengths.
    """
    half = x.shape[-1] // 2
    wavelengths = theta ** (jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[..., None].astype(jnp.float32) / wavelengths
    angles = angles[..., None, :]  # the heads' dim
    if positions.ndim == 1:
        angles = angles[None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    return turned.astype(x.dtype)


def attention_parameters(width: int, heads: Heads) -> Tree:
    """wq, wk, wv (D, heads * size) and wo (heads * size, D)."""
    inner, outer = heads.queries * heads.size, heads.keys * heads.size
    return {
        "wq": Parameter((width, inner), ("fsdp", "tensor")),
        "wk": Parameter((width, outer), ("fsdp", "tensor")),
        "wv": Parameter((width, outer), ("fsdp", "tensor")),
        "wo": Parameter((inner, width), ("tensor", "fsdp")),
    }


#: What is done to queries ("q") or keys ("k") before they are multiplied.
Turn = Callable[[jax.Array, str], jax.Array]


def projections(
    x: jax.Array,
    layer: Any,
    heads: Heads,
    positions: jax.Array,
    turn: Turn | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries (B, S, H, size), keys and values (B, S, K, size) of ``x`` (B, S, D).

    Biases bq, bk and bv are added where the layer has them; ``turn`` is applied to queries and
    keys in place of the rotary embedding.

    On a mesh with more tensor-parallel parts than key heads, K is the number of parts: every part
    attends with one whole key head, which several parts share.
    """
    batch, length, _ = x.shape
    mesh = jax.sharding.get_abstract_mesh()
    split = 1 if mesh.empty else parts("tensor", mesh)

    def project(name: str, count: int) -> jax.Array:
        made = x @ layer[name].astype(x.dtype)
        bias = layer.get(f"b{name[1:]}")
        made = made if bias is None else made + bias.astype(x.dtype)
        copies = split // count if split % count == 0 else 1
        if copies > 1:  # gathered while heads lie side by side: no device has a whole head
            made = constrain(made, "batch", "sequence", None)
        made = made.reshape(batch, length, count, heads.size)
        if copies > 1:
            made = jnp.repeat(made, copies, axis=2)
        return constrain(made, "batch", "sequence", "tensor", None)

    q, k, v = (
        checkpoint_name(project(weight, count), name)
        for name, weight, count in (
            ("query", "wq", heads.queries),
            ("key", "wk", heads.keys),
            ("value", "wv", heads.keys),
        )
    )
    if turn is not None:
        return turn(q, "q"), turn(k, "k"), v
    return rotary(q, positions, heads.theta), rotary(k, positions, heads.theta), v


def attend(q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array) -> jax.Array:
    """Softmax attention.

    Args:
        q: (B, S, H, size).
        k, v: (B, T, K, size), K divides H.
        visible: (S, T) or (B, S, T), of bool: which keys a query sees.

    Returns:
        (B, S, H * size).
    """
    batch, length, count, size = q.shape
    groups = k.shape[2]
    grouped = q.reshape(batch, length, groups, count // groups, size)
    scores = jnp.einsum("bsgqh,btgh->bgqst", grouped, k, preferred_element_type=jnp.float32)
    seen = visible if visible.ndim == 2 else visible[:, None, None]
    scores = jnp.where(seen, scores / math.sqrt(size), _HIDDEN)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bgqst,btgh->bsgqh", weights, v)
    return mixed.reshape(batch, length, count * size)


#: Causal attention.
Kernel = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention, spelled out: as XLA compiles it, all scores are kept in memory."""
    length = q.shape[1]
    return attend(q, k, v, jnp.tril(jnp.ones((length, length), bool)))


def cudnn(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention by cuDNN's fused kernel, which needs whole sequences in half precision.

    Where the mesh splits the sequence, the attention is spelled out.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and parts("sequence", mesh) > 1:
        return plain(q, k, v)

    def kernel(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")

    if not mesh.empty and mesh.manual_axes:  # XLA splits it over all axes, or over none
        split = spec(("batch", None, "tensor", None), mesh)
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        kernel = jax.shard_map(
            kernel, in_specs=(split,) * 3, out_specs=split, axis_names=axes, check_vma=False
        )
    return kernel(q, k, v).reshape(*q.shape[:2], -1)


def attention(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, kernel: Kernel = plain,
    turn: Turn | None = None,
) -> jax.Array:  # fmt: skip
    """Causal self-attention of ``x`` (B, S, D) with the parameters of ``attention_parameters``.

    Args:
        kernel: queries (B, S, H, size), keys and values (B, S, K, size) -> (B, S, H * size).
        turn: as of ``projections``.
    """
    with jax.named_scope("attention"):
        q, k, v = projections(x, layer, heads, positions, turn)
        # Every query sees all keys before it, wherever they are.
        k = constrain(k, "batch", None, "tensor", None)
        v = constrain(v, "batch", None, "tensor", None)
        mixed = checkpoint_name(kernel(q, k, v), "context")
        # Otherwise the backward pass of a sequence-parallel block exchanges scores instead.
        mixed = constrain(mixed, "batch", "sequence", "tensor")
        return mixed @ layer["wo"].astype(x.dtype)


#: ``attention`` as training on NVIDIA's GPUs runs it.
cudnn_attention = functools.partial(attention, kernel=cudnn)


def swiglu_parameters(width: int, hidden: int) -> Tree:
    """gate and up (D, F), down (F, D)."""
    return {
        "gate": Parameter((width, hidden), ("fsdp", "tensor")),
        "up": Parameter((width, hidden), ("fsdp", "tensor")),
        "down": Parameter((hidden, width), ("tensor", "fsdp")),
    }


def swiglu(x: jax.Array, layer: Any) -> jax.Array:
    """Gated feed-forward network (Shazeer, 2020) of ``x`` (B, S, D)."""
    with jax.named_scope("mlp"):
        gate = jax.nn.silu(x @ layer["gate"].astype(x.dtype))
        hidden = gate * (x @ layer["up"].astype(x.dtype))
        hidden = constrain(hidden, "batch", "sequence", "tensor")
        return hidden @ layer["down"].astype(x.dtype)


def gelu_parameters(width: int, hidden: int) -> Tree:
    """up (D, F), down (F, D)."""
    return {
        "up": Parameter((width, hidden), ("fsdp", "tensor")),
        "down": Parameter((hidden, width), ("tensor", "fsdp")),
    }


def gelu(x: jax.Array, layer: Any) -> jax.Array:
    """Feed-forward network of GPT-2 and GPT-3 (Radford et al., 2019) of ``x`` (B, S, D)."""
    with jax.named_scope("mlp"):
        hidden = jax.nn.gelu(x @ layer["up"].astype(x.dtype))
        hidden = constrain(hidden, "batch", "sequence", "tensor")
        return hidden @ layer["down"].astype(x.dtype)


def vocabulary_parameters(width: int, vocabulary: int) -> Tree:
    """What surrounds the blocks: embedding (V, D), norm (D) and head (D, V)."""
    return {
        "embedding": Parameter((vocabulary, width), ("tensor", "fsdp")),
        "norm": norm_parameters(width),
        "head": Parameter((width, vocabulary), ("fsdp", "tensor")),
    }


def embedding(params: Any, tokens: jax.Array, dtype: Any, *dims: Dim) -> jax.Array:
    """Rows of ``params["embedding"]``, of a dtype; ``dims`` are the result's logical dims."""
    with jax.named_scope("embedding"):
        # Cast, then gathered over the data axis, then looked up: the other way round, XLA would
        # send float32, or every token's row.
        table = constrain(params["embedding"].astype(dtype), "tensor", "fsdp")
        table = constrain(table, "tensor", None)
        return constrain(table[tokens], *dims)


def head(params: Any, x: jax.Array, *dims: Dim) -> jax.Array:
    """Scores of the next token, float32 (..., V), of ``x`` (..., D); ``dims`` are theirs."""
    with jax.named_scope("head"):
        scores = rms_norm(x, params["norm"]) @ params["head"].astype(x.dtype)
        return constrain(scores.astype(jnp.float32), *dims)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean of -log softmax(logits)[label]; logits (B, S, V) of float32, labels (B, S) of int32."""
    with jax.named_scope("loss"):
        label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - label)
