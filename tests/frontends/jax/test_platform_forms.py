"""What JAX lowers otherwise for CPUs than for the devices that a capture is for."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas
from jax.experimental.compute_on import compute_on
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.errors import FlintError
from tests.frontends.jax.comparing import captured_totals
from tests.support.meshes import auto_mesh

MESH = auto_mesh((4, 2), ("expert", "data"))
GROUPS, ROWS, DEPTH, WIDTH = 8, 64, 32, 16


def placed(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def captured(step, *arguments, **options):
    return flint.capture(step, mesh=(4, 2), axes=("expert", "data")).capture(*arguments, **options)


def told(workload, word):
    return sum(word in text for text in workload.warnings)


def ragged(rows, matrices, sizes):
    return jax.lax.ragged_dot(rows, matrices, sizes)


def ragged_arguments(*spec):
    return (
        placed((ROWS, DEPTH)),
        placed((GROUPS, DEPTH, WIDTH), *spec),
        placed((GROUPS,), dtype=jnp.int32),
    )


def test_a_row_meets_the_matrix_of_its_own_group_alone():
    """2 m k n FLOPs, however many groups there are."""
    workload = captured(ragged, *ragged_arguments())
    [program] = workload.programs
    assert sum(node.work.flops for node in program.graph) == 2 * ROWS * DEPTH * WIDTH
    assert told(workload, "ragged_dot") == 1


def test_matrices_of_split_groups_are_gathered():
    """XLA's compilers for H100 and for TPU v5p gather them; of what JAX lowers for CPUs, a product
    with every group, the results would be reduced."""
    totals = captured_totals(captured(ragged, *ragged_arguments("expert")))
    groups = str([[0, 2, 4, 6], [1, 3, 5, 7]])
    assert totals == {("all-gather", groups): [1, GROUPS * DEPTH * WIDTH * 4]}


def test_gradients_of_ragged_products_are_ragged():
    """Three products of the same size: forward, of the rows and of the matrices."""

    def step(rows, matrices, sizes):
        return jax.grad(lambda x, w: jnp.sum(ragged(x, w, sizes) ** 2), (0, 1))(rows, matrices)

    [program] = captured(step, *ragged_arguments()).programs
    products = [node for node in program.graph if "ragged" in node.op]
    assert [node.work.flops for node in products] == 3 * [2 * ROWS * DEPTH * WIDTH]


def test_a_request_to_jax_for_dense_products_is_kept():
    """All groups' matrices for every row."""
    name = "jax_ragged_dot_use_ragged_dot_instruction"
    jax.config.update(name, False)
    try:
        workload = captured(ragged, *ragged_arguments())
    finally:
        jax.config.update(name, True)
    [program] = workload.programs
    products = [node.work.flops for node in program.graph if "dot" in node.op]
    assert products == [GROUPS * 2 * ROWS * DEPTH * WIDTH]
    assert told(workload, "ragged_dot") == 0


def by_platform(x, w, **branches):
    return jax.lax.platform_dependent(x, w, **branches)


@pytest.mark.parametrize(
    ("branches", "warned"),
    [
        ({"cpu": jnp.matmul, "default": jnp.add}, 1),
        ({"tpu": jnp.add, "default": jnp.matmul}, 1),
        ({"cpu": jnp.matmul, "cuda": jnp.add, "tpu": jnp.add}, 1),
        ({"rocm": jnp.add, "default": jnp.matmul}, 0),
    ],
    ids=["cpu", "tpu", "each", "rocm"],
)
def test_a_branch_for_cpus_alone_is_reported(branches, warned):
    square = placed((32, 32))
    workload = captured(lambda x, w: by_platform(x, w, **branches), square, square)
    assert told(workload, "platform_dependent") == warned


def test_branches_that_jax_itself_takes_for_others_are_not_reported():
    """``jnp.diag`` has one for Mosaic."""
    assert told(captured(jnp.diag, placed((32, 32))), "platform_dependent") == 0


def test_activations_kept_on_the_host_are_copied_there_and_back():
    """JAX lowers these copies for GPUs and TPUs and drops them for CPUs.  A layer keeps its input,
    16 x 32 of float32, split over the axis "data"."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def layer(x, w):
        return jnp.tanh(checkpoint_name(x, "hidden") @ w), None

    def step(x, w):
        kept = jax.checkpoint(layer, policy=policy)
        return jax.grad(lambda w: jnp.sum(jax.lax.scan(kept, x, w)[0]))(w)

    x, w = placed((16, 32), "data"), placed((3, 32, 32))
    traced = jax.jit(step).trace(x, w)
    assert "pinned_host" in traced.lower(lowering_platforms=("tpu",)).as_text()
    assert "pinned_host" not in traced.lower(lowering_platforms=("cpu",)).as_text()
    workload = captured(step, x, w)
    assert not workload.warnings
    copies = [
        (node.op, str(node.result_types[0]), times)
        for block, times in workload.graph.walk()
        for node in block
        if node.op.startswith("MoveTo")
    ]
    parts = workload.mesh.shape[workload.mesh.axes.index("data")]
    size = f"{16 // parts}x32xf32"
    assert copies == [("MoveToHost", size, 3), ("MoveToDevice", size, 3)]


def test_a_kernel_that_nobody_can_split_is_reported_as_such():
    """Pallas has no form for CPUs; that it must stand in ``shard_map`` is what helps."""

    def copy(x, out):
        out[...] = x[...]

    def step(x):
        return pallas.pallas_call(copy, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(FlintError, match=r"wrap the call in a shard_map"):
        captured(step, placed((64, 128), "data"))


def test_results_that_out_shardings_leave_with_the_host_are_copied_there():
    """As a step does whose optimizer's state stays in the host's memory: the state is brought to
    the device and updated, its new value goes back.  A value that is where its sharding says is
    not copied: the loss, a number on the device, and what the host has already."""
    split = NamedSharding(MESH, P("expert"))
    kept = split.with_memory_kind("pinned_host")

    def step(w, state, unused):
        state = 0.9 * jax.device_put(state, jax.memory.Space.Device) + w
        return w - state, state, unused, jnp.sum(w)

    jitted = jax.jit(step, out_shardings=(split, kept, kept, NamedSharding(MESH, P())))
    arrays = [
        jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=sharding)
        for sharding in (split, kept, kept)
    ]
    copies = [
        (node.op, str(node.result_types[0]))
        for node in captured(jitted, *arrays).graph
        if node.op.startswith("MoveTo")
    ]
    assert copies == [("MoveToDevice", "16x32xf32"), ("MoveToHost", "16x32xf32")]


def on_host(function):
    """The function on the host's processor, in the words of the installed version."""
    if "out_memory_spaces" in inspect.signature(compute_on).parameters:  # since jax 0.12
        space = jax.memory.Space.Device
        return compute_on(function, compute_type="device_host", out_memory_spaces=space)
    return compute_on("device_host")(function)


def test_ops_that_run_on_the_hosts_processor_are_reported():
    """Three of them: a product, a scaling and their sum; the reduction runs on the device."""

    moved = on_host(lambda x: x @ x + 2.0 * x)

    def step(x):
        return moved(x).sum()

    square = placed((32, 32))
    lowered = jax.jit(step).trace(square).lower(lowering_platforms=("cpu",)).as_text()
    assert all('"host"' in one for one in lowered.splitlines() if "multiply" in one)
    warnings = captured(step, square).warnings
    [(text, count)] = [item for item in warnings.items() if "compute_on" in item[0]]
    assert ("timed as on the device" in text, count) == (True, 3)
