"""Training steps that were written, and compiled, only after the rules were fixed.

They say how far the rules hold beyond the programs that they were compared with: layers of
convolutional networks, recurrent ones, variants of attention, a mixture, losses and optimizers, of
other shapes than those of ``programs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import BF16, F32, I32, grads, normed, of, rms

NHWC = ("NHWC", "HWIO", "NHWC")


def mixer_block(x: Any, t1: Any, t2: Any, c1: Any, c2: Any, s: Any, b: Any) -> Any:
    y = normed(x, s, b).swapaxes(1, 2)
    x = x + (jax.nn.gelu(y @ t1) @ t2).swapaxes(1, 2)
    return x + jax.nn.gelu(normed(x, s, b) @ c1) @ c2


def convnext_block(x: Any, d: Any, w1: Any, b1: Any, w2: Any, scale: Any, s: Any, b: Any) -> Any:
    y = lax.conv_general_dilated(
        x, d, (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=x.shape[-1]
    )
    y = normed(y, s, b)
    return x + scale * (jax.nn.gelu(y @ w1 + b1) @ w2)


def pooled_stage(x: Any, w1: Any, w2: Any, b1: Any, b2: Any) -> Any:
    for w, b in ((w1, b1), (w2, b2)):
        x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
        x = jax.nn.relu(x + b)
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def lstm(x: Any, w: Any, u: Any, b: Any) -> Any:
    def cell(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
    return lax.scan(cell, (zero, zero), x)[1]


def capped_attention(x: Any, q: Any, k: Any, v: Any, o: Any, s: Any) -> Any:
    """Queries in groups of four, scores capped by a tanh."""
    y = rms(x, s)
    batch, length, width = x.shape
    a = (y @ q).reshape(batch, length, 4, 4, -1)
    b, c = ((y @ w).reshape(batch, length, 4, -1) for w in (k, v))
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", a, b).astype(F32) / a.shape[-1] ** 0.5
    scores = 30 * jnp.tanh(scores / 30)
    y = jnp.einsum("bhgqk,bkhd->bqhgd", jax.nn.softmax(scores, -1).astype(x.dtype), c)
    return x + y.reshape(batch, length, width) @ o


def cross_attention(x: Any, y: Any, q: Any, k: Any, v: Any, o: Any, seen: Any) -> Any:
    a, b, c = ((z @ w).reshape(*z.shape[:2], 6, -1) for z, w in ((x, q), (y, k), (y, v)))
    scores = jnp.einsum("bqhd,bkhd->bhqk", a, b).astype(F32) * 0.125
    scores = jnp.where(seen[:, None, None, :], scores, -1e9)
    z = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(x.dtype), c)
    return x + z.reshape(x.shape) @ o


def linear_attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    a, b, c = ((x @ w).reshape(*x.shape[:2], 8, -1) for w in (q, k, v))
    a, b = jax.nn.elu(a) + 1, jax.nn.elu(b) + 1
    state = jnp.einsum("bkhd,bkhe->bhde", b, c)
    norm = jnp.einsum("bqhd,bhd->bqh", a, b.sum(1))
    y = jnp.einsum("bqhd,bhde->bqhe", a, state) / (norm[..., None] + 1e-3)
    return x + y.reshape(x.shape) @ o


def switch(x: Any, router: Any, up: Any, down: Any) -> Any:
    """One expert per token, capacity 1.25."""
    experts, capacity = up.shape[0], x.shape[0] * 5 // (4 * up.shape[0])
    gates = jax.nn.softmax((x @ router).astype(F32), -1)
    chosen = gates.argmax(-1)
    mask = jax.nn.one_hot(chosen, experts, dtype=F32)
    place = (jnp.cumsum(mask, 0) - 1) * mask
    slot = jax.nn.one_hot(place.sum(-1).astype(I32), capacity, dtype=F32)
    send = (mask[:, :, None] * slot[:, None, :]).astype(x.dtype)
    y = jnp.einsum("tec,th->ech", send, x)
    y = jnp.einsum("ecf,efh->ech", jax.nn.relu(jnp.einsum("ech,ehf->ecf", y, up)), down)
    return jnp.einsum("tec,ech->th", send * gates.max(-1)[:, None, None].astype(x.dtype), y)


def squeeze(x: Any, w: Any, down: Any, up: Any, s: Any, b: Any) -> Any:
    y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=NHWC)
    y = jax.nn.swish(normed(y, s, b, (0, 1, 2)))
    pooled = y.astype(F32).mean((1, 2)).astype(x.dtype)
    return y * jax.nn.sigmoid(jax.nn.swish(pooled @ down) @ up)[:, None, None, :]


def contrastive(a: Any, b: Any, heat: Any) -> Any:
    a, b = (z.astype(F32) * lax.rsqrt((z.astype(F32) ** 2).sum(-1, keepdims=True)) for z in (a, b))
    scores = jnp.exp(heat) * (a.astype(BF16) @ b.astype(BF16).T).astype(F32)
    one = jax.nn.log_softmax(scores, 0)
    other = jax.nn.log_softmax(scores, 1)
    return -(jnp.diagonal(one) + jnp.diagonal(other)).mean() / 2


def lion(p: Any, g: Any, m: Any) -> Any:
    step = jax.tree.map(
        lambda p, g, m: p - 1e-4 * (jnp.sign(0.9 * m + 0.1 * g.astype(F32)) + 0.1 * p), p, g, m
    )
    return step, jax.tree.map(lambda g, m: 0.99 * m + 0.01 * g.astype(F32), g, m)


def lamb(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
    v = [0.99 * a + 0.01 * b * b for a, b in zip(v, g, strict=True)]
    out = []
    for w, a, b in zip(p, m, v, strict=True):
        step = a / (jnp.sqrt(b) + 1e-6) + 0.01 * w
        out.append(w - 0.1 * step * jnp.sqrt((w * w).sum()) / jnp.sqrt((step * step).sum()))
    return out, m, v


X = of(4, 768, 384)
S, B = of(384, dtype=F32), of(384, dtype=F32)
SQUARE = of(384, 384)
IMAGE = of(8, 48, 48, 96)
C = of(96, dtype=F32)
TREE = [of(2048, 768, dtype=F32), of(768, 3072, dtype=F32)]

#: Name -> (function, its arguments).
UNSEEN: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mixer block": (
        grads(mixer_block, 7),
        (of(16, 196, 768), of(196, 384), of(384, 196), of(768, 3072), of(3072, 768),
         of(768, dtype=F32), of(768, dtype=F32)),
    ),
    "ConvNeXt block": (
        grads(convnext_block, 8),
        (IMAGE, of(7, 7, 1, 96), of(96, 384), of(384), of(384, 96), of(96), C, C),
    ),
    "pooled stage": (
        grads(pooled_stage, 5),
        (of(8, 64, 64, 64), of(3, 3, 64, 128), of(3, 3, 128, 128), of(128), of(128)),
    ),
    "LSTM": (grads(lstm, 4), (of(48, 64, 384), of(384, 1536), of(384, 1536), of(1536))),
    "capped attention": (
        grads(capped_attention, 6),
        (of(2, 1024, 1024), of(1024, 1024), of(1024, 256), of(1024, 256), of(1024, 1024),
         of(1024, dtype=F32)),
    ),
    "cross attention": (
        grads(cross_attention, 6),
        (X, of(4, 256, 384), SQUARE, SQUARE, SQUARE, SQUARE, of(4, 256, dtype=jnp.bool_)),
    ),
    "linear attention": (grads(linear_attention, 5), (X, SQUARE, SQUARE, SQUARE, SQUARE)),
    "switch": (
        grads(switch, 4), (of(2048, 384), of(384, 16), of(16, 384, 768), of(16, 768, 384)),
    ),
    "squeeze and excite": (
        grads(squeeze, 6), (IMAGE, of(3, 3, 96, 192), of(192, 48), of(48, 192),
                            of(192, dtype=F32), of(192, dtype=F32)),
    ),
    "contrastive loss": (
        jax.grad(contrastive, argnums=(0, 1, 2)), (of(4096, 512), of(4096, 512), of(dtype=F32)),
    ),
    "Lion": (lion, (TREE, [of(*t.shape) for t in TREE], TREE)),
    "LAMB": (lamb, (TREE, TREE, TREE, TREE)),
}  # fmt: skip
