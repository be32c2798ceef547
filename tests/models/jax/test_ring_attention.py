"""Ring attention: the same loss and gradients as without a ring, and what goes round in it."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest

from flint.graph.graph import Phase
from flint.graph.partners import partners
from flint.models.jax.llama3 import LLAMA3_8B, parameters
from flint.models.jax.parameters import count
from flint.models.jax.ring_attention import (
    RING_8B,
    RING_TINY,
    ZIGZAG_8B,
    train_8b,
    train_8b_zigzag,
    train_tiny,
)
from tests.models.jax.names_ring_resnet import ring_of_4
from tests.support.children import answer_of
from tests.support.nodes import communications, product_flops
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.fixture(scope="module")
def distances(request):
    names = chosen(request, "mesh")
    return answer_of(Path(__file__).with_name("ring_attention_runs.py"), *names, devices=8)


RINGS = [
    "2x2x2", "zigzag 2x4", "ring of 8", "2x4", "zigzag 2x2x2", "zigzag ring of 8",
]  # fmt: skip


@pytest.mark.parametrize("mesh", quick([*RINGS, "ring of 1", "no ring"]))
def test_loss_and_gradients_are_those_of_one_device_without_a_ring(mesh, distances):
    found = distances[mesh]
    assert len(found) == 1 + 12  # the loss; embedding, head, norm and nine arrays of the blocks
    assert max(found.values()) < 3e-5, found


@pytest.mark.thorough
@pytest.mark.parametrize("mesh", quick(RINGS, "zigzag 2x4"))
def test_attention_alone_is_exact_to_float32s_rounding(mesh, distances):
    assert max(distances[f"{mesh}, attention, float32"].values()) < 5e-6


@pytest.mark.thorough
@pytest.mark.parametrize("mesh", quick(RINGS, "zigzag 2x4"))
def test_in_bfloat16_the_ring_is_no_further_from_float32_than_plain_attention(mesh, distances):
    plain = max(distances["plain, attention, bfloat16"].values())
    assert max(distances[f"{mesh}, attention, bfloat16"].values()) < 2 * plain


def test_the_model_is_llamas():
    assert count(parameters(RING_8B)) == count(parameters(LLAMA3_8B)) == 8_030_261_248


STEPS = {
    "tiny 2x2x2": (train_tiny, RING_TINY),
    "tiny 2x4": (ring_of_4, RING_TINY),
    "8B 8x8x8": (train_8b, RING_8B),
    "8B 8x8x8 zigzag": (train_8b_zigzag, ZIGZAG_8B),
}


@pytest.fixture(scope="module", params=quick(STEPS, "tiny 2x2x2"))
def case(request):
    """Workload, config, devices in a ring, heads' parts."""
    step, config = STEPS[request.param]
    workload = step.capture()
    sizes = dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True))
    return workload, config, sizes["context"], sizes.get("model", 1)


def hops(workload):
    """Permutes of keys, values and gradients; the others move the tokens' places, in integers."""
    found = communications(workload, "collective_permute")
    return [(node, times) for node, times in found if node.result_types[0].dtype != "i32"]


def test_hops_and_their_bytes(case):
    """Per layer, on n devices: n - 1 hops of keys and of values in the forward pass, in its
    recomputation and in the backward pass, in bfloat16, but for the backward pass's first: what
    it brings is still there.  n hops of either's gradient, in float32.
    A block is one sequence's S / n positions of the device's share of the key heads."""
    workload, config, ring, parts = case
    block = config.sequence // ring * (config.heads.keys // parts) * config.heads.size
    found = collections.Counter()
    for node, times in hops(workload):
        [kind] = node.result_types
        assert kind.bytes == block * {"bf16": 2, "f32": 4}[kind.dtype]
        found[node.source.phase, kind.dtype] += times
    assert found == +collections.Counter(
        {
            (Phase.FORWARD, "bf16"): config.layers * 2 * (ring - 1),
            (Phase.RECOMPUTE, "bf16"): config.layers * 2 * (ring - 1),
            (Phase.BACKWARD, "bf16"): config.layers * 2 * (ring - 2),
            (Phase.BACKWARD, "f32"): config.layers * 2 * ring,
        }
    )


def test_a_hop_goes_to_the_next_device_of_the_context_axis(case):
    workload = case[0]
    ranks = np.arange(workload.mesh.size).reshape(workload.mesh.shape)
    axis = workload.mesh.axes.index("context")
    following = np.roll(ranks, -1, axis).ravel()
    for node, _ in hops(workload):
        np.testing.assert_array_equal(node.communication.permutation.target, following)


def test_no_device_gathers_the_sequence(case):
    workload = case[0]
    found = {partners(node.communication, workload.mesh) for node, _ in communications(
        workload, "all_gather"
    )}  # fmt: skip
    assert found
    assert not any("context" in words for words in found)


def ancestors(graph, index):
    known, front = set(), [index]
    while front:
        new = graph.predecessors(front.pop()) - known
        known |= new
        front += new
    return known


@pytest.mark.thorough
def test_in_a_loop_no_hop_waits_for_the_products_of_its_iteration():
    """So that a block is on its way while it is attended to, and gradients of the block before
    while this block's are computed."""
    workload = train_8b.capture()
    ring, layers = 8, RING_8B.layers
    [program] = workload.programs
    bodies = collections.Counter()
    for graph, times in program.graph.walk():
        if times != layers * (ring - 2):  # between the first and the last block
            continue
        hops = [i for i, node in enumerate(graph) if node.communication is not None]
        bodies[len(hops)] += 1
        for hop in hops:
            assert not any(graph[i].op == "dot_general" for i in ancestors(graph, hop))
    assert bodies == {2: 2, 4: 1}  # forward and recomputed; backward


def test_matmul_flops_are_those_of_the_formula(case):
    """A product of (T, K) with (K, N) takes 2 T K N.  Weights: forward, recomputation and two in
    the backward pass, as in ``test_llama3.py``.  Attention: a device's S / n queries meet every
    block's S / n keys, hidden or not: S^2 / n positions.  Zigzag, with parts of S / 2 n: of its own
    keys the front part meets itself, the back part both, 3 pairs of parts; of the n - 1 other
    blocks, half of what there is, 2 pairs.  So a device has 3 + 2 (n - 1) = 2 n + 1 pairs.
    Scores and mix in the forward pass and in the recomputation; in the backward pass scores again,
    then the gradients of weights, values, queries and keys: 2 + 2 + 5 products of 2 H size for each
    query and key."""
    workload, config, ring, parts = case
    found = product_flops(*workload.programs)
    length, width, heads = config.sequence, config.width, config.heads
    inner, outer = heads.queries * heads.size, heads.keys * heads.size
    projections = 2 * length * width * (2 * inner + 2 * outer)
    gate_or_up = 2 * length * width * config.hidden
    met = length**2
    if config is ZIGZAG_8B:
        met = ring * (2 * ring + 1) * (length // (2 * ring)) ** 2
    attention = 9 * 2 * met * inner
    block = 4 * projections + attention + 4 * 2 * gate_or_up + 3 * gate_or_up
    head = 3 * 2 * length * width * config.vocabulary
    assert found * ring * parts == config.layers * block + head
