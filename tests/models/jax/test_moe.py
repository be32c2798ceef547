"""Mixture of experts: published size, one result however tokens are sent, counts by hand."""

from __future__ import annotations

import collections
import math
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from flint.errors import FlintError
from flint.graph.graph import Phase
from flint.graph.partners import partners
from flint.models.jax import moe
from flint.models.jax.layers import cudnn_attention
from flint.models.jax.moe import MIXTRAL_8X7B, TINY, parameters, train_mixtral, training
from flint.models.jax.moe_dispatch import by_all_to_all
from flint.models.jax.moe_routing import Experts, route
from flint.models.jax.parameters import count
from tests.models.jax import names_moe
from tests.support.children import answer_of
from tests.support.nodes import communications, product_flops
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


def test_parameters_are_as_many_as_published():
    """Sum of the tensors' sizes in the released checkpoint (model.safetensors.index.json)."""
    assert count(parameters(MIXTRAL_8X7B)) == 46_702_792_704


@pytest.fixture(scope="module")
def runs(request):
    names = chosen(request, "case")
    return answer_of(Path(__file__).with_name("moe_runs.py"), *names, devices=16)


FORMS = [
    "all_to_all, 2-D", "all_to_all, 3-D", "all_to_all, 4-D", "all_to_all, experts only",
    "all_to_all, 2-D, no remat", "all_to_all, 2-D, exchanged",
    "einsum, 2-D", "einsum, 3-D", "einsum, 4-D", "einsum, experts only", "einsum, one device",
    "einsum, nodes", "nodes, nodes",
]  # fmt: skip
CASES = [f"{form}, {capacity}" for capacity in ("nothing dropped", "dropped") for form in FORMS]
CASES += [f"ragged, {mesh}, nothing dropped" for mesh in ("2-D", "3-D", "one device")]
CASES += [f"permuted, {mesh}, nothing dropped" for mesh in ("data only", "one device")]


@pytest.mark.thorough
@pytest.mark.parametrize("case", quick(CASES, "all_to_all, 2-D, dropped"))
def test_loss_and_gradients_are_those_of_each_token_going_through_its_experts(case, runs):
    found = runs[case]
    assert len(found) == 1 + 13  # the loss; embedding, head, norm and ten arrays of the blocks
    assert max(found.values()) < 3e-5, found


@pytest.mark.thorough
def test_what_is_dropped_changes_the_loss(runs):
    assert abs(runs["loss, dropped"] / runs["loss, nothing dropped"] - 1) > 1e-3


def scores_of(*choices):
    """Scores (1, S, 4) of tokens whose experts are these, best first."""
    scores = np.zeros((1, len(choices), 4), np.float32)
    for token, experts in enumerate(choices):
        for rank, expert in enumerate(experts):
            scores[0, token, expert] = 9 - rank
    return jnp.asarray(scores)


def routing_of(scores):
    """What a router that passes the scores on makes of them."""
    return route(scores, {"router": jnp.eye(4)}, Experts(count=4, chosen=2, hidden=1))


@pytest.mark.thorough
def test_first_choices_come_before_second_choices_and_earlier_tokens_before_later_ones():
    routing = routing_of(scores_of((0, 1), (1, 0), (0, 2), (2, 0)))
    assert routing.expert.tolist() == [[[0, 1], [1, 0], [0, 2], [2, 0]]]
    # Expert 0: first choice of tokens 0 and 2, then second of 1 and 3.  Expert 1: token 1, then 0.
    assert routing.place.tolist() == [[[0, 1], [0, 2], [1, 1], [0, 3]]]


def test_weights_are_a_softmax_over_the_chosen_experts():
    routing = routing_of(scores_of((3, 1)))
    odds = math.exp(9 - 8)
    np.testing.assert_allclose(routing.weight[0, 0], [odds / (1 + odds), 1 / (1 + odds)], rtol=1e-6)


def test_of_equal_scores_the_first_experts_are_chosen():
    assert routing_of(jnp.zeros((1, 1, 4))).expert.tolist() == [[[0, 1]]]


@pytest.mark.thorough
def test_balance_is_one_where_all_experts_get_equally_much():
    even = routing_of(scores_of((0, 1), (1, 2), (2, 3), (3, 0)))
    np.testing.assert_allclose(even.balance, [1.0], rtol=1e-6)


def test_balance_is_higher_where_some_experts_get_more():
    """All tokens choose experts 0 and 1, half of the choices each, with nearly all probability:
    4 (1/2 p0 + 1/2 p1) = 2 (p0 + p1)."""
    uneven = routing_of(scores_of((0, 1), (0, 1), (0, 1), (0, 1)))
    top = math.exp(9) + math.exp(8)
    np.testing.assert_allclose(uneven.balance, [2 * top / (top + 2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("factor", "length", "places"),
    # 2 of 8 experts: evenly, a quarter of the sequence's tokens each.
    [(1.0, 4096, 1024), (1.25, 4096, 1280), (1.25, 16, 5), (0.01, 16, 1), (9.0, 16, 16)],
)
def test_capacity(factor, length, places):
    sizes = Experts(count=8, chosen=2, hidden=1, capacity_factor=factor)
    assert sizes.capacity(length) == places


def test_explicit_all_to_alls_need_a_mesh_with_experts():
    with pytest.raises(ValueError, match='axis "expert"'):
        by_all_to_all(jnp.zeros((1, 4, 4)), {}, routing_of(scores_of((0, 1))), TINY.experts)
    with pytest.raises(FlintError, match='axis "expert"'):
        training(TINY, mesh=(4, 2), axes=("data", "model")).capture()


LARGE_EINSUM = replace(MIXTRAL_8X7B, dispatch="einsum")
THREE = {"mesh": (16, 8, 4), "axes": ("data", "expert", "model")}
STEPS = {
    "tiny": (moe.train_tiny, TINY),
    "tiny einsum": (moe.train_tiny_einsum, names_moe.EINSUM),
    "tiny 3-D": (names_moe.three_axes, TINY),
    "tiny 3-D einsum": (names_moe.three_axes_einsum, names_moe.EINSUM),
    "tiny 4-D": (names_moe.four_axes, TINY),
    "tiny 4-D einsum": (names_moe.four_axes_einsum, names_moe.EINSUM),
    "Mixtral": (train_mixtral, MIXTRAL_8X7B),
    "Mixtral einsum": (training(LARGE_EINSUM, mesh=(64, 8)), LARGE_EINSUM),
    "Mixtral 3-D": (training(MIXTRAL_8X7B, **THREE), MIXTRAL_8X7B),
    "Mixtral 3-D einsum": (training(LARGE_EINSUM, **THREE), LARGE_EINSUM),
}


@pytest.fixture(scope="module", params=quick(STEPS, "tiny 3-D einsum", "Mixtral"))
def case(request):
    """Workload, config, size of each axis."""
    step, config = STEPS[request.param]
    workload = step.capture()
    sizes = dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True))
    return workload, config, collections.defaultdict(lambda: 1, sizes)


#: Tokens' places of one expert: 5/4 of a quarter of a sequence's 4096 or 16 tokens.
PLACES = {4096: 1280, 16: 5}


def exchanges(workload, config):
    """Phase -> how many all-to-alls; all of them go to the experts, with the size worked out here.

    A device has one sequence, and as many places in it as all experts have for it, of bfloat16.
    """
    found = collections.Counter()
    size = config.experts.count * PLACES[config.sequence] * config.width * 2
    for node, times in communications(workload, "all_to_all"):
        assert partners(node.communication, workload.mesh) == "expert"
        assert sum(kind.bytes for kind in node.result_types) == size
        assert sum(node.communication.operand_bytes) == size
        found[node.source.phase] += times
    return dict(found)


def test_a_layer_sends_there_and_back_in_the_forward_and_the_backward_pass(case):
    """There: tokens, then gradients of the experts' results.  Back: the results, then gradients of
    the tokens.  The recomputation does both too: experts' products need the tokens, and the
    gradient of the router's weights needs the results."""
    workload, config, _ = case
    twice = 2 * config.layers
    assert exchanges(workload, config) == {
        Phase.FORWARD: twice, Phase.RECOMPUTE: twice, Phase.BACKWARD: twice
    }  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step", [names_moe.exchanged, names_moe.no_remat], ids=["exchanged", "no remat"]
)
def test_what_is_kept_is_not_sent_again(step):
    twice = 2 * TINY.layers
    assert exchanges(step.capture(), TINY) == {Phase.FORWARD: twice, Phase.BACKWARD: twice}


def test_only_weights_are_gathered(case):
    """Tokens, scores and places are nobody else's business: what is gathered is parameters, over
    the axis that splits them."""
    workload, _, _ = case
    gathers = communications(workload, "all_gather")
    assert {partners(node.communication, workload.mesh) for node, _ in gathers} == {"data"}


EXCHANGED = ["tiny", "tiny 3-D", "tiny 4-D", "Mixtral", "Mixtral 3-D"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(EXCHANGED, "tiny 3-D", "Mixtral"))
def test_experts_weights_and_gradients_travel_in_bfloat16(name):
    """A device's share of gate, up and down: its experts, its part of the hidden width.  Gathered
    over data for the forward pass and for the recomputation; gradients scattered once, and what is
    left of them summed over replicas."""
    step, config = STEPS[name]
    workload = step.capture()
    sizes = dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True))
    experts = config.experts
    share = experts.count // sizes["expert"] * experts.hidden // sizes.get("model", 1)
    weights = 3 * config.layers * config.width * share * 2
    found = collections.Counter()
    for node, times in communications(workload, "all_gather", "reduce_scatter", "all_reduce"):
        if "moe/weights" in node.source.layer:
            [kind] = node.result_types
            assert kind.dtype == "bf16"
            what = node.communication.kind, partners(node.communication, workload.mesh)
            found[what] += times * kind.bytes
    expected = {
        ("all_gather", "data"): 2 * weights,
        ("reduce_scatter", "data"): weights // sizes["data"],
    }
    if "replica" in sizes:
        expected["all_reduce", "replica"] = weights // sizes["data"]
    assert dict(found) == expected


def test_matmul_flops_are_those_of_the_formula(case):
    """Of one device; a product of (T, K) with (K, N) takes 2 T K N.  Forward, recomputation and two
    in the backward pass, as in ``test_llama3.py``; experts' ``down`` too is recomputed, as the
    gradient of the router's weights needs its result.  Experts work on all their places, filled or
    not.

    einsum: there are also products of (C E, S) with (S, D) that put tokens into places: forward,
    again, and one in the backward pass, as places have no gradient.  And those that take them
    out: forward, and two in the backward pass; their result is not needed there.  Before the
    former, (E, k) with (k, C) per token makes the table of places, and the same with the experts'
    weights before the latter: forward, again, and for the weights one in the backward pass.
    """
    workload, config, sizes = case
    found = product_flops(*workload.programs)
    length, width, heads, experts = config.sequence, config.width, config.heads, config.experts
    places = experts.count * PLACES[length]
    inner, outer = heads.queries * heads.size, heads.keys * heads.size
    projections = 2 * length * width * (inner + 2 * outer + inner)
    if config.mixer is cudnn_attention:  # as in ``test_llama3.py``
        attention = (2 + 2 + 5) * length * (length + 1) * inner
    else:
        attention = 4 * 2 * 2 * length * length * inner
    swiglu = 3 * 2 * places * width * experts.hidden
    router = 2 * length * width * experts.count
    head = 3 * 2 * length * width * config.vocabulary
    split = config.layers * (4 * (projections + swiglu) + attention) + head
    whole = 4 * config.layers * router
    if config.dispatch == "einsum":
        tables = 2 * length * experts.chosen * places
        whole += config.layers * (6 * 2 * length * places * width + 5 * tables)
    assert found == split // sizes["model"] + whole


NODES = replace(
    TINY, dispatch="nodes", width=128, sequence=64,
    experts=replace(TINY.experts, count=32, chosen=4, groups=4, kept_groups=2, gate="sigmoid"),
)  # fmt: skip


@pytest.mark.thorough
def test_a_token_crosses_the_network_once_per_node():
    """Four nodes of two devices; a router that chooses experts of two groups, which are nodes, so
    that half of the S tokens go to each.  Over "node" go, per token and node, D activations and k
    weights in bf16 and k indices in i32; back come D.  Over "expert", within the node, C places of
    each of its E / N experts for each of N sequences, there and back.  The plain dispatch sends E C
    places over all eight, of which 6 in 8 are on other nodes."""
    workload = training(NODES, mesh=(1, 4, 2), axes=("data", "node", "expert")).capture()
    sizes, length, width = NODES.experts, NODES.sequence, NODES.width
    found = collections.Counter()
    for node, times in communications(workload, "all_to_all"):
        if node.source.phase == Phase.FORWARD:
            axis = partners(node.communication, workload.mesh)
            found[axis] += times * sum(node.communication.operand_bytes)
    tokens = 4 * (length // 2)
    there = tokens * (2 * width + (2 + 4) * sizes.chosen)
    places = 4 * (sizes.count // 4) * sizes.capacity(length)
    assert found == {
        "node": NODES.layers * (there + tokens * 2 * width),
        "expert": NODES.layers * 2 * places * 2 * width,
    }


def test_dispatch_over_nodes_needs_both_axes():
    with pytest.raises(FlintError, match='axes "node" and "expert"'):
        training(NODES, mesh=(4, 2), axes=("data", "expert")).capture()
