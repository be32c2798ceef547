"""Results on explicit axes lie where their types say, as in a run: XLA may not choose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.support import command_line

STEP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
def on(*spec, **left):
    return NamedSharding(mesh, P(*spec, **left))
w = jax.ShapeDtypeStruct((512, 1024), jnp.float32, sharding=on(None, "model"))
x = jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=on("data"))
@jax.jit
def gradients(w, x):
    y = jnp.einsum("bd,df->bf", x, w, out_sharding=on("data", "model"))
    return jnp.einsum("bd,bf->df", x, y, out_sharding=on(None, "model", unreduced={"data"}))
@jax.jit
def update(w, g):
    return w - 0.1 * jax.sharding.reshard(g, on(None, "model"))
def step(w, x):
    return update(w, gradients(w, x))
def setup(_):
    return w, x
"""
RUN = """
step(*(jax.device_put(np.ones(item.shape, np.float32), item.sharding) for item in (w, x)))
"""


def abstract_arguments(mesh):
    w = NamedSharding(mesh, P(None, "model"))
    x = NamedSharding(mesh, P("data"))
    return (
        jax.ShapeDtypeStruct((512, 1024), jnp.float32, sharding=w),
        jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=x),
    )


@jax.jit
def gradients(w, x):
    y = jnp.einsum("bd,df->bf", x, w, out_sharding=P("data", "model"))
    return jnp.einsum("bd,bf->df", x, y, out_sharding=P(None, "model", unreduced={"data"}))


@jax.jit
def update(w, g):
    return w - 0.1 * jax.sharding.reshard(g, P(None, "model"))


def step(w, x):
    return update(w, gradients(w, x))


@pytest.mark.parametrize(("function", "sums"), ((gradients, 0), (step, 1)))
def test_a_sum_that_a_result_leaves_open_is_not_communicated(function, sums):
    """The update sums the gradients of half of the columns: 512 x 512 floats."""
    captured = flint.capture(
        mesh=(4, 2), axes=("data", "model"), setup=abstract_arguments,
        axis_types=AxisType.Explicit,
    )(function).capture()  # fmt: skip
    [program] = captured.programs
    found = [node.communication for node in program.graph if node.communication is not None]
    sizes = [(item.kind, item.operand_bytes) for item in found]
    assert sizes == [("all_reduce", (512 * 512 * 4,))] * sums


@pytest.mark.thorough
def test_a_file_may_name_its_own_mesh_of_explicit_axes(tmp_path):
    (tmp_path / "steps.py").write_text(STEP)
    (tmp_path / "run.py").write_text(STEP + RUN)
    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = command_line.flint(
        "capture", "steps.py:step", "--setup", "setup", "--mesh", "4,2", "-o", "out",
        cwd=tmp_path, **eight,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    real = partitioned(tmp_path / "run.py", tmp_path)
    found = modules(load(tmp_path / "out"))
    assert [name for name, _ in found] == ["gradients", "update"]
    for name, module in found:
        assert instructions(module) == instructions(real[name]), name
