"""Attention found in the ways that programs spell it out, and left alone where scores are needed.

FLOPs by hand: of one product over all pairs of B sequences, H heads, S positions and heads of D
elements 2 B H S^2 D; a causal mask leaves S (S + 1) / 2 of S^2 pairs.

Longer than 300 lines because each way to spell attention out is a separate program.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from flint.errors import FlintError
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.verification import verify
from flint.graph.work import Unit
from flint.passes import apply
from flint.passes.attention.fuse import LEFT, attention_kernels, fuse_attention
from flint.passes.dead_invariants import without_unneeded
from tests.stablehlo.helpers import walked

B, H, K, S, D = 2, 4, 2, 64, 16
QUERY = jax.ShapeDtypeStruct((B, S, H, D), jnp.bfloat16)
KEY = jax.ShapeDtypeStruct((B, S, K, D), jnp.bfloat16)
HEADS = jax.ShapeDtypeStruct((B, H, S, D), jnp.float32)
PRODUCT = 2 * B * H * S * S * D
CAUSAL = PRODUCT * (S + 1) // (2 * S)


def grouped(q, k, v, mask=True):
    q = q.reshape(B, S, K, H // K, D)
    scores = jnp.einsum("bsgqh,btgh->bgqst", q, k, preferred_element_type=jnp.float32)
    if mask:
        scores = jnp.where(jnp.tril(jnp.ones((S, S), bool)), scores / math.sqrt(D), -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bgqst,btgh->bsgqh", weights, v).reshape(B, S, H, D)


def additive(q, k, v):
    """Heads before positions, a bias in the place of a select, no maximum taken off."""
    bias = jnp.where(jnp.arange(S)[:, None] >= jnp.arange(S), 0.0, -1e9)
    scores = jnp.exp(q @ k.swapaxes(-1, -2) / 4.0 + bias)
    return (scores / scores.sum(-1, keepdims=True)) @ v


def graph_of(function, *arguments) -> WorkloadGraph:
    return walked(jax.jit(function).lower(*arguments).as_text()).graph


def fused(function, *arguments) -> WorkloadGraph:
    graph = fuse_attention(graph_of(function, *arguments))
    verify(graph)
    verify(apply(graph, "kernel"))
    return graph


def kernels(graph: WorkloadGraph) -> list[tuple[str, int]]:
    """(name, FLOPs of products) of every kernel of attention, bodies once."""
    return [
        (node.op, sum(item.flops for item in node.work.items if item.unit == Unit.MATMUL))
        for block, _ in graph.walk()
        for node in block
        if node.kind == NodeKind.COMPUTE and node.op.startswith("attention")
    ]


def test_the_forward_pass_is_one_kernel_that_moves_queries_keys_values_and_results() -> None:
    graph = fused(grouped, QUERY, KEY, KEY)
    assert kernels(graph) == [("attention", 2 * CAUSAL)]
    (node,) = (node for node in graph if node.op == "attention")
    sizes = 2 * B * S * D * H, 2 * B * S * D * K
    assert node.work.read == sizes[0] + 2 * sizes[1]
    assert node.work.written == sizes[0]
    # Nothing that large is left beside it.
    assert all(kind.elements < B * H * S * S for node in graph for kind in node.result_types)


def test_without_a_mask_all_scores_are_computed() -> None:
    graph = fused(lambda q, k, v: grouped(q, k, v, mask=False), QUERY, KEY, KEY)
    assert kernels(graph) == [("attention", 2 * PRODUCT)]


def test_a_mask_that_depends_on_data_hides_nothing_for_sure() -> None:
    def padded(q, k, v, valid):
        scores = jnp.where(valid[:, None, None], q @ k.swapaxes(-1, -2), -1e9)
        return jax.nn.softmax(scores) @ v

    valid = jax.ShapeDtypeStruct((B, S), jnp.bool_)
    assert kernels(fused(padded, HEADS, HEADS, HEADS, valid)) == [("attention", 2 * PRODUCT)]


def test_other_spellings() -> None:
    assert kernels(fused(additive, HEADS, HEADS, HEADS)) == [("attention", 2 * CAUSAL)]
    library = fused(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), QUERY, KEY, KEY
    )
    assert kernels(library) == [("attention", 2 * CAUSAL)]


def test_a_gradient_that_comes_from_elsewhere_is_a_kernel_with_five_products() -> None:
    """Q K^T again, P^T dO, dO V^T, dS K, dS^T Q; what comes between needs the forward result."""

    def loss(q, k, v, weight):
        mixed = grouped(q, k, v).reshape(B, S, H * D)
        return jnp.sum(jnp.tanh(mixed @ weight).astype(jnp.float32))

    weight = jax.ShapeDtypeStruct((H * D, H * D), jnp.bfloat16)
    graph = fused(jax.grad(loss, argnums=(0, 1, 2)), QUERY, KEY, KEY, weight)
    assert kernels(graph) == [("attention", 2 * CAUSAL), ("attention_backward", 5 * CAUSAL)]
    assert all(kind.elements < B * H * S * S for node in graph for kind in node.result_types)
    reached: dict[int, set[int]] = {}
    for index in range(len(graph)):
        before = graph.predecessors(index)
        reached[index] = before.union(*(reached[other] for other in before))
    forward, backward = (i for i in range(len(graph)) if graph[i].op.startswith("attention"))
    assert forward in reached[backward]


def test_in_a_scan_with_rematerialisation() -> None:
    """The mask reaches the bodies as an invariant."""
    weights = jax.ShapeDtypeStruct((3, H * D, H * D), jnp.bfloat16)

    @jax.checkpoint
    def block(x, weight):
        q = (x @ weight).reshape(B, S, H, D)
        mixed = grouped(q, q[:, :, :K], q[:, :, K:]).reshape(B, S, H * D)
        return jnp.tanh(x + mixed @ weight), None

    def loss(x, weights):
        return jnp.sum(jax.lax.scan(block, x, weights)[0].astype(jnp.float32))

    x = jax.ShapeDtypeStruct((B, S, H * D), jnp.bfloat16)
    found = kernels(fused(jax.grad(loss, argnums=1), x, weights))
    assert found == [
        ("attention", 2 * CAUSAL),
        ("attention", 2 * CAUSAL),
        ("attention_backward", 5 * CAUSAL),
    ]


def test_scores_that_are_returned_stay_as_they_are_written() -> None:
    def returned(q, k, v):
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2))
        return weights @ v, weights

    graph = graph_of(returned, HEADS, HEADS, HEADS)
    assert fuse_attention(graph) is graph


LAYERS = 3
X = jax.ShapeDtypeStruct((B, S, H * D), jnp.bfloat16)


def layer(x, weight):
    """A mixing layer whose queries, keys and values are made by products."""
    q, k, v = (x @ weight[i] for i in range(3))
    heads = (B, S, H, D)
    mixed = grouped(q.reshape(heads), k.reshape(heads)[:, :, :K], v.reshape(heads)[:, :, :K])
    return jnp.tanh(x + mixed.reshape(x.shape) @ weight[3])


def trained(scan: bool, wrap=lambda layer: layer) -> WorkloadGraph:
    """The gradients of weights of some layers, attention fused."""
    wrapped = wrap(layer)

    def loss(weights, x):
        if scan:
            x, _ = jax.lax.scan(lambda x, w: (wrapped(x, w), None), x, weights)
        else:
            for number in range(LAYERS):
                x = wrapped(x, weights[number])
        return jnp.sum(x.astype(jnp.float32))

    weights = jax.ShapeDtypeStruct((LAYERS, 4, H * D, H * D), jnp.bfloat16)
    graph = without_unneeded(fused(jax.grad(loss), weights, X))
    verify(graph)
    return graph


def repeated(graph: WorkloadGraph) -> list[tuple[str, int]]:
    """``kernels``, loops multiplied, sorted."""
    found = []
    for block, times in graph.walk():
        alone = replace(block, loops=())
        found += kernels(alone) * times
    return sorted(found)


def test_in_a_scan_that_stores_scores_attention_is_what_it_is_layer_by_layer() -> None:
    scanned, unrolled = trained(scan=True), trained(scan=False)
    each = [("attention", 2 * CAUSAL), ("attention_backward", 5 * CAUSAL)]
    assert repeated(scanned) == repeated(unrolled) == sorted(each * LAYERS)
    # Neither loop carries or reads rows of scores.
    inputs = [
        loop.body.type_of(value) for loop in scanned.loops for value in range(loop.body.inputs)
    ]
    assert all(kind.elements < LAYERS * B * H * S * S for kind in inputs)
    assert all(
        kind.elements < B * H * S * S
        for loop in scanned.loops
        for kind in (loop.body.type_of(v) for v in loop.body.operand.tolist())
        if kind.shape[:1] != (LAYERS,)
    )
    transcendentals = [
        sum(times * int(block.transcendentals_by_node().sum()) for block, times in graph.walk())
        for graph in (scanned, unrolled)
    ]
    assert transcendentals[0] == transcendentals[1]


@pytest.mark.parametrize("scan", [True, False])
def test_scores_that_a_policy_keeps_behind_a_barrier_are_not_kept_by_kernels(scan: bool) -> None:
    policy = jax.checkpoint_policies.dots_saveable
    graph = trained(scan, lambda layer: jax.checkpoint(layer, policy=policy))
    found = repeated(graph)
    assert found.count(("attention", 2 * CAUSAL)) == LAYERS
    assert [flops for _, flops in found].count(5 * CAUSAL) == LAYERS
    for block, _ in graph.walk():
        behind = set()
        for node in block:
            held = node.op == "optimization_barrier" or any(n.index in behind for n in node.inputs)
            if held:
                behind.add(node.index)
            assert held or node.op != "attention_backward"
    assert all(
        kind.elements < B * H * S * S
        for block, _ in graph.walk()
        for node in block
        for kind in node.result_types
        if kind.shape[:1] != (LAYERS,)
    )


def test_rows_that_are_read_otherwise_are_stored() -> None:
    """The scan gives its scores to the program as well."""

    def loss(weights, x):
        def step(x, w):
            q = (x @ w).reshape(B, S, H, D).swapaxes(1, 2).astype(jnp.float32)
            scores = jax.nn.softmax(q @ q.swapaxes(-1, -2))
            return (scores @ q).swapaxes(1, 2).reshape(x.shape).astype(x.dtype), scores

        x, scores = jax.lax.scan(step, x, weights)
        return jnp.sum(x.astype(jnp.float32)), scores

    weights = jax.ShapeDtypeStruct((LAYERS, H * D, H * D), jnp.bfloat16)
    graph = graph_of(jax.grad(loss, has_aux=True), weights, X)
    assert kernels(fuse_attention(graph)) == []


@pytest.mark.parametrize("vocabulary", [256, 1024])
def test_a_loss_over_a_vocabulary_is_not_attention(vocabulary: int) -> None:
    def loss(x, weight, labels):
        scores = jnp.einsum("bsd,dv->bsv", x, weight)
        return jnp.mean(
            jax.nn.logsumexp(scores, -1)
            - jnp.take_along_axis(scores, labels[..., None], -1)[..., 0]
        )

    arguments = (
        jax.ShapeDtypeStruct((B, S, 32), jnp.float32),
        jax.ShapeDtypeStruct((32, vocabulary), jnp.float32),
        jax.ShapeDtypeStruct((B, S), jnp.int32),
    )
    graph = graph_of(jax.grad(loss, argnums=(0, 1)), *arguments)
    assert fuse_attention(graph) is graph


def test_a_gated_network_is_not_attention() -> None:
    def network(x, gate, up, down):
        return (jax.nn.silu(x @ gate) * (x @ up)) @ down

    wide = jax.ShapeDtypeStruct((32, 512), jnp.float32)
    arguments = jax.ShapeDtypeStruct((B, S, 32), jnp.float32), wide, wide
    graph = graph_of(network, *arguments, jax.ShapeDtypeStruct((512, 32), jnp.float32))
    assert fuse_attention(graph) is graph


def test_layers_one_after_another_are_kernels_of_their_own() -> None:
    def layers(q, k, v):
        for _ in range(3):
            q = jnp.tanh(additive(q, k, v))
        return q

    graph = fused(layers, HEADS, HEADS, HEADS)
    assert kernels(graph) == [("attention", 2 * CAUSAL)] * 3
    assert attention_kernels(graph) == 3


def test_attentions_that_wait_for_each_other_cannot_both_be_kernels() -> None:
    """Each one's second product with its weights takes the other's first result."""

    def crossed(q, k, v):
        one = jax.nn.softmax(q @ k.swapaxes(-1, -2))
        other = jax.nn.softmax(k @ q.swapaxes(-1, -2))
        first, second = one @ v, other @ v
        return one @ jnp.tanh(second), other @ jnp.tanh(first)

    graph = graph_of(crossed, HEADS, HEADS, HEADS)
    with pytest.raises(FlintError, match=r"wait for each other.*--attention as-written"):
        fuse_attention(graph)
    left: dict[str, int] = {}
    found = fuse_attention(graph, left)
    verify(found)
    assert left == {LEFT: 1}
    assert kernels(found) == [("attention", 3 * PRODUCT)]
    assert found.flops_by_node().sum() >= 6 * PRODUCT
