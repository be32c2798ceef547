"""Training steps of five kinds that no other program here has, written before XLA compiled them.

Messages along the edges of a graph, dilated convolutions of a sequence, two towers of embeddings,
a token that attends to a cache, and a recurrence computed as an associative scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import F32, I32, grads, of, rms


def messages(x: Any, own: Any, send: Any, source: Any, target: Any) -> Any:
    """Two rounds of a graph network: sums over the edges of each node."""
    for i in range(2):
        found = jax.nn.silu(x @ send[i])[source]
        x = x @ own[i] + jax.ops.segment_sum(found, target, x.shape[0])
    return x


def along(x: Any, w: Any, step: int) -> Any:
    """A causal convolution of each value with the one ``step`` before."""
    dims = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(
        x, w, (1,), [(step, 0)], rhs_dilation=(step,), dimension_numbers=dims
    )


def dilated(x: Any, gate: Any, value: Any, out: Any) -> Any:
    """WaveNet's gated convolutions, each with twice the distance of the one before."""
    for i in range(4):
        y = jnp.tanh(along(x, value[i], 2**i)) * jax.nn.sigmoid(along(x, gate[i], 2**i))
        x = x + y @ out[i]
    return x


def towers(users: Any, items: Any, left: Any, right: Any, user: Any, item: Any) -> Any:
    """Two towers of summed embeddings, scored against each other within the batch."""
    a = jax.nn.relu(users[user].sum(1) @ left)
    b = jax.nn.relu(items[item].sum(1) @ right)
    scores = (a @ b.T).astype(F32) / 8
    return -jnp.diagonal(jax.nn.log_softmax(scores))


def token(
    x: Any, keys: Any, values: Any, wq: Any, wk: Any, wv: Any, wo: Any, s: Any, at: Any
) -> Any:
    """A decoded token in front of a cache, which it is written into."""
    y = rms(x, s)
    q, k, v = ((y @ w).reshape(x.shape[0], 8, -1) for w in (wq, wk, wv))
    keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0, 0))
    values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0, 0))
    scores = jnp.einsum("bhd,bthd->bht", q, keys).astype(F32) / 8
    scores = jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -1e9)
    mixed = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores).astype(x.dtype), values)
    return x + mixed.reshape(x.shape[0], -1) @ wo, keys, values


def decaying(x: Any, decay: Any, into: Any, out: Any) -> Any:
    """A linear recurrence per channel, as an associative scan over the sequence."""
    a, b = jax.nn.sigmoid(x @ decay).astype(F32), (x @ into).astype(F32)
    _, y = lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b), axis=1)
    return x + y.astype(x.dtype) @ out


LATEST: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "graph network": (
        grads(messages, 3),
        (of(8192, 256), of(2, 256, 256), of(2, 256, 256), of(65536, dtype=I32),
         of(65536, dtype=I32)),
    ),
    "dilated convolutions": (
        grads(dilated, 4),
        (of(8, 2048, 128), of(4, 2, 128, 128), of(4, 2, 128, 128), of(4, 128, 128)),
    ),
    "two towers": (
        grads(towers, 4),
        (of(50000, 128, dtype=F32), of(20000, 128, dtype=F32), of(128, 128, dtype=F32),
         of(128, 128, dtype=F32), of(2048, 8, dtype=I32), of(2048, 8, dtype=I32)),
    ),
    "decoded token": (
        token,
        (of(32, 1024), of(32, 2048, 8, 128), of(32, 2048, 8, 128), *[of(1024, 1024)] * 4,
         of(1024, dtype=F32), of(dtype=I32)),
    ),
    "associative scan": (
        grads(decaying, 4), (of(4, 1024, 512), *[of(512, 512)] * 3),
    ),
}  # fmt: skip
