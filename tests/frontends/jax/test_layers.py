"""Layers of programs that name what they do: the same in every phase, whatever transforms them."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax import lax

import flint
from flint.graph.graph import Phase
from tests.support.shared import quick

scope = jax.named_scope
WIDTH = 16
X = jax.ShapeDtypeStruct((4, WIDTH), jnp.float32)
WS = jax.ShapeDtypeStruct((2, WIDTH, WIDTH), jnp.float32)


def two(w, x):
    with scope("attention"):
        x = jnp.sin(x @ w)
    with scope("mlp"):
        return jnp.cos(x @ w)


def scanned(body, ws, x):
    return lax.scan(lambda x, w: (body(w, x), None), x, ws)[0]


def in_scopes(body, *names):
    def named(w, x):
        with scope(names[0]):
            return in_scopes(body, *names[1:])(w, x)

    return named if names else body


def unrolled(ws, x):
    for number in range(2):
        x = in_scopes(jax.checkpoint(two), "block")(ws[number], x)
    return x


remat = jax.checkpoint
policy = jax.checkpoint_policies.dots_saveable
inner = in_scopes(remat(two), "block")

#: What runs in the scope "model", and what stands between that and "attention".
FORMS = {
    "scan": (lambda ws, x: scanned(in_scopes(two, "block"), ws, x), "block"),
    "scan of a scope with remat in it": (lambda ws, x: scanned(inner, ws, x), "block"),
    "scan of remat": (lambda ws, x: scanned(remat(in_scopes(two, "block")), ws, x), "block"),
    "remat of a scan": (remat(lambda ws, x: scanned(in_scopes(two, "block"), ws, x)), "block"),
    "unrolled": (unrolled, "block"),
    "remat with a policy": (
        lambda ws, x: scanned(in_scopes(remat(two, policy=policy), "block"), ws, x), "block"),
    "several scopes": (
        lambda ws, x: scanned(in_scopes(remat(two), "stage", "block"), ws, x), "stage/block"),
    "remat in remat": (
        lambda ws, x: scanned(in_scopes(remat(inner), "stage"), ws, x), "stage/block"),
    "scan in scan": (
        lambda ws, x: scanned(
            remat(in_scopes(lambda ws, x: scanned(inner, ws, x), "stage")), jnp.stack([ws, ws]), x),
        "stage/block"),
    "one name twice": (
        lambda ws, x: scanned(in_scopes(remat(two), "block", "block"), ws, x), "block/block"),
    "one name twice, unrolled": (
        lambda ws, x: in_scopes(remat(two), "block", "block")(ws[0], x), "block/block"),
    "jitted": (lambda ws, x: scanned(in_scopes(jax.jit(two), "block"), ws, x), "block"),
    "mapped": (
        lambda ws, x: jax.vmap(in_scopes(two, "block"), (0, None))(ws, x).sum(0), "block"),
}  # fmt: skip


def layers(workload, op="dot_general"):
    """(layer, phase) of the nodes of an op."""
    return {
        (node.source.layer, node.source.phase)
        for graph, _ in workload.graph.walk()
        for node in graph
        if node.op == op
    }


@pytest.mark.parametrize("form", quick(FORMS, "scan of a scope with remat in it", "remat in remat"))
def test_layers_are_the_same_in_every_phase(form):
    model, between = FORMS[form]

    def loss(ws, x):
        return (in_scopes(model, "model")(ws, x) ** 2).sum()

    workload = flint.capture(jax.jit(jax.grad(loss)), mesh=(1,)).capture(WS, X)
    found = layers(workload)
    phases = {phase for _, phase in found}
    assert {Phase.FORWARD, Phase.BACKWARD} <= phases
    assert found == {
        (f"model/{between}/{last}", phase)
        for last in ("attention", "mlp")
        for phase in phases
    }  # fmt: skip


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(WIDTH, name="out")(jnp.tanh(nn.Dense(WIDTH, name="in")(x)))


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return x + Mlp(name="mlp")(x), None


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        block = nn.scan(
            nn.remat(LinenBlock), variable_axes={"params": 0}, split_rngs={"params": True}, length=2
        )
        return nn.Dense(WIDTH, name="head")(block(name="layers")(x, None)[0])


@pytest.mark.thorough
def test_linen_modules_are_layers():
    model = Linen()
    params = jax.eval_shape(model.init, jax.random.key(0), X)
    step = jax.jit(jax.grad(lambda params, x: model.apply(params, x).sum()))
    workload = flint.capture(step, mesh=(1,)).capture(params, X)
    assert {layer for layer, _ in layers(workload)} == {
        "Linen/layers/mlp/in", "Linen/layers/mlp/out", "Linen/head",
    }  # fmt: skip


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Dict({"in": nnx.Linear(WIDTH, WIDTH, rngs=rngs)})
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.inner["in"](x)))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.mlp = NnxMlp(rngs)

    def __call__(self, x):
        return x + self.mlp(x)


class Named(NnxBlock):
    def __call__(self, x):
        return super().__call__(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([NnxBlock(rngs), Named(rngs)])
        self.head = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.remat(lambda layer, x: layer(x))(layer, x)
        return self.head(x)


def test_nnx_modules_are_layers_by_the_names_that_their_parents_have_for_them():
    model = nnx.eval_shape(lambda: Nnx(nnx.Rngs(0)))
    step = nnx.jit(nnx.grad(lambda model, x: model(x).sum()))
    workload = flint.capture(step, mesh=(1,)).capture(model, X)
    blocks = {
        f"Nnx/{block}/mlp/{name}" for block in ("NnxBlock", "Named") for name in ("inner_in", "out")
    }
    found = layers(workload)
    assert {layer for layer, _ in found} == {*blocks, "Nnx/head"}  # remat makes copies of modules
    assert {phase for _, phase in found} == {Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE}


def test_nnx_modules_are_themselves_after_a_capture():
    before = NnxBlock.__call__
    step = jax.jit(lambda x: x + 1)
    flint.capture(step, mesh=(1,)).capture(X, level="logical")
    assert NnxBlock.__call__ is before
