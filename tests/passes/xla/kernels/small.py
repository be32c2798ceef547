"""Small steps, each of one thing that models have, the losses and optimizers among them in
``small_losses``.

Written before XLA compiled them, to find rules that are wrong where nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import BF16, F32, conv, grads, normed, of, rms

SMALL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
X = of(8, 512, 1024)
W = of(1024, 1024)
V = of(1024, dtype=F32)


def p(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    SMALL[name] = (function, arguments)


def g(name: str, function: Callable[..., Any], count: int, *arguments: Any) -> None:
    """The gradients of so many arguments."""
    SMALL[name] = (grads(function, count), arguments)


g(
    "glu split",
    lambda w, o, x: (lambda a, b: (jax.nn.silu(a) * b) @ o)(*jnp.split(x @ w, 2, -1)),
    2,
    of(1024, 4096),
    of(2048, 1024),
    X,
)
g(
    "geglu stride",
    lambda w, o, x: (lambda y: (jax.nn.gelu(y[..., ::2]) * y[..., 1::2]) @ o)(x @ w),
    2,
    of(1024, 4096),
    of(2048, 1024),
    X,
)
g("qk norm", lambda w, s, x: rms((x @ w).reshape(8, 512, 16, 64), s), 2, W, of(64, dtype=F32), X)
g(
    "rope interleaved",
    lambda w, x, c: (
        lambda y: jnp.stack(
            [y[..., 0] * c - y[..., 1] * c, y[..., 1] * c + y[..., 0] * c], -1
        ).reshape(8, 512, 1024)
    )((x @ w).reshape(8, 512, 16, 32, 2).astype(F32)).astype(BF16),
    1,
    W,
    X,
    of(512, 1, 32, dtype=F32),
)


def rep(q, k, v, x):
    a = (x @ q).reshape(8, 512, 16, 64)
    b = jnp.repeat((x @ k).reshape(8, 512, 4, 64), 4, 2)
    c = jnp.repeat((x @ v).reshape(8, 512, 4, 64), 4, 2)
    s = jnp.einsum("bqhd,bkhd->bhqk", a, b).astype(F32) * 0.125
    s = jnp.where(jnp.tril(jnp.ones((512, 512), bool)), s, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(BF16), c).reshape(
        8, 512, 1024
    )


g("repeat kv", rep, 3, W, of(1024, 256), of(1024, 256), X)
g(
    "moving batch norm",
    lambda s, b, x: normed(x, s, b, (0, 1, 2)),
    2,
    of(64, dtype=F32),
    of(64, dtype=F32),
    of(16, 64, 64, 64),
)
p(
    "bn stats",
    lambda x, m, v: (
        lambda mu, var: ((x - mu) * lax.rsqrt(var + 1e-5), 0.9 * m + 0.1 * mu, 0.9 * v + 0.1 * var)
    )(x.mean((0, 1, 2)), x.var((0, 1, 2))),
    of(16, 64, 64, 64, dtype=F32),
    of(64, dtype=F32),
    of(64, dtype=F32),
)
g(
    "conv bias relu",
    lambda w, b, x: jax.nn.relu(conv(x, w) + b),
    2,
    of(3, 3, 64, 64),
    of(64),
    of(16, 64, 64, 64),
)
g(
    "avg pool",
    lambda w, x: (
        lax.reduce_window(conv(x, w).astype(F32), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        / 4
    ),
    1,
    of(3, 3, 64, 64),
    of(16, 64, 64, 64),
)
g(
    "upsample",
    lambda w, x: conv(jax.image.resize(x, (16, 64, 64, 64), "nearest"), w),
    1,
    of(3, 3, 64, 64),
    of(16, 32, 32, 64),
)
g("softmax axis1", lambda w, x: jax.nn.softmax((x @ w).astype(F32), 1), 1, W, X)
g(
    "layer scale drop path",
    lambda w, g_, x, m: x + m[:, None, None] * g_ * (x @ w),
    2,
    W,
    of(1024),
    X,
    of(8),
)
p(
    "dropout rng",
    lambda x, k: jnp.where(
        jax.random.bernoulli(jax.random.wrap_key_data(k), 0.9, x.shape), x / 0.9, 0
    ),
    X,
    of(2, dtype=jnp.uint32),
)
