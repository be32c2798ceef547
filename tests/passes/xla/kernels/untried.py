"""Training steps of ten kinds that no other program here has, written before XLA compiled them.

Attention through latent vectors and as the difference of two; modulated convolutions, the layers of
a flow, capsules, points and their neighbours, an ODE; alignments by dynamic programming, a teacher
that is a moving average, and an optimizer whose state has 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import F32, I32, grads, normed, of, rms

I8 = jnp.int8


def latent(x: Any, qa: Any, qb: Any, kva: Any, kvb: Any, o: Any, s: Any, t: Any) -> Any:
    """Multi-head latent attention: queries, keys and values from narrow vectors, 8 heads of 64."""
    batch, length, _ = x.shape
    q = (rms(x @ qa, s) @ qb).reshape(batch, length, 8, -1)
    kv = (rms(x @ kva, t) @ kvb).reshape(batch, length, 8, -1)
    k, v = kv[..., :64], kv[..., 64:]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) / 8
    seen = jnp.tril(jnp.ones((length, length), bool))
    p = jax.nn.softmax(jnp.where(seen, scores, -1e9)).astype(x.dtype)
    return x + jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(batch, length, -1) @ o


def difference(x: Any, q: Any, k: Any, v: Any, o: Any, mix: Any, s: Any) -> Any:
    """Differential attention: two softmaxes, one minus a part of the other, normed per head."""
    batch, length, _ = x.shape
    a, b = ((x @ w).reshape(batch, length, 2, 4, -1) for w in (q, k))
    c = (x @ v).reshape(batch, length, 4, -1)
    p = jax.nn.softmax(jnp.einsum("bqihd,bkihd->bihqk", a, b).astype(F32) / 8)
    p = (p[:, 0] - mix[:, None, None] * p[:, 1]).astype(x.dtype)
    y = rms(jnp.einsum("bhqk,bkhd->bqhd", p, c), s)
    return x + y.reshape(batch, length, -1) @ o


def modulated(x: Any, style: Any, w: Any, to: Any, noise: Any) -> Any:
    """StyleGAN2's convolution: each image's filters are scaled and made of unit norm."""
    images, rows, _, width = x.shape
    scale = (style @ to).astype(F32) + 1
    filters = w[None].astype(F32) * scale[:, None, None, :, None]
    filters *= lax.rsqrt((filters**2).sum((1, 2, 3), keepdims=True) + 1e-8)
    merged = filters.transpose(1, 2, 3, 0, 4).reshape(3, 3, width, -1).astype(x.dtype)
    y = x.transpose(1, 2, 0, 3).reshape(1, rows, rows, images * width)
    y = lax.conv_general_dilated(
        y,
        merged,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=images,
    )
    y = y.reshape(rows, rows, images, -1).transpose(2, 0, 1, 3) + noise
    return jax.nn.leaky_relu(y, 0.2) * 2**0.5


def coupling(x: Any, first: Any, second: Any, third: Any) -> Any:
    """Two affine couplings of a flow and the logarithm of their determinants."""
    total = jnp.zeros(x.shape[0], F32)
    for i in range(2):
        one, two = jnp.split(x, 2, -1)
        h = jax.nn.relu(jax.nn.relu(one @ first[i]) @ second[i])
        scale, shift = jnp.split((h @ third[i]).astype(F32), 2, -1)
        scale = jnp.tanh(scale)
        two = (two.astype(F32) * jnp.exp(scale) + shift).astype(x.dtype)
        total += scale.sum(-1)
        x = jnp.concatenate([two, one], -1)
    return (x.astype(F32) ** 2).sum(-1) / 2 - total


def capsules(x: Any, w: Any) -> Any:
    """Votes of 512 capsules for 16, routed three times by how much they agree."""
    votes = jnp.einsum("bid,ijde->bije", x, w).astype(F32)
    logits = jnp.zeros(votes.shape[:3], F32)
    for _ in range(3):
        y = jnp.einsum("bij,bije->bje", jax.nn.softmax(logits, -1), votes)
        size = (y * y).sum(-1, keepdims=True)
        y = y * size / (1 + size) * lax.rsqrt(size + 1e-8)
        logits = logits + jnp.einsum("bije,bje->bij", votes, y)
    return y


def points(x: Any, where: Any, first: Any, second: Any, s: Any, b: Any) -> Any:
    """A point cloud's edge convolution: 8 nearest of 1,024 points, a network, the maximum."""
    square = (where * where).sum(-1)
    far = square[:, :, None] - 2 * where @ where.swapaxes(1, 2) + square[:, None, :]
    _, near = lax.top_k(-far, 8)
    found = jax.vmap(lambda rows, places: rows[places])(x, near)
    own = jnp.broadcast_to(x[:, :, None], found.shape)
    edges = jnp.concatenate([own, found - own], -1)
    return (jax.nn.relu(normed(edges @ first, s, b)) @ second).max(2)


def differential(x: Any, first: Any, second: Any, bias: Any) -> Any:
    """A neural ODE: 8 steps of Runge and Kutta's fourth order."""

    def slope(y: Any, t: Any) -> Any:
        return jnp.tanh(y @ first + bias * t.astype(y.dtype)) @ second

    def step(y: Any, t: Any) -> Any:
        a = slope(y, t)
        b = slope(y + a / 16, t + 1 / 16)
        c = slope(y + b / 16, t + 1 / 16)
        d = slope(y + c / 8, t + 1 / 8)
        return y + (a + 2 * b + 2 * c + d) / 48, None

    return lax.scan(step, x, jnp.arange(8, dtype=F32) / 8)[0]


def aligned(x: Any, w: Any, labels: Any) -> Any:
    """CTC: sums over all alignments of 64 labels to 256 frames."""
    log = jax.nn.log_softmax((x @ w).astype(F32))
    chosen = jnp.take_along_axis(log, labels[:, None, :], -1)  # [batch, frames, labels]
    blank = log[..., :1]

    def frame(state: Any, row: Any) -> Any:
        on, off = state
        mine, none = row
        before = jnp.pad(off, ((0, 0), (1, 0)), constant_values=-1e9)[:, :-1]
        new = jnp.logaddexp(on, before) + mine
        return (new, jnp.logaddexp(off, on) + none), None

    start = jnp.full(labels.shape, -1e9, F32).at[:, 0].set(0.0)
    rows = chosen.swapaxes(0, 1), blank.swapaxes(0, 1)
    on, off = lax.scan(frame, (start, jnp.full_like(start, -1e9)), rows)[0]
    return -jnp.logaddexp(on[:, -1], off[:, -1])


def teacher(w: Any, kept: Any, m: Any, x: Any, z: Any) -> Any:
    """Distillation from a moving average, at temperatures, with Nesterov's momentum."""

    def output(w: Any, x: Any) -> Any:
        return (jax.nn.gelu(x @ w[0].astype(x.dtype)) @ w[1].astype(x.dtype)).astype(F32)

    def loss(w: Any) -> Any:
        goal = jax.nn.softmax(lax.stop_gradient(output(kept, z)) / 0.04)
        return -(goal * jax.nn.log_softmax(output(w, x) / 0.1)).sum(-1).mean()

    g = jax.grad(loss)(w)
    m = [0.9 * a + b for a, b in zip(m, g, strict=True)]
    w = [a - 0.1 * (b + 0.9 * c) for a, b, c in zip(w, g, m, strict=True)]
    return w, [0.99 * a + 0.01 * b for a, b in zip(kept, w, strict=True)], m


def eight_bits(w: Any, g: Any, state: Any, scales: Any) -> Any:
    """Momentum kept in 8 bits, with a scale for each 256 elements."""
    new, kept, found = [], [], []
    for p, grad, q, s in zip(w, g, state, scales, strict=True):
        m = 0.9 * (q.astype(F32) * s[:, None]) + 0.1 * grad.reshape(q.shape).astype(F32)
        s = jnp.abs(m).max(-1) / 127
        kept.append(jnp.round(m / jnp.maximum(s, 1e-12)[:, None]).astype(I8))
        found.append(s)
        new.append(p * (1 - 1e-4) - 1e-3 * jnp.sign(m).reshape(p.shape))
    return new, kept, found


WIDE = [of(1024, 4096, dtype=F32), of(4096, 1024, dtype=F32)]

#: Name -> (function, its arguments).
UNTRIED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "latent attention": (
        grads(latent, 8),
        (of(4, 1024, 512), of(512, 256), of(256, 512), of(512, 128), of(128, 1024), of(512, 512),
         of(256, dtype=F32), of(128, dtype=F32)),
    ),
    "difference of attentions": (
        grads(difference, 7),
        (of(4, 1024, 512), of(512, 512), of(512, 512), of(512, 512), of(512, 512),
         of(4, dtype=F32), of(128, dtype=F32)),
    ),
    "modulated convolution": (
        grads(modulated, 5),
        (of(8, 32, 32, 128), of(8, 512), of(3, 3, 128, 128), of(512, 128), of(32, 32, 1)),
    ),
    "flow": (
        grads(coupling, 4),
        (of(8192, 256), of(2, 128, 1024), of(2, 1024, 1024), of(2, 1024, 256)),
    ),
    "capsules": (grads(capsules, 2), (of(32, 512, 16), of(512, 16, 16, 32))),
    "points": (
        grads(points, 1),
        (of(8, 1024, 64), of(8, 1024, 3, dtype=F32), of(128, 128), of(128, 128),
         of(128, dtype=F32), of(128, dtype=F32)),
    ),
    "neural ODE": (
        grads(differential, 4), (of(4096, 512), of(512, 512), of(512, 512), of(512)),
    ),
    "alignments": (grads(aligned, 2), (of(32, 256, 512), of(512, 1024), of(32, 64, dtype=I32))),
    "teacher": (teacher, (WIDE, WIDE, WIDE, of(4096, 1024), of(4096, 1024))),
    "eight bits": (
        eight_bits,
        (WIDE, [of(*t.shape) for t in WIDE], [of(16384, 256, dtype=I8)] * 2,
         [of(16384, dtype=F32)] * 2),
    ),
}  # fmt: skip
