"""Training steps of ten kinds that no other program here has, written before XLA compiled them.

Attention within shifted windows, with learned biases, and of a few latents to many inputs; a
selective state space and a retention in chunks; separable convolutions and a decoder that joins
what its encoder kept; a loss in chunks, pairs of embeddings, and an optimizer of factored moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import BF16, F32, I32, conv, grads, normed, of, rms

NHWC = ("NHWC", "HWIO", "NHWC")


def attended(q: Any, k: Any, v: Any, bias: Any = 0.0) -> Any:
    """Heads [batch, length, heads, size]."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) / q.shape[-1] ** 0.5 + bias
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def shifted_windows(x: Any, qkv: Any, o: Any, bias: Any, s: Any, b: Any) -> Any:
    """Windows of 8 x 8, shifted by 4, with a bias for each pair of places."""
    images, rows, _, width = x.shape
    y = jnp.roll(normed(x, s, b), (-4, -4), (1, 2))
    y = y.reshape(images, rows // 8, 8, rows // 8, 8, width).swapaxes(2, 3).reshape(-1, 64, width)
    q, k, v = ((y @ w).reshape(*y.shape[:2], 4, -1) for w in qkv)
    y = attended(q, k, v, bias).reshape(y.shape) @ o
    y = y.reshape(images, rows // 8, rows // 8, 8, 8, width).swapaxes(2, 3).reshape(x.shape)
    return x + jnp.roll(y, (4, 4), (1, 2))


def relative(x: Any, q: Any, k: Any, v: Any, o: Any, table: Any, s: Any) -> Any:
    """T5's: a bias for each of 32 buckets of distances, one matrix for all heads' scores."""
    y = rms(x, s)
    length = x.shape[1]
    a, b, c = ((y @ w).reshape(*x.shape[:2], 8, -1) for w in (q, k, v))
    far = jnp.abs(jnp.arange(length)[:, None] - jnp.arange(length)[None, :])
    bias = table[jnp.minimum(far // 8, 31)].transpose(2, 0, 1)[None]
    return x + attended(a, b, c, bias).reshape(x.shape) @ o


def latents(x: Any, z: Any, q: Any, k: Any, v: Any, up: Any, down: Any, s: Any) -> Any:
    """A few latents attend to many inputs, then a feed-forward network of the latents."""
    z = jnp.broadcast_to(z, (x.shape[0], *z.shape))
    y = rms(x, s)
    a, b, c = ((t @ w).reshape(*t.shape[:2], 4, -1) for t, w in ((z, q), (y, k), (y, v)))
    z = z + attended(a, b, c).reshape(z.shape)
    return z + jax.nn.gelu(z @ up) @ down


def selective(x: Any, gate: Any, into: Any, b: Any, c: Any, out: Any, a: Any) -> Any:
    """A state space whose step depends on the input, token by token."""
    y, gates = x @ into, jax.nn.silu(x @ gate)
    step = jax.nn.softplus(y.astype(F32))
    write, read = (x @ b).astype(F32), (x @ c).astype(F32)

    def cell(state: Any, row: Any) -> Any:
        delta, value, w, r = row
        state = jnp.exp(delta[..., None] * a) * state + (delta * value)[..., None] * w[:, None, :]
        return state, (state * r[:, None, :]).sum(-1)

    rows = [t.swapaxes(0, 1) for t in (step, y.astype(F32), write, read)]
    zero = jnp.zeros((x.shape[0], y.shape[-1], a.shape[-1]), F32)
    found = lax.scan(cell, zero, rows)[1].swapaxes(0, 1)
    return (found.astype(x.dtype) * gates) @ out


def retention(x: Any, q: Any, k: Any, v: Any, o: Any, decay: Any) -> Any:
    """Chunks of 128: within a chunk all pairs, decayed; a state goes from chunk to chunk."""
    batch, length, _ = x.shape
    a, b, c = ((x @ w).reshape(batch, length // 128, 128, 4, -1) for w in (q, k, v))
    places = jnp.arange(128)
    far = (places[:, None] - places[None, :]).astype(F32)
    weights = jnp.where(far >= 0, jnp.exp(far * decay[:, None, None]), 0.0).astype(x.dtype)
    scores = jnp.einsum("bnqhd,bnkhd->bnhqk", a, b) * weights
    inner = jnp.einsum("bnhqk,bnkhd->bnqhd", scores, c)

    def chunk(state: Any, row: Any) -> Any:
        q, k, v = row
        given = jnp.einsum("bqhd,bhde->bqhe", q, state)
        return state * 0.5 + jnp.einsum("bkhd,bkhe->bhde", k, v), given

    rows = [t.swapaxes(0, 1) for t in (a, b, c)]
    zero = jnp.zeros((batch, 4, a.shape[-1], a.shape[-1]), x.dtype)
    outer = lax.scan(chunk, zero, rows)[1].swapaxes(0, 1)
    return (inner + outer).reshape(x.shape) @ o


def separable(x: Any, deep: Any, wide: Any, s: Any, b: Any) -> Any:
    """MobileNet's: a filter per channel and a product, twice, the second at half the size."""
    for i, stride in enumerate((1, 2)):
        x = lax.conv_general_dilated(
            x, deep[i], (stride, stride), "SAME", dimension_numbers=NHWC,
            feature_group_count=x.shape[-1],
        )  # fmt: skip
        x = jax.nn.relu(normed(conv(x, wide[i]), s[i], b[i], (0, 1, 2)))
    return x


def joined(x: Any, kept: Any, up: Any, first: Any, second: Any, b: Any) -> Any:
    """A decoder's level: the coarse image twice as large, beside what the encoder kept."""
    y = x.repeat(2, 1).repeat(2, 2)
    y = jnp.concatenate([jax.nn.relu(conv(y, up)), kept], -1)
    y = jax.nn.relu(conv(y, first) + b[0])
    return jax.nn.relu(conv(y, second) + b[1])


def loss_in_chunks(x: Any, head: Any, target: Any) -> Any:
    """Scores of a chunk of tokens at a time, made again in the backward pass."""

    @jax.checkpoint
    def chunk(total: Any, row: Any) -> Any:
        tokens, wanted = row
        scores = (tokens @ head).astype(F32)
        found = jnp.take_along_axis(scores, wanted[:, None], 1)[:, 0]
        return total + (jax.nn.logsumexp(scores, -1) - found).sum(), None

    rows = (x.reshape(8, -1, x.shape[-1]), target.reshape(8, -1))
    return lax.scan(chunk, jnp.zeros((), F32), rows)[0]


def pairs(dense: Any, table: Any, places: Any, bottom: Any, top: Any) -> Any:
    """A recommender's: embeddings of 16 features, products of all pairs, a network on top."""
    found = table[places]  # [batch, features, width]
    y = jax.nn.relu(dense @ bottom)
    rows = jnp.concatenate([y[:, None], found], 1)
    products = jnp.einsum("bfd,bgd->bfg", rows, rows)
    lower = jnp.tril_indices(rows.shape[1], -1)
    return jax.nn.relu(jnp.concatenate([y, products[:, *lower]], -1) @ top)


def adafactor(p: Any, g: Any, rows: Any, columns: Any) -> Any:
    """Second moments factored into those of rows and columns, updates clipped by their norm."""
    new, r, c = [], [], []
    for w, grad, row, column in zip(p, g, rows, columns, strict=True):
        square = grad.astype(F32) ** 2 + 1e-30
        row = 0.99 * row + 0.01 * square.mean(-1)
        column = 0.99 * column + 0.01 * square.mean(-2)
        scale = lax.rsqrt(row / row.mean())[:, None] * lax.rsqrt(column)[None, :]
        step = grad.astype(F32) * scale
        step = step / jnp.maximum(1.0, jnp.sqrt((step * step).mean()))
        new.append(w - 0.01 * jnp.maximum(1e-3, jnp.sqrt((w * w).mean())) * step)
        r.append(row)
        c.append(column)
    return new, r, c


S, B = of(256, dtype=F32), of(256, dtype=F32)
SQUARE = of(512, 512)
TREE = [of(1024, 4096, dtype=F32), of(4096, 1024, dtype=F32)]

#: Name -> (function, its arguments).
NEWEST: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "shifted windows": (
        grads(shifted_windows, 6),
        (of(8, 64, 64, 256), of(3, 256, 256), of(256, 256), of(4, 64, 64, dtype=F32), S, B),
    ),
    "relative biases": (
        grads(relative, 7),
        (of(4, 512, 512), *[SQUARE] * 4, of(32, 8, dtype=F32), of(512, dtype=F32)),
    ),
    "latents": (
        grads(latents, 8),
        (of(8, 2048, 256), of(256, 512), SQUARE, of(256, 512), of(256, 512), of(512, 2048),
         of(2048, 512), of(256, dtype=F32)),
    ),
    "selective state space": (
        grads(selective, 7),
        (of(8, 64, 512), of(512, 1024), of(512, 1024), of(512, 16), of(512, 16), of(1024, 512),
         of(1024, 16, dtype=F32)),
    ),
    "retention": (
        grads(retention, 5), (of(4, 1024, 512), *[SQUARE] * 4, of(4, dtype=F32)),
    ),
    "separable convolutions": (
        grads(separable, 5),
        (of(16, 56, 56, 128), of(2, 3, 3, 1, 128), of(2, 1, 1, 128, 128), of(2, 128, dtype=F32),
         of(2, 128, dtype=F32)),
    ),
    "joined levels": (
        grads(joined, 6),
        (of(8, 32, 32, 128), of(8, 64, 64, 64), of(3, 3, 128, 64), of(3, 3, 128, 64),
         of(3, 3, 64, 64), of(2, 64)),
    ),
    "loss in chunks": (
        jax.grad(loss_in_chunks, argnums=(0, 1)),
        (of(4096, 512), of(512, 32000), of(4096, dtype=I32)),
    ),
    "pairs of embeddings": (
        grads(pairs, 2),
        (of(4096, 64), of(100000, 64, dtype=BF16), of(4096, 16, dtype=I32), of(64, 64),
         of(200, 256)),
    ),
    "Adafactor": (
        adafactor,
        (TREE, [of(*t.shape) for t in TREE], [of(t.shape[0], dtype=F32) for t in TREE],
         [of(t.shape[1], dtype=F32) for t in TREE]),
    ),
}  # fmt: skip
