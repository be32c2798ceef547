"""Training steps of ten more kinds, written after the rules of ``unseen.py``'s programs were known.

They resemble none of the others: a recurrence with decay, a net of depthwise convolutions, rotary
attention over a window, an encoder of norms, a codebook, routing by sorting, spectra as products, a
focal loss, a whole optimizer with a moving average, and a level of a U-Net with group norms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import BF16, F32, I32, conv, grads, normed, of, rms


def decayed(x: Any, r: Any, k: Any, v: Any, o: Any, mix: Any, decay: Any, bonus: Any) -> Any:
    """RWKV's mixing of time: a state per channel that decays."""
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    a, b, c = (x * mix[i] + before * (1 - mix[i]) for i in range(3))
    a, b, c = jax.nn.sigmoid(a @ r), (b @ k).astype(F32), (c @ v).astype(F32)
    fade = jnp.exp(-jnp.exp(decay))

    def cell(state: Any, row: Any) -> Any:
        top, bottom = state
        key, value = row
        now = jnp.exp(key)
        most = jnp.exp(bonus) * now
        y = (top + most * value) / (bottom + most + 1e-6)
        return (fade * top + now * value, fade * bottom + now), y

    zero = jnp.zeros((x.shape[0], x.shape[2]), F32)
    _, y = lax.scan(cell, (zero, zero), (b.swapaxes(0, 1), c.swapaxes(0, 1)))
    return x + (a * y.swapaxes(0, 1).astype(x.dtype)) @ o


def depthwise(x: Any, grow: Any, each: Any, shrink: Any, s: Any, b: Any) -> Any:
    """MobileNet's inverted residual."""
    y = jax.nn.relu6(normed(conv(x, grow), s, b, (0, 1, 2)))
    dims = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(
        y, each, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=y.shape[-1]
    )
    y = jax.nn.relu6(normed(y, s, b, (0, 1, 2)))
    return x + conv(y, shrink)


def rotated(x: Any, angles: Any) -> Any:
    a, b = jnp.split(x.astype(F32), 2, -1)
    cos, sin = jnp.cos(angles)[None, :, None, :], jnp.sin(angles)[None, :, None, :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def windowed(x: Any, q: Any, k: Any, v: Any, o: Any, s: Any, angles: Any) -> Any:
    """Rotary attention of grouped queries over a sliding window."""
    y = rms(x, s)
    batch, length, _ = x.shape
    a, b, c = ((y @ w).reshape(batch, length, -1, 64) for w in (q, k, v))
    a, b = rotated(a, angles), rotated(b, angles)
    b, c = (jnp.repeat(z, a.shape[2] // z.shape[2], 2) for z in (b, c))
    scores = jnp.einsum("bqhd,bkhd->bhqk", a, b).astype(F32) / 8
    ago = jnp.arange(length)[:, None] - jnp.arange(length)[None, :]
    scores = jnp.where((ago >= 0) & (ago < 256), scores, -1e30)
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(x.dtype), c)
    return x + y.reshape(batch, length, -1) @ o


def norms(x: Any, up: Any, down: Any, s: Any, b: Any) -> Any:
    """Norms before, between and after."""
    for i in range(2):
        y = jax.nn.gelu(normed(normed(x, s[i], b[i]) @ up[i], 1.0, 0.0)) @ down[i]
        x = normed(x + normed(y, s[i], b[i]), s[i], b[i])
    return x


def codebook(x: Any, book: Any, w: Any) -> Any:
    """The nearest code, passed on as if it were the input, and both losses."""
    z = (x @ w).astype(F32)
    far = (z * z).sum(-1, keepdims=True) - 2 * z @ book.T + (book * book).sum(-1)
    code = book[far.argmin(-1)]
    loss = ((lax.stop_gradient(code) - z) ** 2).mean() + ((code - lax.stop_gradient(z)) ** 2).mean()
    passed = z + lax.stop_gradient(code - z)
    return loss + (passed**2).mean()


def sorted_routing(x: Any, router: Any, up: Any, down: Any) -> Any:
    """Tokens sorted by expert, cut into slots of equal size, and back."""
    experts, slots = up.shape[0], x.shape[0] // up.shape[0]
    gates = jax.nn.softmax((x @ router).astype(F32), -1)
    order = jnp.argsort(gates.argmax(-1))
    y = x[order].reshape(experts, slots, -1)
    y = jnp.einsum("ech,ehf->ecf", y, up)
    y = jnp.einsum("ecf,efh->ech", jax.nn.silu(y), down).reshape(x.shape)
    weights = gates.max(-1)[order]
    return x + jnp.zeros_like(x).at[order].set(y * weights[:, None].astype(x.dtype))


def spectral(x: Any, forward: Any, back: Any, filters: Any, w1: Any, w2: Any) -> Any:
    """A transform over the sequence as a product, filtered per channel and frequency."""
    y = jnp.einsum("blh,cfl->bcfh", x, forward)
    real, imaginary = y[:, 0], y[:, 1]
    a = real * filters[0] - imaginary * filters[1]
    b = real * filters[1] + imaginary * filters[0]
    y = jnp.einsum("bcfh,clf->blh", jnp.stack([a, b], 1), back)
    return x + jax.nn.gelu(y @ w1) @ w2


def focal(logits: Any, labels: Any, boxes: Any, targets: Any) -> Any:
    """A detector's loss: focal over classes, smooth L1 over the boxes of what is no background."""
    one = jax.nn.one_hot(labels, logits.shape[-1], dtype=F32)
    x = logits.astype(F32)
    cross = -(one * jax.nn.log_sigmoid(x) + (1 - one) * jax.nn.log_sigmoid(-x))
    p = jax.nn.sigmoid(x)
    hit = p * one + (1 - p) * (1 - one)
    scaled = (0.25 * one + 0.75 * (1 - one)) * (1 - hit) ** 2 * cross
    off = jnp.abs(boxes.astype(F32) - targets)
    smooth = jnp.where(off < 1, 0.5 * off * off, off - 0.5).sum(-1)
    kept = (labels > 0).astype(F32)
    return (scaled.sum() + (smooth * kept).sum()) / jnp.maximum(kept.sum(), 1)


def optimizer(p: Any, g: Any, m: Any, v: Any, slow: Any, count: Any) -> Any:
    """Gradients of bf16, clipped by their norm, AdamW, and a moving average."""
    g = [a.astype(F32) for a in g]
    norm = jnp.sqrt(sum((a * a).sum() for a in g))
    g = [jnp.where(norm < 1, a, a / norm) for a in g]
    m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
    v = [0.95 * a + 0.05 * b * b for a, b in zip(v, g, strict=True)]
    first, second = 1 - 0.9**count, 1 - 0.95**count
    p = [
        w - 3e-4 * ((a / first) / (jnp.sqrt(b / second) + 1e-8) + 0.1 * w)
        for w, a, b in zip(p, m, v, strict=True)
    ]
    slow = [0.999 * a + 0.001 * b for a, b in zip(slow, p, strict=True)]
    return p, m, v, slow, [a.astype(BF16) for a in p]


def grouped_norm(x: Any, s: Any, b: Any) -> Any:
    groups = x.astype(F32).reshape(*x.shape[:3], 16, -1)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(groups - mean).mean((1, 2, 4), keepdims=True)
    y = (groups - mean) * lax.rsqrt(variance + 1e-6)
    return (y.reshape(x.shape) * s + b).astype(x.dtype)


def normed_u_net(x: Any, down: Any, one: Any, two: Any, up: Any, s: Any, b: Any) -> Any:
    """A level with group norms before each convolution, a skip and a deconvolution."""
    y = conv(x, down, 2)
    y = y + conv(jax.nn.silu(grouped_norm(y, s, b)), one)
    y = y + conv(jax.nn.silu(grouped_norm(y, s, b)), two)
    dims = ("NHWC", "HWIO", "NHWC")
    return x + lax.conv_transpose(y, up, (2, 2), "SAME", dimension_numbers=dims)


SEQUENCE, SQUARE = of(4, 1024, 768), of(768, 768)
S, B = of(768, dtype=F32), of(768, dtype=F32)
WIDE = of(384, dtype=F32)
CHANNELS = of(128, dtype=F32)
TREE = [of(4096, 1024, dtype=F32), of(1024, 2048, dtype=F32), of(2048, dtype=F32)]
HALF = [of(*leaf.shape) for leaf in TREE]

#: Name -> (function, its arguments).
FURTHER: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "decayed state": (
        grads(decayed, 8),
        (of(16, 128, 512), *[of(512, 512)] * 4, of(3, 512), of(512, dtype=F32),
         of(512, dtype=F32)),
    ),
    "inverted residual": (
        grads(depthwise, 6),
        (of(16, 28, 28, 64), of(1, 1, 64, 384), of(3, 3, 1, 384), of(1, 1, 384, 64), WIDE, WIDE),
    ),
    "windowed attention": (
        grads(windowed, 6),
        (SEQUENCE, SQUARE, of(768, 192), of(768, 192), SQUARE, S, of(1024, 32, dtype=F32)),
    ),
    "many norms": (
        grads(norms, 5),
        (SEQUENCE, of(2, 768, 1536), of(2, 1536, 768), of(2, 768, dtype=F32),
         of(2, 768, dtype=F32)),
    ),
    "codebook": (
        jax.grad(codebook, argnums=(0, 1, 2)),
        (of(8192, 256), of(2048, 128, dtype=F32), of(256, 128)),
    ),
    "sorted routing": (
        grads(sorted_routing, 4), (of(4096, 512), of(512, 8), of(8, 512, 1024), of(8, 1024, 512)),
    ),
    "spectral mixing": (
        grads(spectral, 6),
        (of(16, 512, 384), of(2, 257, 512), of(2, 512, 257), of(2, 257, 384, dtype=BF16),
         of(384, 768), of(768, 384)),
    ),
    "focal loss": (
        jax.grad(focal, argnums=(0, 2)),
        (of(16, 8192, 91), of(16, 8192, dtype=I32), of(16, 8192, 4), of(16, 8192, 4, dtype=F32)),
    ),
    "AdamW and average": (optimizer, (TREE, HALF, TREE, TREE, TREE, of(dtype=F32))),
    "normed U-Net": (
        grads(normed_u_net, 7),
        (of(8, 64, 64, 64), of(3, 3, 64, 128), of(3, 3, 128, 128), of(3, 3, 128, 128),
         of(4, 4, 128, 64), CHANNELS, CHANNELS),
    ),
}  # fmt: skip
