"""Training steps of eight kinds that no other program here has, written before XLA compiled them.

A head tied to its embedding, rays through a field of colours, a variational autoencoder, low-rank
adapters of frozen matrices, optimal transport, attention along both axes of an image, a network
that makes images larger, and products of rounded values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import BF16, F32, I32, conv, grads, of, rms


def tied(tokens: Any, table: Any, up: Any, down: Any, s: Any) -> Any:
    """A language model whose head is its embedding, with a loss on the size of its logits."""
    x = table[tokens]
    x = x + jax.nn.gelu(rms(x, s) @ up) @ down
    logits = (rms(x, s) @ table.T).astype(F32)
    size = jax.nn.logsumexp(logits, -1)
    own = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return (size - own) + 1e-4 * size**2


def rays(points: Any, steps: Any, first: Any, second: Any, colour: Any) -> Any:
    """Colours along rays: waves of the places, a network, and how much light comes through."""
    waves = points[..., None] * (2.0 ** jnp.arange(8, dtype=F32))
    waves = waves.reshape(*points.shape[:2], -1)
    x = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1).astype(BF16)
    x = jax.nn.relu(jax.nn.relu(x @ first) @ second)
    found = (x @ colour).astype(F32)
    density = jax.nn.softplus(found[..., 3]) * steps
    through = jnp.exp(-jnp.cumsum(density, -1) + density)
    return ((through * (1 - jnp.exp(-density)))[..., None] * jax.nn.sigmoid(found[..., :3])).sum(1)


def variational(x: Any, noise: Any, down: Any, mean: Any, spread: Any, up: Any, out: Any) -> Any:
    """An autoencoder of images through a normal distribution, and its divergence."""
    h = jnp.tanh(x @ down)
    m, s = (h @ mean).astype(F32), (h @ spread).astype(F32)
    z = (m + jnp.exp(s / 2) * noise).astype(x.dtype)
    y = (jnp.tanh(z @ up) @ out).astype(F32)
    wrong = (jax.nn.softplus(y) - y * x.astype(F32)).sum(-1)
    return wrong + (jnp.exp(s) + m * m - 1 - s).sum(-1) / 2


def adapters(a: Any, b: Any, x: Any, w: Any, v: Any) -> Any:
    """Frozen matrices with low-rank additions, which alone are trained."""
    for matrix, n in ((w, 0), (v, 1)):
        x = x + jax.nn.silu(x @ matrix + (x @ a[n]) @ b[n] * 2)
    return x


def transport(x: Any, y: Any) -> Any:
    """Costs of moving points to others, by ten of Sinkhorn's steps on logarithms."""
    cost = (x * x).sum(-1)[:, :, None] - 2 * x @ y.swapaxes(1, 2) + (y * y).sum(-1)[:, None, :]
    left, right = jnp.zeros(x.shape[:2], F32), jnp.zeros(y.shape[:2], F32)

    def step(carried: Any, _: Any) -> Any:
        left, right = carried
        left = -jax.nn.logsumexp(right[:, None, :] - cost, 2)
        right = -jax.nn.logsumexp(left[:, :, None] - cost, 1)
        return (left, right), None

    (left, right), _ = lax.scan(step, (left, right), None, length=10)
    return jnp.exp(left[:, :, None] + right[:, None, :] - cost) * cost


def axial(x: Any, qkv: Any, o: Any, s: Any) -> Any:
    """Attention of an image's places to those of their row, then of their column."""
    for n, (heads, mix) in enumerate(
        (("bijhd,bikhd->bihjk", "bihjk,bikhd->bijhd"), ("bijhd,bkjhd->bjhik", "bjhik,bkjhd->bijhd"))
    ):
        y = (rms(x, s) @ qkv[n]).reshape(*x.shape[:3], 3, 8, -1)
        q, k, v = y[..., 0, :, :], y[..., 1, :, :], y[..., 2, :, :]
        weights = jax.nn.softmax(jnp.einsum(heads, q, k).astype(F32) / 8, -1).astype(x.dtype)
        x = x + jnp.einsum(mix, weights, v).reshape(x.shape) @ o[n]
    return x


def larger(x: Any, first: Any, second: Any, last: Any) -> Any:
    """Images twice as large: convolutions, whose features become places (depth to space)."""
    y = jax.nn.leaky_relu(conv(x, first), 0.2)
    y = x + conv(y, second) * 0.1
    y = conv(y, last)
    n, h, w, c = y.shape
    y = y.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, 2 * h, 2 * w, c // 4)


def rounded(x: Any, w: Any, v: Any) -> Any:
    """Products of values rounded to 8 bits by their largest, with gradients straight through."""

    def fake(t: Any, axis: int) -> Any:
        wide = t.astype(F32)
        scale = jnp.abs(wide).max(axis, keepdims=True) / 127
        near = (jnp.round(wide / scale) * scale).astype(t.dtype)
        return t + lax.stop_gradient(near - t)

    h = jax.nn.relu(fake(x, -1) @ fake(w, 0))
    return fake(h, -1) @ fake(v, 0)


UNMET: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "tied head": (
        grads(lambda table, up, down, s, tokens: tied(tokens, table, up, down, s), 4),
        (of(16384, 512), of(512, 2048), of(2048, 512), of(512, dtype=F32),
         of(4, 512, dtype=I32)),
    ),
    "rays": (
        grads(lambda first, second, colour, points, steps: rays(
            points, steps, first, second, colour), 3),
        (of(48, 256), of(256, 256), of(256, 8), of(1024, 64, 3, dtype=F32),
         of(1024, 64, dtype=F32)),
    ),
    "variational": (
        grads(lambda down, mean, spread, up, out, x, noise: variational(
            x, noise, down, mean, spread, up, out), 5),
        (of(3072, 1024), of(1024, 128), of(1024, 128), of(128, 1024), of(1024, 3072),
         of(2048, 3072), of(2048, 128, dtype=F32)),
    ),
    "adapters": (
        grads(adapters, 2),
        (of(2, 2048, 16), of(2, 16, 2048), of(4096, 2048), of(2048, 2048), of(2048, 2048)),
    ),
    "transport": (
        grads(transport, 2), (of(8, 512, 64, dtype=F32), of(8, 512, 64, dtype=F32)),
    ),
    "axial attention": (
        grads(axial, 4),
        (of(4, 32, 32, 512), of(2, 512, 1536), of(2, 512, 512), of(512, dtype=F32)),
    ),
    "super-resolution": (
        grads(larger, 4),
        (of(8, 64, 64, 64), of(3, 3, 64, 64), of(3, 3, 64, 64), of(3, 3, 64, 128)),
    ),
    "fake quantization": (
        grads(rounded, 3), (of(4096, 1024), of(1024, 4096), of(4096, 1024)),
    ),
}  # fmt: skip
