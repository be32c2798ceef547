"""Steps of ten more kinds that no other program here has, written before XLA compiled them.

Kalman filters, DenseNet's concatenations, attention with dropout, experts that choose tokens, the
delta rule, nucleus sampling, retrieval, equivariant messages, weights of four bits, and the second
derivatives of a physics-informed network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import F32, I32, conv, grads, normed, of

U8, U32 = jnp.uint8, jnp.uint32


def filtered(z: Any, turn: Any, noise: Any, see: Any) -> Any:
    """Squared innovations of Kalman filters that see one number at a time."""

    def step(state: Any, seen: Any) -> Any:
        mean, spread = state
        mean = mean @ turn.T
        spread = turn @ spread @ turn.T + noise
        across = spread @ see
        variance = across @ see + 1
        gain = across / variance[:, None]
        error = seen - mean @ see
        mean = mean + gain * error[:, None]
        return (mean, spread - gain[:, :, None] * across[:, None, :]), error * error / variance

    count, size = z.shape[0], turn.shape[0]
    first = jnp.zeros((count, size), F32), jnp.tile(jnp.eye(size, dtype=F32), (count, 1, 1))
    return lax.scan(step, first, z.T)[1]


def dense_block(x: Any, w1: Any, w2: Any, w3: Any, s: Any) -> Any:
    """Three layers that each read all before them (DenseNet)."""
    for w in (w1, w2, w3):
        y = jax.nn.relu(normed(x, s[: x.shape[-1]], 0.0, (0, 1, 2)))
        x = jnp.concatenate([x, conv(y, w)], -1)
    return x


def dropped(x: Any, qkv: Any, out: Any, up: Any, down: Any, key: Any) -> Any:
    """A block whose attention and residuals are dropped at random."""
    one, two, three = jax.random.split(key, 3)

    def drop(value: Any, key: Any) -> Any:
        kept = jax.random.bernoulli(key, 0.9, value.shape)
        return jnp.where(kept, value / 0.9, 0).astype(value.dtype)

    b, n, d = x.shape
    q, k, v = jnp.split((x @ qkv).reshape(b, n, 3, 12, 64), 3, 2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, :, 0], k[:, :, 0]).astype(F32) / 8
    weights = drop(jax.nn.softmax(scores, -1).astype(x.dtype), one)
    y = jnp.einsum("bhqk,bkhd->bqhd", weights, v[:, :, 0]).reshape(b, n, d)
    x = x + drop(y @ out, two)
    return x + drop(jax.nn.gelu(x @ up) @ down, three)


def choosing(x: Any, router: Any, up: Any, down: Any) -> Any:
    """Experts that choose 512 tokens each."""
    scores = jax.nn.softmax((x @ router).astype(F32), -1)
    weight, places = lax.top_k(scores.T, 512)
    y = jax.nn.silu(jnp.einsum("ecd,edf->ecf", x[places], up))
    y = jnp.einsum("ecf,efd->ecd", y, down) * weight[..., None].astype(x.dtype)
    return jnp.zeros_like(x).at[places.reshape(-1)].add(y.reshape(-1, x.shape[-1]))


def delta_rule(x: Any, wq: Any, wk: Any, wv: Any, wb: Any) -> Any:
    """A state that forgets what a key stood for before it takes in a value (DeltaNet)."""
    b, n, _ = x.shape
    q, k, v = ((x @ w).reshape(b, n, 8, 64).astype(F32) for w in (wq, wk, wv))
    k = k / jnp.linalg.norm(k, axis=-1, keepdims=True)
    rate = jax.nn.sigmoid((x @ wb).astype(F32))

    def step(state: Any, given: Any) -> Any:
        q, k, v, rate = given
        known = jnp.einsum("bhij,bhj->bhi", state, k)
        state = state + rate[..., None, None] * (v - known)[..., None] * k[..., None, :]
        return state, jnp.einsum("bhij,bhj->bhi", state, q)

    given = [each.swapaxes(0, 1) for each in (q, k, v, rate)]
    return lax.scan(step, jnp.zeros((b, 8, 64, 64), F32), tuple(given))[1].astype(x.dtype)


def nucleus(x: Any, head: Any, key: Any) -> Any:
    """One token for each row, of those that are 0.9 of all together."""
    logits = (x @ head).astype(F32) / 0.7
    order = jnp.argsort(-logits, -1)
    likely = jax.nn.softmax(jnp.take_along_axis(logits, order, -1), -1)
    before = jnp.cumsum(likely, -1) - likely
    kept = jnp.where(before < 0.9, jnp.log(likely), -jnp.inf)
    place = jax.random.categorical(key, kept, axis=-1)
    return jnp.take_along_axis(order, place[:, None], -1)[:, 0]


def retrieved(query: Any, documents: Any, w: Any, right: Any) -> Any:
    """How much nearer the right document is than the nearest ten of the others."""
    q = (query @ w).astype(F32)
    q = (q / jnp.linalg.norm(q, axis=-1, keepdims=True)).astype(query.dtype)
    scores = (q @ documents.T).astype(F32)
    own = jnp.take_along_axis(scores, right[:, None], -1)
    hidden = jnp.where(jnp.arange(scores.shape[1]) == right[:, None], -1e9, scores)
    hardest = lax.top_k(hidden, 10)[0]
    return jnp.maximum(hardest - own + 0.2, 0)


def equivariant(h: Any, place: Any, source: Any, target: Any, we: Any, wx: Any, wh: Any) -> Any:
    """Messages and moves along the edges of a graph in space (EGNN)."""
    count = h.shape[0]
    apart = place[source] - place[target]
    square = (apart * apart).sum(-1, keepdims=True)
    pair = jnp.concatenate([h[source], h[target], square.astype(h.dtype)], -1)
    message = jax.nn.silu(pair @ we)
    move = apart * jnp.tanh((message @ wx).astype(F32))
    place = place + jax.ops.segment_sum(move, target, count) / 16
    total = jax.ops.segment_sum(message.astype(F32), target, count).astype(h.dtype)
    return h + jnp.concatenate([h, total], -1) @ wh, place


def four_bits(x: Any, packed: Any, codes: Any, scale: Any, left: Any, right: Any) -> Any:
    """A product of weights that are places in a table of 16 numbers, and adapters (QLoRA)."""
    pairs = jnp.stack([packed & 15, packed >> 4], -1).reshape(-1, 64)
    w = (codes[pairs.astype(I32)] * scale[:, None]).astype(x.dtype)
    w = w.reshape(x.shape[-1], -1)
    return x @ lax.stop_gradient(w) + (x @ left) @ right


def physical(places: Any, first: Any, hidden: Any, last: Any) -> Any:
    """What is left of a heat equation with the derivatives of a network (PINN)."""

    def value(point: Any) -> Any:
        y = jnp.tanh(point @ first)
        for w in hidden:
            y = jnp.tanh(y @ w)
        return (y @ last)[0]

    def left(point: Any) -> Any:
        grad = jax.grad(value)
        along = jnp.array([1.0, 0.0], F32)
        second = jax.jvp(grad, (point,), (along,))[1][0]
        return grad(point)[1] - second

    return jax.vmap(left)(places)


UNTAUGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "filtered states": (
        lambda z, t, n, s: grads(lambda t, n, s: filtered(z, t, n, s), 3)(t, n, s),
        (of(4096, 32, dtype=F32), of(8, 8, dtype=F32), of(8, 8, dtype=F32), of(8, dtype=F32)),
    ),
    "dense concatenations": (
        grads(dense_block, 5),
        (of(32, 28, 28, 128), of(3, 3, 128, 64), of(3, 3, 192, 64), of(3, 3, 256, 64),
         of(256, dtype=F32)),
    ),
    "dropped attention": (
        lambda *a: grads(lambda *w: dropped(*w, a[5]), 5)(*a[:5]),
        (of(8, 512, 768), of(768, 2304), of(768, 768), of(768, 3072), of(3072, 768),
         of(2, dtype=U32)),
    ),
    "experts that choose": (
        grads(choosing, 4),
        (of(4096, 1024), of(1024, 8), of(8, 1024, 2048), of(8, 2048, 1024)),
    ),
    "delta rule": (
        grads(delta_rule, 5),
        (of(4, 128, 512), of(512, 512), of(512, 512), of(512, 512), of(512, 8)),
    ),
    # cuB, whose sorts need a device to be compiled for, is left out.
    "nucleus": (
        jax.jit(nucleus, compiler_options={"xla_gpu_enable_cub_radix_sort": False}),
        (of(64, 2048), of(2048, 32000), of(2, dtype=U32)),
    ),
    "retrieval": (
        lambda q, d, w, r: grads(lambda q, d, w: retrieved(q, d, w, r), 3)(q, d, w),
        (of(512, 768), of(32768, 256), of(768, 256), of(512, dtype=I32)),
    ),
    "equivariant messages": (
        lambda h, p, s, t, *w: grads(
            lambda h, p, *w: equivariant(h, p, s, t, *w)[0].astype(F32).sum(-1)
            + equivariant(h, p, s, t, *w)[1].sum(-1), 5
        )(h, p, *w),
        (of(8192, 128), of(8192, 3, dtype=F32), of(131072, dtype=I32), of(131072, dtype=I32),
         of(257, 128), of(128, 1), of(256, 128)),
    ),
    "four bits": (
        lambda x, p, c, s, one, two: grads(
            lambda x, one, two: four_bits(x, p, c, s, one, two), 3
        )(x, one, two),
        (of(2048, 4096), of(8388608, dtype=U8), of(16, dtype=F32), of(262144, dtype=F32),
         of(4096, 16), of(16, 4096)),
    ),
    "second derivatives": (
        grads(physical, 4),
        (of(16384, 2, dtype=F32), of(2, 128, dtype=F32), of(3, 128, 128, dtype=F32),
         of(128, 1, dtype=F32)),
    ),
}  # fmt: skip
