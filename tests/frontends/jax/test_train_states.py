"""Steps whose state is a library's object: what is an input, what is donated, what is reduced."""

from __future__ import annotations

import pytest

from flint.graph.graph import Phase
from flint.graph.partners import partners
from tests.frontends.jax import train_states

STEPS = ("linen", "nnx_step", "equinox_step", "optax_step")
#: Bytes of one rank's weights in float32: matrices and the first bias over "model", of 2.
WEIGHTS = sorted(4 * size for size in (64 * 128 // 2, 128 // 2, 128 * 32 // 2, 32))


@pytest.fixture(scope="module")
def captured():
    known = {}

    def get(name):
        if name not in known:
            known[name] = getattr(train_states, name).capture()
        return known[name]

    return get


def inputs(workload, role):
    return [item for item in workload.programs[0].inputs if item.role == role]


@pytest.mark.parametrize("name", STEPS)
def test_parameters_and_adams_moments_are_distinguished(name, captured):
    workload = captured(name)
    assert workload.warnings == {}
    assert sorted(item.type.bytes for item in inputs(workload, "parameter")) == WEIGHTS
    moments = [item.type.bytes for item in inputs(workload, "optimizer state")]
    # Two moments of every weight; the rest are counters.
    assert sorted(size for size in moments if size > 4) == sorted(2 * WEIGHTS)
    assert [item.type.bytes for item in inputs(workload, "batch")] == [4 * 16 * 64]
    assert inputs(workload, "unknown") == []


@pytest.mark.parametrize("name", STEPS)
def test_every_gradient_is_reduced_once_over_the_batchs_axis(name, captured):
    workload = captured(name)
    reduced = [
        node
        for node in workload.graph
        if node.communication and partners(node.communication, workload.mesh) == "data"
    ]
    assert {node.communication.kind for node in reduced} == {"all_reduce"}
    assert {node.source.phase for node in reduced} == {Phase.BACKWARD}
    assert sorted(sum(t.bytes for t in node.result_types) for node in reduced) == WEIGHTS


@pytest.mark.parametrize("name", STEPS)
def test_one_activation_is_reduced_over_the_models_axis(name, captured):
    """The second layer's contraction is split: 16 rows of 32 sums."""
    workload = captured(name)
    (node,) = (
        node
        for node in workload.graph
        if node.communication and partners(node.communication, workload.mesh) == "model"
    )
    assert node.source.phase is Phase.FORWARD
    assert sum(kind.bytes for kind in node.result_types) == 4 * 16 * 32


@pytest.mark.parametrize("name", ["linen", "nnx_step", "optax_step"])
def test_a_donated_state_is_donated_leaf_by_leaf(name, captured):
    state = [item for item in captured(name).programs[0].inputs if item.role != "batch"]
    assert all(item.donated >= 0 for item in state)
    assert len({item.donated for item in state}) == len(state)


@pytest.mark.parametrize("name", STEPS)
def test_the_update_is_the_optimizers_phase(name, captured):
    """Adam takes a square root of every second moment."""
    phases = {node.source.phase for node in captured(name).graph if node.op == "sqrt"}
    assert phases == {Phase.OPTIMIZER}
