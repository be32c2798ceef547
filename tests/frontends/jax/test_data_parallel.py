"""A data-parallel JAX step, captured: counts that can be derived by hand."""

from __future__ import annotations

import os
from collections import Counter

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import flint
from flint.errors import UsageError
from flint.workload.workload import Workload

LAYERS, WIDTH, BATCH = 3, 64, 256


def build(mesh: AbstractMesh) -> tuple[list[jax.ShapeDtypeStruct], jax.ShapeDtypeStruct]:
    def abstract(shape: tuple[int, ...], *spec: str | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec))
        )

    return [abstract((WIDTH, WIDTH)) for _ in range(LAYERS)], abstract((BATCH, WIDTH), "data")


@flint.capture(mesh=(8,), axes=("data",), setup=build)
def train_step(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    def loss(weights: list[jax.Array]) -> jax.Array:
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
        return (h**2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


@pytest.fixture(scope="module")
def workload() -> Workload:
    return train_step.capture()


def reduced(workload: Workload) -> Counter[int]:
    return Counter(
        node.communication.bytes_in for node in workload.graph if node.op == "all_reduce"
    )


def test_each_gradient_is_reduced_once_over_all_ranks(workload: Workload) -> None:
    # Weights are replicated, the batch is sharded: one all-reduce per weight (4 bytes an element)
    # and one for the scalar loss.
    assert reduced(workload) == {WIDTH * WIDTH * 4: LAYERS, 4: 1}


def test_products_are_those_of_one_ranks_share_of_the_batch(workload: Workload) -> None:
    # Per layer one product forward and one for the weight's gradient; one for the input's gradient
    # except in the first layer, whose input is the batch.
    products = LAYERS + LAYERS + (LAYERS - 1)
    flops = sum(node.flops for node in workload.graph if node.op.startswith("dot"))
    assert flops == products * 2 * (BATCH // 8) * WIDTH * WIDTH


def test_the_last_layers_gradient_is_reduced_before_the_first_layers_is_made(
    workload: Workload,
) -> None:
    # Interleaved with the backward pass, not behind it.
    order = [node.op for node in workload.graph if node.op == "all_reduce" or "dot" in node.op]
    gradients = [i for i, op in enumerate(order) if op == "all_reduce"]
    assert gradients[0] < max(i for i, op in enumerate(order) if "dot" in op)


def test_another_mesh_divides_the_batch_otherwise() -> None:
    workload = train_step.at(mesh=(32,)).capture()
    assert workload.mesh.size == 32
    assert reduced(workload) == {WIDTH * WIDTH * 4: LAYERS, 4: 1}


def test_the_step_remains_the_users_function() -> None:
    weights, x = [jnp.eye(4)], jnp.ones((2, 4))
    updated, value = train_step(weights, x)
    assert updated[0].shape == (4, 4)
    assert train_step.__name__ == "train_step"
    assert float(value) == pytest.approx(float(jnp.tanh(1.0) ** 2), rel=1e-5)


def test_a_mesh_that_does_not_divide_is_one_clear_error() -> None:
    with pytest.raises((UsageError, flint.FlintError)):
        train_step.at(mesh=(7,)).capture()
