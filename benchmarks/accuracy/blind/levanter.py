"""What Levanter computes where no fused kernel takes its attention, and its loss.

The idea: splash attention of JAX up to 0.6 refuses heads of a size that 128 does not divide (its
kernel raises NotImplementedError), and Levanter then takes attention in blocks of 1,024 positions
that is written in plain JAX: XLA's own kernels, whose scores go through memory.

    mixer=functools.partial(attention, kernel=blockwise)

What is written here follows stanford-crfm/levanter at 9263f81e, ``models/flash_attention.py``, and
``cross_entropy_loss_and_log_normalizers`` of its Haliax: a block of queries goes through the blocks
of keys up to its own, with running maxima and sums in the type of the queries; backwards, scores
are computed again, a block of keys at a time.  What queries are normalised by is kept in f32
(``ell``), so that backwards the weights, the gradients of scores and the product that gives the
values' gradients are f32 too.  Its loops are unrolled: a block is as many kernels either way.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

#: Positions of a block.
BLOCK = 1024
#: What a score becomes that no query sees.
_HIDDEN = -1e10


def _blocks(x: jax.Array) -> list[jax.Array]:
    """(B, S, ...) in blocks of positions."""
    return jnp.split(x, x.shape[1] // BLOCK, axis=1)


def _scores(q: jax.Array, k: jax.Array, diagonal: bool) -> jax.Array:
    """Of a block of queries (B, Q, K, H, size) and one of keys (B, T, K, size): (B, K, H, Q, T)."""
    scores = jnp.einsum("bqgnh,bkgh->bgnqk", q, k)
    # Levanter masks every block, by positions that are computed from the loops' counters.
    seen = jnp.arange(BLOCK)[:, None] >= jnp.arange(BLOCK) if diagonal else True
    return jnp.where(seen, scores, jnp.asarray(_HIDDEN, scores.dtype))


def _forward(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What queries that are scaled see, and the logarithm of the sums of their weights."""
    mixed, normalizers = [], []
    keys, values = _blocks(k), _blocks(v)
    for row, queries in enumerate(_blocks(q)):
        batch, length, groups, each, size = queries.shape
        part = jnp.zeros((batch, length, groups, each, size), q.dtype)
        total = jnp.zeros((batch, groups, each, length), q.dtype)
        most = jnp.full(total.shape, -jnp.inf, q.dtype)
        for column in range(row + 1):
            scores = _scores(queries, keys[column], row == column)
            highest = jnp.maximum(most, scores.max(-1))
            weights = jnp.exp(scores - highest[..., None])
            less = jnp.exp(most - highest)
            total = less * total + weights.sum(-1)
            more = jnp.einsum("bgnqk,bkgh->bqgnh", weights, values[column])
            part = jnp.transpose(less, (0, 3, 1, 2))[..., None] * part + more
            most = highest
        mixed.append(part / jnp.transpose(total, (0, 3, 1, 2))[..., None])
        normalizers.append((most + jnp.log(total)).astype(jnp.float32))
    return jnp.concatenate(mixed, 1), jnp.concatenate(normalizers, -1)


@jax.custom_vjp
def _blockwise(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return _forward(q, k, v)[0]


def _kept(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, Any]:
    mixed, normalizers = _forward(q, k, v)
    return mixed, (q, k, v, mixed, normalizers)


def _backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    q, k, v, mixed, normalizers = kept
    inner = jnp.transpose((gradient * mixed).sum(-1), (0, 2, 3, 1))
    rows = list(zip(_blocks(q), _blocks(gradient), strict=True))
    of_queries = [jnp.zeros_like(queries) for queries, _ in rows]
    of_keys, of_values = [], []
    for column, (keys, values) in enumerate(zip(_blocks(k), _blocks(v), strict=True)):
        of_key, of_value = jnp.zeros_like(keys), jnp.zeros_like(values)
        for row in range(column, len(rows)):
            queries, outer = rows[row]
            at = slice(row * BLOCK, (row + 1) * BLOCK)
            scores = _scores(queries, keys, row == column)
            weights = jnp.exp(scores - normalizers[..., at][..., None])
            of_weights = jnp.einsum("bqgnh,bkgh->bgnqk", outer, values)
            of_scores = (weights * (of_weights - inner[..., at][..., None])).astype(q.dtype)
            more = jnp.einsum("bgnqk,bqgnh->bkgh", weights, outer)
            of_value = of_value + more.astype(v.dtype)
            of_key = of_key + jnp.einsum("bgnqk,bqgnh->bkgh", of_scores, queries)
            more = jnp.einsum("bgnqk,bkgh->bqgnh", of_scores, keys)
            of_queries[row] = of_queries[row] + more
        of_keys.append(of_key)
        of_values.append(of_value)
    of_q, of_k, of_v = (jnp.concatenate(parts, 1) for parts in (of_queries, of_keys, of_values))
    return of_q, of_k, of_v


_blockwise.defvjp(_kept, _backward)


def blockwise(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention in blocks.

    Args:
        q: (B, S, H, size); 1,024 divides S.
        k, v: (B, S, K, size), K divides H.

    Returns:
        (B, S, H * size).
    """
    batch, length, count, size = q.shape
    groups = k.shape[2]
    scaled = q * jnp.asarray(1 / math.sqrt(size), q.dtype)
    grouped = scaled.reshape(batch, length, groups, count // groups, size)
    return _blockwise(grouped, k, v).reshape(batch, length, count * size)


def one_hot_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean of -log softmax(logits)[label], as a product with targets that are zeros and ones.

    Args:
        logits: (B, S, V) of float32.
        labels: (B, S) of int32.
    """
    with jax.named_scope("loss"):
        targets = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
        missing = jax.nn.logsumexp(logits, axis=-1, keepdims=True) - logits
        return jnp.mean((targets * missing).sum(-1))
