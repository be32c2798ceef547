"""Ops in bodies of ``shard_map`` have the path of what they stand in: phase and layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.frontends.jax.lower.shard_map_names import name_bodies
from flint.graph.graph import Phase
from flint.stablehlo.read.bindings import ir, make_context
from tests.support.meshes import auto_mesh

MESH = auto_mesh((4,), ("data",))


def shifted(x):
    """A body with a loop in it: 3 hops, and a product after each."""

    def body(x):
        def hop(x, _):
            with jax.named_scope("hop"):
                x = lax.ppermute(x, "data", [(n, (n + 1) % 4) for n in range(4)])
            return jnp.tanh(x @ x), None

        return lax.scan(hop, x, None, length=3)[0]

    return jax.shard_map(body, in_specs=P("data"), out_specs=P("data"))(x)


def loss(w, x):
    with jax.named_scope("first"):
        x = shifted(x * w)
    with jax.named_scope("second"):
        x = jax.checkpoint(shifted)(x)
    return x.sum()


def step(w, x):
    return jax.value_and_grad(loss)(w, x)


def arguments(mesh=MESH):
    split = NamedSharding(mesh, P("data"))
    x = jax.ShapeDtypeStruct((4, 16, 16), jnp.float32, sharding=split)
    return jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P())), x


def hops(workload):
    """(layer, phase) of every permute."""
    [program] = workload.programs
    return sorted(
        (node.source.layer, node.source.phase)
        for graph, _ in program.graph.walk()
        for node in graph
        if node.communication and node.communication.kind == "collective_permute"
    )


def test_hops_have_the_layers_and_phases_of_their_calls():
    workload = flint.capture(step, mesh=(4,), axes=("data",)).capture(*arguments())
    assert hops(workload) == sorted(
        [
            ("first/hop", Phase.FORWARD),
            ("first/hop", Phase.BACKWARD),
            ("second/hop", Phase.FORWARD),
            ("second/hop", Phase.RECOMPUTE),
            ("second/hop", Phase.BACKWARD),
        ]
    )


def test_at_the_logical_level_too():
    """JAX makes a function of the loop's body, whose names are relative to the call."""
    step_ = flint.capture(step, mesh=(4,), axes=("data",))
    partitioned, logical = (
        hops(step_.capture(*arguments(), level=level)) for level in ("partitioned", "logical")
    )
    assert logical == partitioned


def test_a_body_in_a_scan_and_in_a_function_has_the_path_of_both():
    @jax.jit
    def inner(x):
        with jax.named_scope("inside"):
            return shifted(x)

    def outer(x):
        with jax.named_scope("layers"):
            return lax.scan(lambda x, _: (inner(x), None), x, None, length=2)[0].sum()

    step = flint.capture(jax.grad(outer), mesh=(4,), axes=("data",))
    assert hops(step.capture(arguments()[1])) == [
        ("layers/inside/hop", Phase.FORWARD),
        ("layers/inside/hop", Phase.BACKWARD),
    ]


def names(text):
    """Op -> name, of all ops, after ``name_bodies``."""
    with make_context():
        module = ir.Module.parse(text)
        name_bodies(module)
        found = []

        def note(op):
            location = op.location
            if isinstance(location, ir.NameLoc):
                found.append((op.name, location.name_str))
            return ir.WalkResult.ADVANCE

        module.operation.walk(note)
    return found


CALLED = """
sdy.mesh @mesh = <["data"=4]>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = func.call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("step/left/one")
  %b = func.call @inner(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("step/left/two")
  return %b : tensor<4xf32>
}
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"data"}]>]
      out_shardings=[<@mesh, [{"data"}]>] manual_axes={"data"} (%y: tensor<1xf32>) {
    %n = stablehlo.negate %y : tensor<1xf32> loc("neg")
    sdy.return %n : tensor<1xf32>
  } : (tensor<4xf32>) -> tensor<4xf32> loc("map")
  %b = stablehlo.abs %a : tensor<4xf32> loc("abs")
  return %b : tensor<4xf32>
}
"""


def test_a_function_of_two_callers_has_what_their_paths_have_in_common():
    assert ("stablehlo.negate", "step/left/map/neg") in names(CALLED)


def test_what_is_in_no_body_keeps_its_name():
    assert ("stablehlo.abs", "abs") in names(CALLED)


def test_a_name_inside_a_name_that_goes_on_with_it_is_the_whole():
    """JAX 0.12 names so what a recomputed body's forward pass is made of."""
    nested = 'loc("eval_jaxpr"("eval_jaxpr/while/body/hop/neg"("train.py":3:1)))'
    found = names(CALLED.replace('loc("neg")', nested))
    assert ("stablehlo.negate", "step/left/map/eval_jaxpr/while/body/hop/neg") in found


def test_a_module_whose_function_calls_itself_is_left_to_others_to_refuse():
    text = CALLED.replace("stablehlo.abs %a :", "func.call @inner(%a) :").replace(
        ': tensor<4xf32> loc("abs")', ': (tensor<4xf32>) -> tensor<4xf32> loc("abs")'
    )
    assert any(name.endswith("map/neg") for _, name in names(text))
