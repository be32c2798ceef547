"""Phases, layers and source lines of a step that JAX itself has lowered."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import flint
from flint.graph.graph import Phase, WorkloadGraph

WIDTH = 16


@jax.checkpoint
def block(w: jax.Array, x: jax.Array) -> jax.Array:
    with jax.named_scope("mlp"):
        return jnp.tanh(x @ w)


def step(w: jax.Array, x: jax.Array) -> jax.Array:
    gradient = jax.grad(lambda w: block(w, x).sum())(w)
    with jax.named_scope("optimizer"):
        return w - 0.1 * gradient


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> WorkloadGraph:
    value = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    module = jax.jit(step).trace(value, value).lower().compiler_ir("stablehlo")
    path = tmp_path_factory.mktemp("phases") / "step.mlir"
    path.write_text(module.operation.get_asm(enable_debug_info=True))
    return flint.convert(path).graph


def test_each_product_belongs_to_its_phase(graph: WorkloadGraph) -> None:
    # y = tanh(x @ w) under a checkpoint: the gradient of w needs the product again (recompute) and
    # one product with the transposed input (backward); the loss itself is not asked for.
    phases = Counter(node.source.phase for node in graph if node.op == "dot_general")
    assert phases[Phase.RECOMPUTE] == 1
    assert phases[Phase.BACKWARD] == 1


def test_the_update_belongs_to_the_optimizer(graph: WorkloadGraph) -> None:
    updates = [node for node in graph if node.op == "subtract"]
    assert updates[-1].source.phase == Phase.OPTIMIZER


def test_a_layer_is_the_users_scope_without_jaxs_transformations(graph: WorkloadGraph) -> None:
    layers = {node.source.layer for node in graph if node.op == "dot_general"}
    assert layers == {"mlp"}


def test_a_source_line_is_the_users(graph: WorkloadGraph) -> None:
    product = next(node for node in graph if node.op == "dot_general")
    assert Path(product.source.file).name == "test_phases.py"
    line = Path(__file__).read_text().splitlines()[product.source.line - 1]
    assert "@ w" in line or "block(w, x)" in line
