"""Attention is the same kernels however the layers are written: in a scan or one after another,
computed again in the backward pass or not.

FLOPs by hand: of one product over all pairs of B sequences, H heads, S positions and heads of D
elements 2 B H S^2 D; forward 2 products, backward 5; a causal mask leaves S (S + 1) / 2 of S^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.verification import verify
from flint.graph.work import Unit
from flint.passes import apply
from flint.passes.attention.fuse import fuse_attention
from flint.passes.dead_invariants import without_unneeded
from tests.stablehlo.helpers import walked
from tests.support.shared import examples

B, S = 2, 64
POLICIES = jax.checkpoint_policies
#: How a layer is wrapped -> whether the forward kernel runs again in the backward pass.
WRAPS = {
    "none": (lambda layer: layer, False),
    "full": (jax.checkpoint, True),
    "dots": (lambda layer: jax.checkpoint(layer, policy=POLICIES.dots_saveable), False),
    "weights": (
        lambda layer: jax.checkpoint(layer, policy=POLICIES.dots_with_no_batch_dims_saveable),
        None,  # what it keeps is enough or not, by how the layer uses what attention gives
    ),
    "inside": (lambda layer: layer, None),
}


@dataclass(frozen=True)
class Spelling:
    """A way to write attention."""

    name: str
    heads: int
    keys: int
    size: int
    dtype: jnp.dtype


def attend(spelling: Spelling, q, k, v):
    """q (B, S, H, D), k and v (B, S, K, D) -> (B, S, H, D)."""
    if spelling.name == "library":
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="xla")
    mask = jnp.tril(jnp.ones((S, S), bool))
    if spelling.name == "grouped":
        q = q.reshape(B, S, spelling.keys, -1, spelling.size)
        scores = jnp.einsum("bsgqh,btgh->bgqst", q, k, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(jnp.where(mask, scores / math.sqrt(spelling.size), -1e30))
        mixed = jnp.einsum("bgqst,btgh->bsgqh", weights.astype(v.dtype), v)
        return mixed.reshape(B, S, spelling.heads, spelling.size)
    groups = spelling.heads // spelling.keys
    q, k, v = (x.swapaxes(1, 2) for x in (q, jnp.repeat(k, groups, 2), jnp.repeat(v, groups, 2)))
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32)
    weights = jnp.exp(scores * 0.25 + jnp.where(mask, 0.0, -1e9))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights.astype(v.dtype) @ v).swapaxes(1, 2)


def gradients(spelling: Spelling, layers: int, wrap: str, scan: bool) -> WorkloadGraph:
    """The graph of the gradients of some layers, by their weights and what goes in."""
    width = spelling.heads * spelling.size
    sizes = (spelling.heads, spelling.keys, spelling.keys)

    def mix(q, k, v):
        return attend(spelling, q, k, v)

    if wrap == "inside":
        mix = jax.checkpoint(mix)

    def layer(x, weight):
        q, k, v = (
            (x @ weight[i, :, : heads * spelling.size]).reshape(B, S, heads, spelling.size)
            for i, heads in enumerate(sizes)
        )
        return jnp.tanh(x + mix(q, k, v).reshape(x.shape) @ weight[3])

    wrapped = WRAPS[wrap][0](layer)

    def loss(weights, x):
        if scan:
            x, _ = jax.lax.scan(lambda x, w: (wrapped(x, w), None), x, weights)
        else:
            for number in range(layers):
                x = wrapped(x, weights[number])
        return jnp.sum(x.astype(jnp.float32))

    weights = jax.ShapeDtypeStruct((layers, 4, width, width), spelling.dtype)
    x = jax.ShapeDtypeStruct((B, S, width), spelling.dtype)
    return walked(
        jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(weights, x).as_text()
    ).graph


def products(graph: WorkloadGraph) -> int:
    """FLOPs of all products, loops multiplied."""
    return sum(
        times * int(block.work_flops[block.work_unit == Unit.MATMUL].sum())
        for block, times in graph.walk()
    )


def kernels(graph: WorkloadGraph) -> list[tuple[str, int, int]]:
    """(name, FLOPs of products, bytes) of all kernels of attention, loops multiplied, sorted."""
    found = []
    for block, times in graph.walk():
        for node in block:
            if node.kind == NodeKind.COMPUTE and node.op.startswith("attention"):
                flops = sum(item.flops for item in node.work.items if item.unit == Unit.MATMUL)
                found += [(node.op, flops, node.work.read + node.work.written)] * times
    return sorted(found)


SPELLINGS = st.builds(
    lambda name, heads, size, dtype: Spelling(name, *heads, size, dtype),
    st.sampled_from(("grouped", "repeated", "library")),
    st.sampled_from(((4, 2), (4, 4), (6, 1))),
    st.sampled_from((8, 16)),
    st.sampled_from((jnp.bfloat16, jnp.float32)),
)


# Shrinking lowers hundreds of programs.
@settings(max_examples=examples(25), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(SPELLINGS, st.integers(2, 3), st.sampled_from(sorted(WRAPS)))
def test_a_scan_and_layers_one_after_another_have_the_same_kernels(spelling, layers, wrap) -> None:
    scanned, unrolled = (gradients(spelling, layers, wrap, scan) for scan in (True, False))
    assert products(scanned) == products(unrolled)
    fused = [without_unneeded(fuse_attention(graph)) for graph in (scanned, unrolled)]
    for graph in fused:
        verify(graph)
        verify(apply(graph, "kernel"))
    found = [[(name, flops) for name, flops, _ in kernels(graph)] for graph in fused]
    assert found[0] == found[1]
    product = 2 * B * spelling.heads * S * S * spelling.size * (S + 1) // (2 * S)
    forward, backward = ("attention", 2 * product), ("attention_backward", 5 * product)
    # What a policy has computed again is a kernel of its own, or the backward pass has it besides.
    besides = ("attention_backward", 6 * product)
    again = {True: [[forward, forward, backward]], False: [[forward, backward]]}.get(
        WRAPS[wrap][1],
        [[forward, forward, backward], [forward, backward], [forward, besides]],
    )
    assert found[0] in [sorted(each * layers) for each in again]
    # No scores are left in memory.
    assert all(
        kind.elements < B * spelling.heads * S * S
        for graph in fused
        for block, _ in graph.walk()
        for node in block
        for kind in node.result_types
        if kind.shape[:1] != (layers,)
    )
