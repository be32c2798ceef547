"""Steps of ten kinds that no other program here has, written before XLA compiled them.

Fourier mixing, statistics of a graph's neighbours, a sparse autoencoder, products of weights of
eight bits with a scale for each group, MBConv, sorted projections, a conditional random field, a
spatial transformer, spectral norms, and tokens that are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import F32, I32, conv, grads, normed, of

I8 = jnp.int8


def fourier(x: Any, up: Any, down: Any, s: Any, b: Any) -> Any:
    """FNet's layer: the real part of a transform over tokens and features in place of attention."""
    mixed = jnp.fft.fft(jnp.fft.fft(x.astype(F32), axis=-1), axis=1).real.astype(x.dtype)
    x = normed(x + mixed, s[0], b[0])
    return normed(x + jax.nn.gelu(x @ up) @ down, s[1], b[1])


def neighbours(x: Any, source: Any, target: Any, message: Any, update: Any) -> Any:
    """Means, greatest values and deviations of what each node's neighbours send (PNA)."""
    count = x.shape[0]
    sent = jax.nn.relu(jnp.concatenate([x[source], x[target]], -1) @ message).astype(F32)
    degree = jnp.maximum(jax.ops.segment_sum(jnp.ones(source.shape, F32), target, count), 1)
    mean = jax.ops.segment_sum(sent, target, count) / degree[:, None]
    square = jax.ops.segment_sum(sent * sent, target, count) / degree[:, None]
    most = jnp.maximum(jax.ops.segment_max(sent, target, count), 0)
    deviation = jnp.sqrt(jax.nn.relu(square - mean * mean) + 1e-5)
    found = jnp.concatenate([mean, most, deviation], -1)
    scale = jnp.log(degree + 1)[:, None]
    found = jnp.concatenate([found, found * scale, found / scale], -1).astype(x.dtype)
    return x + found @ update


def sparse(x: Any, into: Any, out: Any, before: Any, after: Any) -> Any:
    """A sparse autoencoder that keeps 32 features of each token."""
    features = (x - after.astype(x.dtype)) @ into + before.astype(x.dtype)
    best, places = lax.top_k(features, 32)
    rows = jnp.arange(x.shape[0])[:, None]
    kept = jnp.zeros_like(features).at[rows, places].set(jax.nn.relu(best))
    return kept @ out + after.astype(x.dtype) - x


def rescaled(x: Any, up: Any, scale: Any, down: Any, scale_down: Any) -> Any:
    """Products of weights of eight bits with a scale for each group of 128 inputs."""

    def whole(w: Any, s: Any) -> Any:
        groups = w.reshape(s.shape[0], -1, w.shape[1]).astype(x.dtype) * s[:, None]
        return groups.reshape(w.shape)

    return jax.nn.silu(x @ whole(up, scale)) @ whole(down, scale_down)


def mobile(x: Any, up: Any, each: Any, one: Any, two: Any, down: Any, s: Any, b: Any) -> Any:
    """EfficientNet's MBConv: wider, a convolution of each channel, a gate, narrower."""
    y = jax.nn.silu(normed(conv(x, up), s, b, (0, 1, 2)))
    y = lax.conv_general_dilated(
        y, each, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=y.shape[-1],
    )  # fmt: skip
    y = jax.nn.silu(normed(y, s, b, (0, 1, 2)))
    pooled = y.astype(F32).mean((1, 2)).astype(y.dtype)
    gate = jax.nn.sigmoid(jax.nn.silu(pooled @ one) @ two)
    return x + conv(y * gate[:, None, None], down)


def projections(x: Any, y: Any, w: Any, directions: Any) -> Any:
    """The distance of two sets of points by their sorted projections (sliced Wasserstein)."""
    directions = directions / jnp.linalg.norm(directions, axis=0, keepdims=True)
    one = jnp.sort((x @ w).astype(F32) @ directions, 0)
    two = jnp.sort(y.astype(F32) @ directions, 0)
    return one - two


def field(x: Any, w: Any, moves: Any, tags: Any) -> Any:
    """How unlikely the tags are under a conditional random field over 64 places."""
    scores = (x @ w).astype(F32).swapaxes(0, 1)

    def step(state: Any, given: Any) -> Any:
        return jax.nn.logsumexp(state[:, :, None] + moves, 1) + given, None

    total = jax.nn.logsumexp(lax.scan(step, scores[0], scores[1:])[0], -1)
    own = jnp.take_along_axis(scores, tags.T[..., None], -1)[..., 0].sum(0)
    return total - own - moves[tags[:, :-1], tags[:, 1:]].sum(1)


def warped(x: Any, shift: Any, w: Any) -> Any:
    """A spatial transformer: an image read between its pixels at places that are learned."""
    _, height, width, _ = x.shape
    grid = jnp.stack(jnp.meshgrid(jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width)), -1)
    homogeneous = jnp.concatenate([grid, jnp.ones_like(grid[..., :1])], -1)
    places = jnp.einsum("hwk,bjk->bhwj", homogeneous, shift)
    column, row = (places[..., 0] + 1) * (width - 1) / 2, (places[..., 1] + 1) * (height - 1) / 2
    left, top = jnp.floor(column), jnp.floor(row)
    pick = jax.vmap(lambda image, r, c: image[r, c])

    def at(r: Any, c: Any) -> Any:
        rows = jnp.clip(r, 0, height - 1).astype(I32)
        weight = (1 - jnp.abs(row - r)) * (1 - jnp.abs(column - c))
        columns = jnp.clip(c, 0, width - 1).astype(I32)
        return pick(x, rows, columns) * weight[..., None].astype(x.dtype)

    mixed = at(top, left) + at(top + 1, left) + at(top, left + 1) + at(top + 1, left + 1)
    return conv(mixed, w)


def spectral(x: Any, w: Any, v: Any, u: Any, g: Any) -> Any:
    """A layer whose matrix has its greatest singular value, by a power iteration, as its unit, and
    one whose columns have a learned length."""
    m = lax.stop_gradient(w).astype(F32)
    right = m.T @ u
    right = right / jnp.linalg.norm(right)
    left = m @ right
    left = left / jnp.linalg.norm(left)
    sigma = left @ (w.astype(F32) @ right)
    y = jax.nn.leaky_relu(x @ (w / sigma.astype(w.dtype)), 0.2)
    length = jnp.sqrt((v.astype(F32) ** 2).sum(0))
    return y @ (v * (g / length).astype(v.dtype))


def merged(x: Any, w: Any, o: Any) -> Any:
    """Tokens merged with the nearest of the others before a product (ToMe)."""
    keys = (x @ w).astype(F32)
    keys = keys / jnp.linalg.norm(keys, axis=-1, keepdims=True)
    even, odd = keys[:, ::2].astype(x.dtype), keys[:, 1::2].astype(x.dtype)
    scores = jnp.einsum("bid,bjd->bij", even, odd).astype(F32)
    best, nearest = scores.max(-1), scores.argmax(-1)
    order = jnp.argsort(-best, -1)
    count = order.shape[1] // 2
    source, others = order[:, :count], order[:, count:]
    target = jnp.take_along_axis(nearest, source, 1)
    moving = jnp.take_along_axis(x[:, ::2], source[..., None], 1)
    stays = jnp.take_along_axis(x[:, ::2], others[..., None], 1)
    rows = jnp.arange(x.shape[0])[:, None]
    goal = x[:, 1::2].astype(F32).at[rows, target].add(moving.astype(F32))
    number = jnp.ones(goal.shape[:2], F32).at[rows, target].add(1)
    goal = (goal / number[..., None]).astype(x.dtype)
    return jnp.concatenate([stays, goal], 1) @ o


UNGUIDED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Fourier mixing": (
        grads(fourier, 5),
        (of(16, 512, 768), of(768, 3072), of(3072, 768), of(2, 768, dtype=F32),
         of(2, 768, dtype=F32)),
    ),
    "statistics of neighbours": (
        lambda x, s, t, m, u: grads(lambda x, m, u: neighbours(x, s, t, m, u), 3)(x, m, u),
        (of(16384, 128), of(131072, dtype=I32), of(131072, dtype=I32), of(256, 128),
         of(1152, 128)),
    ),
    "sparse autoencoder": (
        grads(sparse, 5),
        (of(4096, 768), of(768, 16384), of(16384, 768), of(16384, dtype=F32), of(768, dtype=F32)),
    ),
    "scales of groups": (
        rescaled,
        (of(512, 4096), of(4096, 8192, dtype=I8), of(32, 8192), of(8192, 4096, dtype=I8),
         of(64, 4096)),
    ),
    "MBConv": (
        grads(mobile, 8),
        (of(32, 28, 28, 96), of(1, 1, 96, 384), of(3, 3, 1, 384), of(384, 24), of(24, 384),
         of(1, 1, 384, 96), of(384, dtype=F32), of(384, dtype=F32)),
    ),
    "sorted projections": (
        lambda x, y, w, d: grads(lambda x, w: projections(x, y, w, d), 2)(x, w),
        (of(8192, 512), of(8192, 256), of(512, 256), of(256, 128, dtype=F32)),
    ),
    "random field": (
        lambda x, w, m, t: grads(lambda x, w, m: field(x, w, m, t), 3)(x, w, m),
        (of(128, 64, 512), of(512, 48), of(48, 48, dtype=F32), of(128, 64, dtype=I32)),
    ),
    "warped image": (
        grads(warped, 3),
        (of(32, 64, 64, 64), of(32, 2, 3, dtype=F32), of(3, 3, 64, 64)),
    ),
    "spectral norms": (
        lambda x, w, v, u, g: grads(lambda w, v, g, x: spectral(x, w, v, u, g), 4)(w, v, g, x),
        (of(8192, 1024), of(1024, 2048), of(2048, 1024), of(1024, dtype=F32),
         of(1024, dtype=F32)),
    ),
    "merged tokens": (
        grads(merged, 3),
        (of(16, 1024, 768), of(768, 64), of(768, 768)),
    ),
}  # fmt: skip
