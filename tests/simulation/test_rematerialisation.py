"""Recomputation of unrolled models: optimization barriers hold it in the backward pass.

Compared with scanned models, whose loops hold it there without any barrier, and with XLA: buffer
assignment of modules compiled for CPU, and the schedule of one compiled for an H100.
"""

from __future__ import annotations

from itertools import groupby

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import flint
from flint.graph.graph import Phase
from flint.graph.work import Unit
from tests.data.optimized.programs import AXES, SHAPE, remat
from tests.hlo.optimized.single import FOLDER
from tests.support.meshes import auto_mesh
from tests.support.shared import quick

LAYERS, BATCH, TIME, WIDTH, HEADS = 32, 64, 64, 16, 4
_POLICIES = jax.checkpoint_policies
POLICIES = {
    "nothing_saveable": _POLICIES.nothing_saveable,
    "dots_saveable": _POLICIES.dots_saveable,
    "dots_with_no_batch_dims_saveable": _POLICIES.dots_with_no_batch_dims_saveable,
    "save_only_these_names": _POLICIES.save_only_these_names("middle"),
}


def block(h, w):
    q, k, v = jnp.split((h @ w["attention"]).reshape(BATCH, TIME, 3 * HEADS, -1), 3, axis=2)
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    h = h + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(h.shape) @ w["out"]
    h = checkpoint_name(h, "middle")
    return h + jnp.tanh(h @ w["up"]) @ w["down"]


BLOCK = {
    "attention": (WIDTH, 3 * WIDTH),
    "out": (WIDTH, WIDTH),
    "up": (WIDTH, 4 * WIDTH),
    "down": (4 * WIDTH, WIDTH),
}


def chain(h, w):
    """Without attention, whose operands XLA's CPU backend copies into other layouts."""
    h = h + jnp.tanh(jnp.tanh(h @ w["up"]) @ w["down"])
    return checkpoint_name(h, "middle")


CHAIN = {"up": (WIDTH, WIDTH), "down": (WIDTH, WIDTH)}


def lowered(layer, sizes, scan):
    """A training step over the layers with clipped gradients, which hold the optimizer back."""
    shapes = {name: ((LAYERS,) if scan else ()) + size for name, size in sizes.items()}
    weights = {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in shapes.items()}
    x = jax.ShapeDtypeStruct((BATCH, TIME, WIDTH), jnp.float32)

    def loss(weights, x):
        if scan:
            x, _ = jax.lax.scan(lambda h, w: (layer(h, w), None), x, weights)
        else:
            for w in weights:
                x = layer(x, w)
        return jnp.mean(x**2)

    def step(weights, x):
        value, gradients = jax.value_and_grad(loss)(weights, x)
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients)))
        return jax.tree.map(lambda w, g: w - 0.1 * g / norm, weights, gradients), value

    return jax.jit(step, donate_argnums=0).lower(weights if scan else [weights] * LAYERS, x)


def peak(tmp_path, lowered, **options):
    """Bytes that the step needs according to Flint, with attention as written."""
    path = tmp_path / "step.mlir"
    path.write_text(lowered.as_text())
    workload = flint.convert(path, **options)
    return workload.simulate("dgx-h100", attention="as-written").peak_memory_bytes


def xla_says(lowered):
    found = lowered.compile().memory_analysis()
    own = found.argument_size_in_bytes + found.output_size_in_bytes
    return own - found.alias_size_in_bytes + found.temp_size_in_bytes


@pytest.mark.parametrize("policy", quick(POLICIES, "nothing_saveable"))
def test_unrolled_layers_need_what_scanned_ones_need(tmp_path, policy):
    layer = jax.checkpoint(block, policy=POLICIES[policy])
    scanned, unrolled = (peak(tmp_path, lowered(layer, BLOCK, scan)) for scan in (True, False))
    assert unrolled == pytest.approx(scanned, rel=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
def test_scanned_layers_need_as_much_memory_as_in_xla(tmp_path, policy):
    step = lowered(jax.checkpoint(chain, policy=POLICIES[policy]), CHAIN, scan=True)
    assert peak(tmp_path, step) == pytest.approx(xla_says(step), rel=0.05)


@pytest.mark.thorough
def test_a_cpu_backend_drops_barriers_and_what_it_compiles_is_followed(tmp_path):
    """XLA's CPU backend removes them early and finds that layers are computed twice: the compiled
    step has the memory and the products of one without rematerialisation."""
    plain, again = (lowered(layer, CHAIN, scan=False) for layer in (chain, jax.checkpoint(chain)))
    assert xla_says(again) == xla_says(plain)
    path = tmp_path / "step.hlo"
    path.write_text(again.compile().as_text())
    # Of each layer two products forward and four backward; one of the first layer is not needed.
    assert sum(count for _, count in products(flint.convert(path))) == LAYERS * 6 - 1
    path = tmp_path / "step.mlir"
    path.write_text(again.as_text())
    assert sum(count for _, count in products(flint.convert(path))) == LAYERS * 8 - 1


def products(workload):
    """Runs of phases over the matrix products of a program, in the order of issue."""
    graph = workload.programs[0].graph
    phases = [
        node.source.phase
        for node in graph
        if any(item.unit is Unit.MATMUL for item in node.work.items)
    ]
    return [(phase, len(list(run))) for phase, run in groupby(phases)]


def test_layers_are_recomputed_when_the_schedule_for_an_h100_does_so(tmp_path):
    """Six layers of two products each.  The schedule: all forward, then of each layer its forward
    pass again and at once the two products that its backward pass hands to the layer before; when
    gradients of weights are computed is left to either scheduler."""
    compiled = flint.convert(FOLDER / "gpu_remat.hlo.pb.gz")
    path = tmp_path / "step.mlir"
    step, arguments = remat(auto_mesh(SHAPE, AXES))
    traced = jax.jit(step).trace(*arguments)
    path.write_text(traced.lower(lowering_platforms=("cpu",)).as_text(debug_info=True))
    for found in (products(compiled), products(flint.convert(path))):
        assert found[0] == (Phase.FORWARD, 12)
        assert [run for run in found if run[0] is Phase.RECOMPUTE] == [(Phase.RECOMPUTE, 2)] * 6
        assert [phase for phase, _ in found[1:]] == [Phase.RECOMPUTE, Phase.BACKWARD] * 6
        assert sum(count for phase, count in found if phase is Phase.BACKWARD) == 6 * 4 - 1
    dropped = flint.convert(path, drop_barriers=True)
    assert products(dropped)[0] != (Phase.FORWARD, 12)
    assert dropped.options["drop_barriers"] is True
