"""Small steps that are losses, sums and optimizers, in ``SMALL``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import BF16, F32, I32, normed, of, rms
from tests.passes.xla.kernels.small import SMALL, V, W, X, g, p

__all__ = ["SMALL"]

g(
    "ce onehot",
    lambda w, x, at: (
        -(jax.nn.one_hot(at, 8192) * jax.nn.log_softmax((x @ w).astype(F32), -1)).sum(-1)
    ),
    1,
    of(1024, 8192),
    X,
    of(8, 512, dtype=I32),
)
g(
    "ce gather big",
    lambda w, x, at: (
        -jnp.take_along_axis(jax.nn.log_softmax((x @ w).astype(F32), -1), at[..., None], -1)
    ),
    1,
    of(1024, 50304),
    of(4, 512, 1024),
    of(4, 512, dtype=I32),
)
g(
    "ce lse",
    lambda w, x, at: (
        lambda z: jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, at[..., None], -1)[..., 0]
    )((x @ w).astype(F32)),
    1,
    of(1024, 32000),
    of(4, 512, 1024),
    of(4, 512, dtype=I32),
)
g(
    "embed pos",
    lambda t, q, w, i: (t[i] + q) @ w,
    3,
    of(32000, 1024),
    of(512, 1024),
    W,
    of(8, 512, dtype=I32),
)
g("cumsum", lambda w, x: jnp.cumsum((x @ w).astype(F32), 1), 1, W, X)
g(
    "topk gate",
    lambda r, x: (lambda v, i: jax.nn.softmax(v, -1))(*lax.top_k((x @ r).astype(F32), 2)),
    1,
    of(1024, 16),
    X,
)
g(
    "causal conv1d",
    lambda w, f, x: (
        lambda y: sum(jnp.pad(y, ((0, 0), (k, 0), (0, 0)))[:, :512] * f[k] for k in range(4))
    )(x @ w),
    2,
    W,
    of(4, 1024),
    X,
)
g(
    "shift",
    lambda w, m, x: (x * m + jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1] * (1 - m)) @ w,
    2,
    W,
    of(1024),
    X,
)
g("roll", lambda w, x: jnp.roll(x @ w, 3, 1) + x, 1, W, X)
p(
    "sgd clip norm",
    lambda ps, gs: (
        lambda n: jax.tree.map(lambda a, b: a - 0.1 * b * jnp.minimum(1, 1 / n), ps, gs)
    )(jnp.sqrt(sum((x.astype(F32) ** 2).sum() for x in gs))),
    [of(1024, 1024, dtype=F32), of(1024, 4096, dtype=F32), V],
    [of(1024, 1024, dtype=F32), of(1024, 4096, dtype=F32), V],
)
p(
    "master adamw",
    lambda w, m, v, q, g_: (
        lambda gg: (
            lambda m2, v2: (lambda w2: (w2, m2, v2, w2.astype(BF16)))(
                w - 1e-3 * (m2 / (jnp.sqrt(v2) + 1e-8) + 0.1 * w)
            )
        )(0.9 * m + 0.1 * gg, 0.99 * v + 0.01 * gg * gg)
    )(g_.astype(F32)),
    *[of(2048, 4096, dtype=F32)] * 3,
    of(2048, 4096),
    of(2048, 4096),
)
p(
    "ema",
    lambda a, b: jax.tree.map(lambda x, y: 0.999 * x + 0.001 * y.astype(F32), a, b),
    [of(1024, 1024, dtype=F32)] * 3,
    [of(1024, 1024)] * 3,
)
p(
    "accumulate",
    lambda a, w, x: a + (x.reshape(-1, 1024).T @ (x @ w).reshape(-1, 1024)).astype(F32),
    of(1024, 1024, dtype=F32),
    W,
    X,
)
p("rms residual", lambda x, r, s, w: (lambda h: (h, rms(h, s) @ w))(x + r), X, X, V, W)
p("layernorm stats", lambda x, s, b: normed(x, s, b), X, V, V)
g(
    "group norm silu",
    lambda s, b, x: jax.nn.silu(
        (
            lambda y: (
                (
                    (y - y.mean((1, 2, 4), keepdims=True))
                    * lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)
                ).reshape(x.shape)
                * s
                + b
            )
        )(x.astype(F32).reshape(8, 32, 32, 32, 8))
    ),
    2,
    of(256, dtype=F32),
    of(256, dtype=F32),
    of(8, 32, 32, 256),
)
g("bias gelu", lambda w, b, x: jax.nn.gelu(x @ w + b), 2, of(1024, 4096), of(4096), X)
g(
    "bias relu2",
    lambda w, b, o, x: jax.nn.relu(x @ w + b) ** 2 @ o,
    3,
    of(1024, 4096),
    of(4096),
    of(4096, 1024),
    X,
)
g(
    "mlp residual norm",
    lambda w, o, s, x: x + jax.nn.gelu(rms(x, s) @ w) @ o,
    3,
    of(1024, 4096),
    of(4096, 1024),
    V,
    X,
)
g(
    "fp32 attention bias",
    lambda q, b, x: (lambda s: jax.nn.softmax(s + b, -1))(
        jnp.einsum("bqd,bkd->bqk", x @ q, x, preferred_element_type=F32)
    ),
    2,
    W,
    of(512, 512, dtype=F32),
    X,
)
g(
    "kl distill",
    lambda w, x, t: (lambda a, b: (jnp.exp(b) * (b - a)).sum(-1))(
        jax.nn.log_softmax((x @ w).astype(F32), -1), jax.nn.log_softmax(t.astype(F32), -1)
    ),
    1,
    of(1024, 8192),
    X,
    of(8, 512, 8192),
)
p(
    "quantize rows",
    lambda x: (lambda s: (jnp.round(x.astype(F32) / s).astype(jnp.int8), s))(
        jnp.abs(x.astype(F32)).max(-1, keepdims=True) / 127
    ),
    X,
)
p(
    "patchify",
    lambda x, w: (
        x.reshape(8, 16, 16, 16, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(8, 256, 768) @ w
    ),
    of(8, 256, 256, 3),
    of(768, 1024),
)
p("masked mean", lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdims=True), X, of(8, 512))
p(
    "cosine",
    lambda a, b: (
        (a * lax.rsqrt((a * a).sum(-1, keepdims=True)))
        @ (b * lax.rsqrt((b * b).sum(-1, keepdims=True))).T
    ),
    of(2048, 1024),
    of(2048, 1024),
)
