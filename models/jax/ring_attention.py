"""Ring attention: Llama 3 on sequences that are split over devices (Liu et al., 2023).

The idea: every device keeps the queries of its part of the sequence, and the keys and values go
round in a ring over the axis "context".  While a device attends to its present block, the block
goes on to the next device; the results of several blocks are combined as in an online softmax
(Milakov and Gimelshein, 2018).  No device ever holds the keys of the whole sequence.

    forward    keys and values of n devices: n - 1 hops
    backward   again, but the first block to arrive is kept: n - 2 hops; their gradients go with
               them and back home: n hops

The backward pass recomputes scores from the logs of the softmax' sums, block by block, as
FlashAttention does (Dao et al., 2022).  Which positions a device has is its layout
(``ring_layouts.py``).

    flint capture models/jax/ring_attention.py:train_8b --mesh 8,8,8 -o out/
    flint capture models/jax/ring_attention.py:train_8b_zigzag --mesh 8,8,8 -o out/
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from flint.models.jax.layers import attention, projections
from flint.models.jax.llama3 import LLAMA3_8B, TINY, training
from flint.models.jax.ring_layouts import Layout, Piece, contiguous, zigzag, zigzag_order
from flint.models.jax.sharding import constrain, spec
from flint.models.mixtures import Heads

#: The mesh axis along which keys and values go round.
AXIS = "context"

#: The score of hidden positions; in its own block, every query sees a key.
_HIDDEN = -1e30

#: Of queries and the keys that they have seen: largest scores and sums of exponentials
#: (B, K, H / K, S), unscaled output (B, K, H / K, S, size), all float32.
State = tuple[jax.Array, jax.Array, jax.Array]


def _rotated(*arrays: jax.Array) -> list[jax.Array]:
    """What the device before this one had; the last one's goes to the first."""
    size = jax.lax.axis_size(AXIS)
    hops = [(rank, (rank + 1) % size) for rank in range(size)]
    with jax.named_scope("ring"):
        return [jax.lax.ppermute(array, AXIS, hops) for array in arrays]


def _grouped(x: jax.Array, groups: int) -> jax.Array:
    """(B, S, H, size) as (B, S, K, H / K, size): the queries of each key head."""
    batch, length, heads, size = x.shape
    return x.reshape(batch, length, groups, heads // groups, size)


def _scores(q: jax.Array, k: jax.Array, visible: jax.Array | None) -> jax.Array:
    """Scaled float32 scores (B, K, H / K, S, S) of queries and keys.

    Args:
        q: (B, S, K, H / K, size).
        k: (B, S, K, size).
        visible: as of ``Piece``.
    """
    scores = jnp.einsum("bsgqh,btgh->bgqst", q, k, preferred_element_type=jnp.float32)
    scores = scores / math.sqrt(q.shape[-1])
    return scores if visible is None else jnp.where(visible, scores, _HIDDEN)


def _attended(q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array | None) -> State:
    """Largest scores, sums of exponentials and unscaled output of queries and keys."""
    scores = _scores(q, k, visible)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    mixed = jnp.einsum(
        "bgqst,btgh->bgqsh", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return top, weights.sum(-1), mixed


def _joined(one: State, other: State) -> State:
    """The state of two sets of keys together."""
    top = jnp.maximum(one[0], other[0])
    old, new = jnp.exp(one[0] - top), jnp.exp(other[0] - top)
    total = one[1] * old + other[1] * new
    return top, total, one[2] * old[..., None] + other[2] * new[..., None]


def _met(state: State | None, q: jax.Array, k: jax.Array, v: jax.Array, met: list[Piece]) -> State:
    """The state of queries (B, S, K, H / K, size) that have also seen the keys of one block."""
    for queries, keys, visible in met:
        found = _attended(queries.take(q, 1), keys.take(k, 1), keys.take(v, 1), visible)
        fills = (_HIDDEN, 0.0, 0.0)
        top, total, mixed = (queries.put(x, 3, fill) for x, fill in zip(found, fills, strict=True))
        state = (top, total, mixed) if state is None else _joined(state, (top, total, mixed))
    assert state is not None
    return state


def _forward(layout: Layout, q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
    """One device's part.

    Returns:
        Output (B, S, H, size), logs of the softmax' sums (B, K, H / K, S), and the keys and values
        of the device before this one.
    """
    size, rank = jax.lax.axis_size(AXIS), jax.lax.axis_index(AXIS)
    grouped = _grouped(q, k.shape[2])
    meets = functools.partial(layout, rank, q.shape[1])

    def hop(carry: Any, step: jax.Array) -> tuple[Any, None]:
        k, v, state = carry
        return (*_rotated(k, v), _met(state, grouped, k, v, meets(step))), None

    state = _met(None, grouped, k, v, meets(0))
    steps = jnp.arange(1, size - 1, dtype=jnp.int32)
    next_k, next_v = _rotated(k, v)
    (k, v, state), _ = jax.lax.scan(hop, (next_k, next_v, state), steps)
    top, total, mixed = _met(state, grouped, k, v, meets(size - 1))
    out = jnp.moveaxis(mixed / total[..., None], 3, 1).reshape(q.shape)
    return out.astype(q.dtype), top + jnp.log(total), next_k, next_v


def _backward(
    layout: Layout,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    logs: jax.Array,
    next_k: jax.Array,
    next_v: jax.Array,
    slope: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One device's part: gradients of q, k and v.

    Args:
        q, k, v: operands of ``_forward``.
        out, logs, next_k, next_v: its results.
        slope: gradient of ``out``.
    """
    size, rank = jax.lax.axis_size(AXIS), jax.lax.axis_index(AXIS)
    groups = k.shape[2]
    grouped, slopes = _grouped(q, groups), _grouped(slope, groups)
    shift = jnp.sum(slope.astype(jnp.float32) * out.astype(jnp.float32), -1, keepdims=True)
    shift = jnp.moveaxis(_grouped(shift, groups), 1, 3)[..., 0]  # (B, K, H / K, S), as logs
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    meets = functools.partial(layout, rank, q.shape[1])

    def slopes_of(k: jax.Array, v: jax.Array, met: list[Piece]) -> tuple[jax.Array, ...]:
        """What one block adds to the gradients, float32."""
        found: list[list[jax.Array]] = []
        for queries, keys, visible in met:
            some, slope = queries.take(grouped, 1), queries.take(slopes, 1)
            log, far = queries.take(logs, 3), queries.take(shift, 3)
            its_k, its_v = keys.take(k, 1), keys.take(v, 1)
            weights = jnp.exp(_scores(some, its_k, visible) - log[..., None])
            inner = product("bsgqh,btgh->bgqst", slope, its_v)
            inner = (weights * (inner - far[..., None]) / math.sqrt(q.shape[-1])).astype(q.dtype)
            parts = (
                (queries, product("bgqst,btgh->bsgqh", inner, its_k)),
                (keys, product("bgqst,bsgqh->btgh", inner, some)),
                (keys, product("bgqst,bsgqh->btgh", weights.astype(v.dtype), slope)),
            )
            found.append([part.put(made, 1, 0.0) for part, made in parts])
        return tuple(functools.reduce(jnp.add, some) for some in zip(*found, strict=True))

    def hop(carry: Any, step: jax.Array) -> tuple[Any, None]:
        # Three things at once: this block's products, its keys and values on their way to the
        # next device, and their gradients so far, from the device before this one.
        k, v, dq, dk, dv = carry
        dk, dv = _rotated(dk, dv)
        more_q, more_k, more_v = slopes_of(k, v, meets(step))
        return (*_rotated(k, v), dq + more_q, dk + more_k, dv + more_v), None

    first = slopes_of(k, v, meets(0))
    steps = jnp.arange(1, size - 1, dtype=jnp.int32)
    (k, v, dq, dk, dv), _ = jax.lax.scan(hop, (next_k, next_v, *first), steps)
    dk, dv = _rotated(dk, dv)
    last = slopes_of(k, v, meets(size - 1))
    dq, dk, dv = (total + more for total, more in zip((dq, dk, dv), last, strict=True))
    dk, dv = _rotated(dk, dv)
    return dq.reshape(q.shape).astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


def _split() -> tuple[PartitionSpec, PartitionSpec]:
    """How queries, keys and values (B, S, heads, size) and sums (B, K, H / K, S) are split."""
    mesh = jax.sharding.get_abstract_mesh()
    return (
        spec(("batch", "sequence", "tensor", None), mesh),
        spec(("batch", "tensor", None, "sequence"), mesh),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def ring(q: jax.Array, k: jax.Array, v: jax.Array, layout: Layout = contiguous) -> jax.Array:
    """Causal attention over the axis "context", of two or more devices, of the mesh in context.

    Args:
        q: (B, S, H, size), global.
        k, v: (B, S, K, size), K divides H.
        layout: the order that positions are in.

    Returns:
        (B, S, H, size).
    """
    return _ring_forward(q, k, v, layout)[0]


def _ring_forward(
    q: jax.Array, k: jax.Array, v: jax.Array, layout: Layout
) -> tuple[jax.Array, Any]:
    heads, sums = _split()
    results = heads, sums, heads, heads
    run = functools.partial(_forward, layout)
    kept = jax.shard_map(run, in_specs=(heads, heads, heads), out_specs=results)(q, k, v)
    return kept[0], (q, k, v, *kept)


def _ring_backward(layout: Layout, kept: Any, slope: jax.Array) -> Any:
    heads, sums = _split()
    operands = heads, heads, heads, heads, sums, heads, heads, heads
    results = heads, heads, heads
    run = functools.partial(_backward, layout)
    return jax.shard_map(run, in_specs=operands, out_specs=results)(*kept, slope)


ring.defvjp(_ring_forward, _ring_backward)


def ring_attention(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, layout: Layout = contiguous
) -> jax.Array:
    """``layers.attention`` with a ring where the mesh in context splits the sequence.

    In the layout ``zigzag`` tokens stand in ``zigzag_order``, which batches must have.
    """
    devices = dict(jax.sharding.get_abstract_mesh().shape).get(AXIS, 1)
    if devices == 1:
        return attention(x, layer, heads, positions)
    if layout is zigzag:
        positions = zigzag_order(len(positions), devices)
    with jax.named_scope("attention"):
        q, k, v = projections(x, layer, heads, positions)
        mixed = ring(q, k, v, layout).reshape(*x.shape[:2], -1)
        out: jax.Array = constrain(mixed, "batch", "sequence", "tensor") @ layer["wo"].astype(
            x.dtype
        )
        return out


zigzag_attention = functools.partial(ring_attention, layout=zigzag)

AXES = ("data", AXIS, "model")
RING_TINY = replace(TINY, mixer=ring_attention)
RING_8B = replace(LLAMA3_8B, mixer=ring_attention, sequence=131072)
ZIGZAG_TINY = replace(RING_TINY, mixer=zigzag_attention)
ZIGZAG_8B = replace(RING_8B, mixer=zigzag_attention)

train_tiny = training(RING_TINY, mesh=(2, 2, 2), axes=AXES)
train_8b = training(RING_8B, mesh=(8, 8, 8), axes=AXES)
train_tiny_zigzag = training(ZIGZAG_TINY, mesh=(2, 2, 2), axes=AXES)
train_8b_zigzag = training(ZIGZAG_8B, mesh=(8, 8, 8), axes=AXES)
