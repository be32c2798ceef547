"""Self-attention as models with many experts have it.

The idea: one function; a ``Form`` says what a model's attention has beyond Llama's (latents,
biases, sinks, norms of queries and keys), a ``Span`` what one layer sees: everything before, a
sliding window, or its own chunk of the sequence.

    mixed = attention(x, layer, heads, positions, Form(sinks=True), Span(window=128))

Latents (MLA): DeepSeek-V2 (2024), section 2.1.  Sinks: Xiao et al., 2023, as GPT-OSS learns them: a
score per head that no value belongs to.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax.layers import projections, rms_norm, rotary
from flint.models.jax.parameters import Parameter, Tree
from flint.models.jax.sharding import constrain, parts, spec
from flint.models.mixtures import Form, Heads, Latent, Span

_HIDDEN = -1e30


def attention_parameters(width: int, heads: Heads, form: Form) -> Tree:
    """wq, wk, wv and wo, or the latents' projections; biases, norms and sinks where it has them."""
    count, latent = heads.queries, form.latent

    def norm(size: int) -> Parameter:
        return Parameter((size,), (None,), scale=0.0, mean=1.0)

    if latent is not None:
        size = heads.size + latent.rotated
        queries: dict[str, Parameter] = {
            "q_down": Parameter((width, latent.queries), ("fsdp", None)),
            "q_norm": norm(latent.queries),
            "q_up": Parameter((latent.queries, count * size), ("fsdp", "tensor")),
        }
        if not latent.queries:
            queries = {"wq": Parameter((width, count * size), ("fsdp", "tensor"))}
        return {
            **queries,
            "kv_down": Parameter((width, latent.keys + latent.rotated), ("fsdp", None)),
            "kv_norm": norm(latent.keys),
            "kv_up": Parameter(
                (latent.keys, count * (heads.size + latent.values)), ("fsdp", "tensor")
            ),
            "wo": Parameter((count * latent.values, width), ("tensor", "fsdp")),
        }
    inner, outer = count * heads.size, heads.keys * heads.size
    tree = {
        "wq": Parameter((width, inner), ("fsdp", "tensor")),
        "wk": Parameter((width, outer), ("fsdp", "tensor")),
        "wv": Parameter((width, outer), ("fsdp", "tensor")),
        "wo": Parameter((inner, width), ("tensor", "fsdp")),
    }
    if form.bias:
        sizes = {"q": inner, "k": outer, "v": outer}
        tree |= {f"b{name}": Parameter((n,), ("tensor",), scale=0.0) for name, n in sizes.items()}
        tree["bo"] = Parameter((width,), (None,), scale=0.0)
    if form.norm == "learned":
        tree |= {name: norm(heads.size) for name in ("q_norm", "k_norm")}
    if form.sinks:
        tree["sinks"] = Parameter((count,), ("tensor",), scale=0.0)
    return tree


Three = tuple[jax.Array, jax.Array, jax.Array]


def _plain(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, form: Form, span: Span
) -> Three:
    """Queries, keys and values (B, S, heads, size), with biases, norms and positions."""

    def turn(x: jax.Array, name: str) -> jax.Array:
        if form.norm == "learned":  # before positions, as in Qwen3
            x = rms_norm(x, layer[f"{name}_norm"])
        x = rotary(x, positions, heads.theta) if span.rotated else x
        if form.norm == "unit" and span.rotated:  # after them, as in Llama 4
            x = rms_norm(x, jnp.ones(x.shape[-1], jnp.float32))
        return x

    return projections(x, layer, heads, positions, turn)


def _from_latents(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, latent: Latent
) -> Three:
    """Queries and keys (B, S, H, size + rotated), values (B, S, H, values)."""
    batch, length, _ = x.shape

    def product(x: jax.Array, name: str) -> jax.Array:
        return x @ layer[name].astype(x.dtype)

    def by_head(x: jax.Array) -> jax.Array:
        made = x.reshape(batch, length, heads.queries, -1)
        return constrain(made, "batch", "sequence", "tensor", None)

    if latent.queries:
        q = product(rms_norm(product(x, "q_down"), layer["q_norm"]), "q_up")
    else:
        q = product(x, "wq")
    q = by_head(q)
    q, turned = jnp.split(q, [heads.size], -1)
    q = jnp.concatenate([q, rotary(turned, positions, heads.theta)], -1)
    down = product(x, "kv_down")
    shared = rotary(down[..., None, latent.keys :], positions, heads.theta)
    kv = by_head(product(rms_norm(down[..., : latent.keys], layer["kv_norm"]), "kv_up"))
    k, v = jnp.split(kv, [heads.size], -1)
    shared = jnp.broadcast_to(shared, (*k.shape[:-1], latent.rotated))
    k = jnp.concatenate([k, shared], -1)
    return tuple(checkpoint_name(x, n) for x, n in ((q, "query"), (k, "key"), (v, "value")))


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, window: int = 0, sinks: jax.Array | None = None
) -> jax.Array:
    """Causal attention, spelled out.

    Args:
        q: (B, S, H, size).
        k, v: (B, S, K, size) and (B, S, K, values); K divides H.
        window: as of ``Span``.
        sinks: (H,) of float32.

    Returns:
        (B, S, H * values).
    """
    batch, length, count, size = q.shape
    groups, values = k.shape[2], v.shape[3]
    grouped = q.reshape(batch, length, groups, count // groups, size)
    scores = jnp.einsum("bsgqh,btgh->bgqst", grouped, k, preferred_element_type=jnp.float32)
    behind = jnp.arange(length)[:, None] - jnp.arange(length)
    seen = (behind >= 0) & (behind < (window or length))
    scores = jnp.where(seen, scores / math.sqrt(size), _HIDDEN)
    most = scores.max(-1, keepdims=True)
    if sinks is not None:
        sink = sinks.reshape(groups, count // groups)[None, :, :, None, None]
        most = jnp.maximum(most, sink)
    most = jax.lax.stop_gradient(most)
    weights = jnp.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + jnp.exp(sink - most)
    mixed = jnp.einsum("bgqst,btgh->bsgqh", (weights / total).astype(v.dtype), v)
    return mixed.reshape(batch, length, count * values)


def _cudnn(q: jax.Array, k: jax.Array, v: jax.Array, window: int) -> jax.Array:
    """cuDNN's kernel, which wants heads of values as long as those of keys."""
    values = v.shape[3]
    v = jnp.pad(v, ((0, 0),) * 3 + ((0, q.shape[3] - values),))
    mesh = jax.sharding.get_abstract_mesh()

    def kernel(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(
            q, k, v, is_causal=True, implementation="cudnn",
            local_window_size=(window - 1, 0) if window else None,
        )  # fmt: skip

    if not mesh.empty and mesh.manual_axes:  # XLA splits it over all axes, or over none
        split = spec(("batch", None, "tensor", None), mesh)
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        kernel = jax.shard_map(
            kernel, in_specs=(split,) * 3, out_specs=split, axis_names=axes, check_vma=False
        )
    return kernel(q, k, v)[..., :values].reshape(*q.shape[:2], -1)


def attention(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, form: Form, span: Span
) -> jax.Array:
    """Causal self-attention of ``x`` (B, S, D) with the parameters of ``attention_parameters``."""
    with jax.named_scope("attention"):
        if form.latent is not None:
            q, k, v = _from_latents(x, layer, heads, positions, form.latent)
        else:
            q, k, v = _plain(x, layer, heads, positions, form, span)
        k = constrain(k, "batch", None, "tensor", None)
        v = constrain(v, "batch", None, "tensor", None)
        batch, length = x.shape[:2]
        chunked = span.chunk and length > span.chunk
        if chunked:  # chunks are sequences of their own
            q, k, v = (y.reshape(-1, span.chunk, *y.shape[2:]) for y in (q, k, v))
        mesh = jax.sharding.get_abstract_mesh()
        whole = mesh.empty or parts("sequence", mesh) == 1
        if form.fused and not form.sinks and whole:
            mixed = _cudnn(q, k, v, span.window)
        else:
            mixed = attend(q, k, v, span.window, layer["sinks"] if form.sinks else None)
        mixed = mixed.reshape(batch, length, -1)
        mixed = constrain(mixed, "batch", "sequence", "tensor")
        made = mixed @ layer["wo"].astype(x.dtype)
        return made + layer["bo"].astype(x.dtype) if form.bias else made
