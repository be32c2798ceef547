"""What @flint.capture leaves alone, and what it adds."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.capturing.decorator import Capture
from flint.errors import UsageError
from tests.support.meshes import auto_mesh


def abstract(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def product(x, w):
    return x @ w


def kinds(workload):
    return sorted(
        node.communication.kind
        for program in workload.programs
        for node in program.graph
        if node.communication
    )


def test_a_call_is_the_functions_call(steps):
    params = {"w1": np.ones((64, 128), np.float32), "w2": np.ones((128, 64), np.float32)}
    batch = np.ones((2, 64), np.float32)
    expected = steps.mlp.__wrapped__(params, batch)
    got = steps.mlp(params, batch)
    assert jax.tree.all(jax.tree.map(np.array_equal, got, expected))


def test_name_doc_and_signature_are_the_functions(steps):
    assert steps.mlp.__name__ == "mlp"
    assert steps.mlp.__doc__ == "One step of gradient descent."
    assert list(inspect.signature(steps.mlp).parameters) == ["params", "batch"]


def test_attributes_are_the_functions(steps):
    assert steps.scan.lower == steps.scan.__wrapped__.lower
    with pytest.raises(AttributeError):
        _ = steps.mlp.lower


def test_a_decorated_function_pickles_by_name(steps):
    assert pickle.loads(pickle.dumps(steps.mlp)) is steps.mlp
    assert copy.deepcopy(steps.mlp) is steps.mlp


def test_a_variant_pickles_as_a_variant(steps):
    variant = pickle.loads(pickle.dumps(steps.mlp.at((2, 4))))
    assert (variant.shape, variant.__name__) == ((2, 4), "mlp")


def test_a_jitted_capture_still_runs(steps):
    params = {"w1": np.ones((64, 128), np.float32), "w2": np.ones((128, 64), np.float32)}
    assert jax.jit(steps.mlp)(params, np.ones((2, 64), np.float32))["w1"].shape == (64, 128)


def test_a_decorated_method_is_bound():
    class Trainer:
        rate = 3

        @flint.capture(mesh=(2,), axes=("data",))
        def step(self, x):
            return self.rate * x

    assert Trainer().step(2) == 6
    assert isinstance(Trainer.step, Capture)


def test_importing_flint_and_decorating_imports_no_jax():
    code = (
        "import sys, flint\n"
        "@flint.capture(mesh=(4, 2), axes=('data', 'model'))\n"
        "def step(x): return x\n"
        "assert step(3) == 3 and 'jax' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_mesh_is_another_capture(steps):
    small, large = steps.mlp.at((2, 2)).capture(), steps.mlp.at((8, 4)).capture()
    assert (small.mesh.size, large.mesh.size) == (4, 32)
    # Weight shards: 64 x 128 floats over all devices.
    sizes = [w.programs[0].inputs[0].type.bytes for w in (small, large)]
    assert sizes == [64 * 128 * 4 // 4, 64 * 128 * 4 // 32]


def test_axes_default_to_those_of_the_arguments_shardings():
    mesh = auto_mesh((4, 2), ("rows", "columns"))
    step = flint.capture(product, mesh=(8, 4))
    x = abstract(mesh, (64, 32), "rows", "columns")
    w = abstract(mesh, (32, 16), "columns", None)
    workload = step.capture(x, w)
    assert workload.mesh == flint.Mesh((8, 4), ("rows", "columns"))
    assert kinds(workload) == ["all_reduce"]


def test_real_arrays_with_a_sharding_are_arguments():
    devices = np.array(jax.devices()[:1])
    sharding = NamedSharding(jax.sharding.Mesh(devices, ("data",)), P("data"))
    x = jax.device_put(np.ones((64, 32), np.float32), sharding)
    step = flint.capture(lambda x: x.sum(0), mesh=(16,))
    workload = step.capture(x)
    assert workload.programs[0].inputs[0].type.shape == (4, 32)
    assert kinds(workload) == ["all_reduce"]


def test_bare_partition_specs_are_on_the_captures_mesh():
    def setup(mesh):
        return jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=P("data")), np.ones((32, 8))

    workload = flint.capture(product, mesh=(4, 2), axes=("data", "model"), setup=setup).capture()
    assert workload.programs[0].inputs[0].type.shape == (16, 32)


def test_shardings_of_the_decorator_are_those_of_jit():
    def setup(mesh):
        shape = jax.ShapeDtypeStruct
        return shape((64, 32), jnp.float32), shape((32, 8), jnp.float32)

    workload = flint.capture(
        product,
        mesh=(4, 2),
        axes=("data", "model"),
        setup=setup,
        in_shardings=(P("data", "model"), P("model", None)),
        out_shardings=P("data"),
    ).capture()
    assert [item.type.shape for item in workload.programs[0].inputs] == [(16, 16), (16, 8)]
    assert kinds(workload) == ["all_reduce"]


def test_specs_in_a_users_own_jit_are_on_the_captures_mesh():
    jitted = jax.jit(product, in_shardings=(P("data"), P()), static_argnums=())
    x, w = np.ones((64, 32), np.float32), np.ones((32, 8), np.float32)
    workload = flint.capture(jitted, mesh=(8,), axes=("data",)).capture(x, w)
    assert workload.programs[0].inputs[0].type.shape == (8, 32)


def test_static_arguments_stay_static():
    def scaled(x, times):
        for _ in range(times):
            x = jnp.sin(x)
        return x

    jitted = jax.jit(scaled, static_argnums=1)
    mesh = auto_mesh((8,), ("data",))
    workload = flint.capture(jitted, mesh=(8,)).capture(abstract(mesh, (64,), "data"), 3)
    assert [node.op for node in workload.graph] == ["sine"] * 3


def test_leaves_that_are_not_arrays_are_constants():
    def apply(model, x):
        return {"y": model["activation"](x @ model["w"]), "model": model}

    mesh = auto_mesh((8,), ("data",))
    model = {"w": abstract(mesh, (32, 8)), "activation": jnp.tanh}
    workload = flint.capture(apply, mesh=(8,)).capture(model, abstract(mesh, (64, 32), "data"))
    assert "tanh" in [node.op for node in workload.graph]


def test_keyword_arguments_come_from_setup_as_a_pair():
    def setup(mesh):
        return (abstract(mesh, (64, 32), "data"),), {"w": abstract(mesh, (32, 8))}

    workload = flint.capture(product, mesh=(8,), axes=("data",), setup=setup).capture()
    assert [item.name for item in workload.programs[0].inputs] == ["x", "w"]


def test_a_mesh_set_by_the_user_gives_way_to_the_captures():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    with jax.set_mesh(mesh):
        step = flint.capture(
            lambda x: jax.lax.with_sharding_constraint(x * 2, P("data")), mesh=(16,), axes=("data",)
        )
        workload = step.capture(jax.ShapeDtypeStruct((64,), jnp.float32))
        assert jax.sharding.get_abstract_mesh().size == 1
    assert workload.mesh.size == 16


def test_donated_inputs_name_the_output_that_takes_their_buffer(captured):
    # `scan` donates its state and returns the new one first; equal sizes pair in order.
    inputs = captured("scan").programs[0].inputs
    state = [item for item in inputs if item.name.startswith("state")]
    assert sorted(item.donated for item in state) == list(range(len(state)))
    assert [item.donated for item in inputs if item.name.startswith("batch")] == [-1]


def test_roles_follow_the_arguments_tree(captured):
    roles = {item.name: item.role for item in captured("scan").programs[0].inputs}
    assert roles["state['params']['up']"] == "parameter"
    assert roles["state['opt_state']['momentum']['up']"] == "optimizer state"
    assert roles["batch['x']"] == "batch"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"level": "optimized"}, "needs a target"),
        ({"level": "final"}, "choose from: logical, partitioned, optimized, auto"),
        ({"target": "h100"}, "target 'h100'"),
        ({"options": {"trip_cont": 3}}, "unknown option trip_cont; choose from: trip_count"),
        ({"options": {"time_limit": -1}}, "time_limit=-1"),
    ],
)
def test_wrong_requests_say_what_there_is(steps, wrong, message):
    with pytest.raises(UsageError, match=message):
        steps.mlp.capture(**wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mesh": (4, 2), "axes": ("data",)}, "2 axes"),
        ({"mesh": (0,)}, "at least 1 device"),
        ({"mesh": "64,8"}, "expected sizes"),
        ({"mesh": (2, 2), "axes": ("a", "a")}, "distinct names"),
    ],
)
def test_a_wrong_mesh_is_refused_at_once(settings, message):
    with pytest.raises(UsageError, match=message):
        flint.capture(**settings)(product)


def test_axes_of_another_number_must_be_named(steps):
    with pytest.raises(UsageError, match="the step's axes are"):
        steps.mlp.at((2, 2, 2))


def test_arguments_on_other_axes_are_refused():
    x = abstract(auto_mesh((4,), ("rows",)), (64,), "rows")
    step = flint.capture(jnp.sin, mesh=(4,), axes=("data",))
    with pytest.raises(UsageError, match="a mesh with the axes rows"):
        step.capture(x)


def test_an_indivisible_dim_names_argument_dim_and_axis(steps):
    with pytest.raises(UsageError) as caught:
        steps.mlp.at((5, 2)).capture()
    text = str(caught.value)
    assert "params['w1']" in text
    assert "mesh axis data of 5 devices does not divide its dim 0 of size 64" in text


def test_jit_settings_of_a_jitted_function_are_refused():
    step = flint.capture(jax.jit(product), mesh=(2,), donate_argnums=0)
    x = np.ones((2, 2), np.float32)
    with pytest.raises(UsageError, match="already jitted"):
        step.capture(x, x)


def test_unknown_settings_are_refused():
    step = flint.capture(product, mesh=(2,), donate_args=0)
    x = np.ones((2, 2), np.float32)
    with pytest.raises(UsageError, match="donate_args"):
        step.capture(x, x)


def test_missing_arguments_are_asked_for():
    with pytest.raises(UsageError, match="takes arguments"):
        flint.capture(product, mesh=(2,)).capture()


def test_an_unknown_framework_is_refused():
    with pytest.raises(UsageError, match="unknown frontend 'theano'"):
        flint.capture(product, mesh=(2,), framework="theano").capture(1, 2)


def test_a_step_without_shardings_is_warned_about():
    x = np.ones((2, 2), np.float32)
    workload = flint.capture(product, mesh=(2,)).capture(x, x)
    assert any("nothing is sharded" in text for text in workload.warnings)


def test_a_step_that_returns_nothing_is_warned_about():
    def forgetful(x):
        jnp.sin(x)

    workload = flint.capture(forgetful, mesh=(2,)).capture(np.ones((2, 2), np.float32))
    assert any("no results" in text for text in workload.warnings)
