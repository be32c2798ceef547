"""Steps of eight kinds that no other program here has, written before XLA compiled them.

Mamba-2's scan in chunks, a Conformer's convolution, a diffusion transformer's block with its
conditions, a mixture of depths, an LSTM with projections, a step of beam search, K-FAC, and the
check of drafted tokens in f16 with scaled rotary places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import F32, I32, grads, normed, of, rms

F16 = jnp.float16


def chunks(x: Any, dt: Any, b: Any, c: Any, a: Any, o: Any) -> Any:
    """Mamba-2's state space: products within chunks of 64, states between them by a scan."""
    batch, length, count, width = x.shape
    count_of = length // 64
    x, b, c = (t.reshape(batch, count_of, 64, *t.shape[2:]) for t in (x, b, c))
    step = jax.nn.softplus(dt.astype(F32)).reshape(batch, count_of, 64, count)
    decay = jnp.cumsum(-jnp.exp(a) * step, 2).transpose(0, 1, 3, 2)
    seen = jnp.tril(jnp.ones((64, 64), bool))
    between = jnp.where(seen, jnp.exp(decay[..., :, None] - decay[..., None, :]), 0)
    fed = (x * step[..., None]).astype(x.dtype)
    scores = jnp.einsum("bgin,bgjn->bgij", c, b)[:, :, None] * between.astype(x.dtype)
    inner = jnp.einsum("bghij,bgjhp->bgihp", scores, fed)
    last = jnp.exp(decay[..., -1:] - decay).astype(x.dtype)
    states = jnp.einsum("bgjn,bghj,bgjhp->bghpn", b, last, fed).astype(F32)

    def carry(state: Any, given: Any) -> Any:
        new, total = given
        return state * jnp.exp(total)[..., None, None] + new, state

    start = jnp.zeros((batch, count, width, b.shape[-1]), F32)
    inputs = (states.swapaxes(0, 1), decay[..., -1].swapaxes(0, 1))
    before = lax.scan(carry, start, inputs)[1].swapaxes(0, 1).astype(x.dtype)
    outer = jnp.einsum("bgin,bghpn,bghi->bgihp", c, before, jnp.exp(decay).astype(x.dtype))
    return (inner + outer).reshape(batch, length, -1) @ o


def conformer(x: Any, first: Any, each: Any, last: Any, s: Any, b: Any) -> Any:
    """A gated product, a convolution along time for each feature, a batch norm and a product."""
    value, gate = jnp.split(normed(x, s[0], b[0]) @ first, 2, -1)
    y = value * jax.nn.sigmoid(gate)
    y = lax.conv_general_dilated(
        y, each, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=y.shape[-1],
    )  # fmt: skip
    return x + jax.nn.swish(normed(y, s[1], b[1], (0, 1))) @ last


def conditioned(x: Any, time: Any, to: Any, qkv: Any, o: Any, up: Any, down: Any) -> Any:
    """A diffusion transformer's block: norms scaled and shifted, and branches gated, by a time."""
    parts = jnp.split((jax.nn.silu(time) @ to)[:, None], 6, -1)
    one = jnp.ones((x.shape[-1],), F32)

    def changed(y: Any, n: int) -> Any:
        return normed(y, one, 0 * one) * (1 + parts[n]) + parts[n + 1]

    y = (changed(x, 0) @ qkv).reshape(*x.shape[:2], 3, -1, 64)
    x = (
        x
        + parts[2]
        * jax.nn.dot_product_attention(y[:, :, 0], y[:, :, 1], y[:, :, 2]).reshape(x.shape)
        @ o
    )
    return x + parts[5] * (jax.nn.gelu(changed(x, 3) @ up) @ down)


def depths(x: Any, router: Any, up: Any, gate: Any, down: Any, s: Any) -> Any:
    """A mixture of depths: an eighth of a sequence's tokens take the layer, the others pass."""
    weights = (x @ router)[..., 0].astype(F32)
    best, places = lax.top_k(weights, x.shape[1] // 8)
    chosen = jnp.take_along_axis(x, places[..., None], 1)
    y = rms(chosen, s)
    y = (jax.nn.silu(y @ gate) * (y @ up)) @ down
    y = y * jax.nn.sigmoid(best)[..., None].astype(x.dtype)
    return x.at[jnp.arange(x.shape[0])[:, None], places].add(y)


def projected(x: Any, w: Any, u: Any, b: Any, p: Any) -> Any:
    """An LSTM over 32 steps, whose output is projected to fewer features."""

    def cell(carried: Any, given: Any) -> Any:
        h, c = carried
        i, f, g, o = jnp.split((given + h @ u).astype(F32) + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = (jax.nn.sigmoid(o) * jnp.tanh(c)).astype(x.dtype) @ p
        return (h, c), h

    rows = x.shape[1]
    start = (jnp.zeros((rows, p.shape[1]), x.dtype), jnp.zeros((rows, p.shape[0]), F32))
    return lax.scan(cell, start, x @ w)[1]


def beams(x: Any, scores: Any, keys: Any, values: Any, w: Any, head: Any, written: Any) -> Any:
    """One step of beam search: attention to what was kept, the best of all continuations, and
    everything that is kept in the order of the beams that go on."""
    batch, width, _, heads, size = keys.shape
    q, k, v = jnp.split((x @ w).reshape(batch, width, 3, heads, size), 3, 2)
    keys = keys.at[:, :, -1].set(k[:, :, 0])
    values = values.at[:, :, -1].set(v[:, :, 0])
    weights = jnp.einsum("bwhd,bwlhd->bwhl", q[:, :, 0], keys).astype(F32) / size**0.5
    mixed = jnp.einsum("bwhl,bwlhd->bwhd", jax.nn.softmax(weights, -1).astype(x.dtype), values)
    logits = ((x + mixed.reshape(x.shape)) @ head).astype(F32)
    total = scores[..., None] + jax.nn.log_softmax(logits, -1)
    vocabulary = head.shape[1]
    best, places = lax.top_k(total.reshape(batch, -1), width)
    origin, tokens = places // vocabulary, places % vocabulary

    def ordered(t: Any) -> Any:
        return jnp.take_along_axis(t, origin.reshape(batch, width, *(1,) * (t.ndim - 2)), 1)

    written = jnp.concatenate([ordered(written)[:, :, 1:], tokens[..., None]], -1)
    return best, ordered(keys), ordered(values), written


def kronecker(w: Any, inputs: Any, errors: Any, left: Any, right: Any, momentum: Any) -> Any:
    """K-FAC: moving averages of both factors, five of Newton's steps to their inverses, and the
    gradient between them, scaled to a trust region."""
    rows = inputs.shape[0]
    left = 0.95 * left + 0.05 * (inputs.T @ inputs).astype(F32) / rows
    right = 0.95 * right + 0.05 * (errors.T @ errors).astype(F32) / rows

    def inverse(m: Any) -> Any:
        m = m + 1e-3 * jnp.eye(m.shape[0])
        y = m.T / (jnp.abs(m).sum(0).max() * jnp.abs(m).sum(1).max())
        for _ in range(5):
            y = 2 * y - y @ (m @ y)
        return y

    gradient = (inputs.T @ errors).astype(F32) / rows
    new = inverse(left) @ gradient @ inverse(right)
    new = new * jnp.minimum(1, jnp.sqrt(1e-3 / (new * gradient).sum()))
    momentum = 0.9 * momentum + new
    return (w.astype(F32) - 0.01 * momentum).astype(w.dtype), left, right, momentum


def drafted(x: Any, keys: Any, values: Any, w: Any, o: Any, head: Any, guesses: Any) -> Any:
    """Eight drafted tokens per sequence in f16: rotary places of scaled frequencies, grouped
    queries over what is kept, and how many of the guesses are accepted."""
    tokens, odds, dice = guesses
    batch, count, _ = x.shape
    length, groups, size = keys.shape[1:]
    waves = 1 / 500000.0 ** (jnp.arange(0, size, 2, dtype=F32) / size)
    long = 2 * jnp.pi / waves
    smooth = jnp.clip((8192 / long - 1) / 3, 0, 1)
    waves = jnp.where(long < 2048, waves, (1 - smooth) * waves / 8 + smooth * waves)
    angles = (length - count + jnp.arange(count, dtype=F32))[:, None] * waves
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]

    def turned(t: Any) -> Any:
        a, b = jnp.split(t.astype(F32), 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(F16)

    y = (x @ w).reshape(batch, count, -1, size)
    q, k, v = (
        turned(y[:, :, : -2 * groups]),
        turned(y[:, :, -2 * groups : -groups]),
        y[:, :, -groups:],
    )
    keys = lax.dynamic_update_slice_in_dim(keys, k, length - count, 1)
    values = lax.dynamic_update_slice_in_dim(values, v, length - count, 1)
    q = q.reshape(batch, count, groups, -1, size)
    scores = jnp.einsum("bigrd,bjgd->bgrij", q, keys).astype(F32) / size**0.5
    seen = jnp.arange(length) <= length - count + jnp.arange(count)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1).astype(F16)
    mixed = jnp.einsum("bgrij,bjgd->bigrd", weights, values).reshape(batch, count, -1)
    chances = jax.nn.softmax(((x + mixed @ o) @ head).astype(F32), -1)
    own = jnp.take_along_axis(chances, tokens[..., None], -1)[..., 0]
    accepted = jnp.cumprod(dice * odds <= own, 1).sum(1)
    left = jnp.take_along_axis(chances, jnp.minimum(accepted, count - 1)[:, None, None], 1)[:, 0]
    return accepted, left.argmax(-1), keys, values


UNTOUCHED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scan in chunks": (
        grads(chunks, 6),
        (of(4, 1024, 16, 64), of(4, 1024, 16), of(4, 1024, 64), of(4, 1024, 64),
         of(16, dtype=F32), of(1024, 512)),
    ),
    "Conformer's convolution": (
        grads(conformer, 6),
        (of(16, 512, 512), of(512, 1024), of(31, 1, 512), of(512, 512), of(2, 512, dtype=F32),
         of(2, 512, dtype=F32)),
    ),
    "conditioned block": (
        grads(conditioned, 7),
        (of(16, 256, 768), of(16, 768), of(768, 4608), of(768, 2304), of(768, 768),
         of(768, 3072), of(3072, 768)),
    ),
    "mixture of depths": (
        grads(depths, 6),
        (of(8, 2048, 1024), of(1024, 1), of(1024, 4096), of(1024, 4096), of(4096, 1024),
         of(1024, dtype=F32)),
    ),
    "projected LSTM": (
        grads(projected, 5),
        (of(32, 256, 256), of(256, 4096), of(256, 4096), of(4096, dtype=F32), of(1024, 256)),
    ),
    "beam search": (
        beams,
        (of(16, 4, 1024), of(16, 4, dtype=F32), of(16, 4, 256, 16, 64), of(16, 4, 256, 16, 64),
         of(1024, 3072), of(1024, 32768), of(16, 4, 256, dtype=I32)),
    ),
    "K-FAC": (
        kronecker,
        (of(1024, 512), of(8192, 1024), of(8192, 512), of(1024, 1024, dtype=F32),
         of(512, 512, dtype=F32), of(1024, 512, dtype=F32)),
    ),
    "drafted tokens": (
        drafted,
        (of(8, 8, 2048, dtype=F16), of(8, 2048, 4, 128, dtype=F16), of(8, 2048, 4, 128, dtype=F16),
         of(2048, 3072, dtype=F16), of(2048, 2048, dtype=F16), of(2048, 32000, dtype=F16),
         (of(8, 8, dtype=I32), of(8, 8, dtype=F32), of(8, 8, dtype=F32))),
    ),
}  # fmt: skip
