"""Programs with mutable arrays, and programs that choose their own devices by jax's settings."""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.frontends.jax.programs.test_against_runs import command

#: A weight and its momentum are references, the weight's is closed over.  Their arrays are sharded,
#: which their types do not say; ops outside of the jitted function read and change them, too.
MUTABLE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_platform_name", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
put = lambda value, *spec: jax.device_put(value, NamedSharding(mesh, P(*spec)))
w = jax.new_ref(put(np.ones((512, 1024), np.float32), "x"))
m = jax.new_ref(put(np.zeros((512, 1024), np.float32), None, "x"))
count = jax.new_ref(put(np.zeros((), np.int32)))
@jax.jit
def step(m, count, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w[...])
    m[...] = 0.9 * m[...] + g
    w[...] -= 0.1 * m[...] / (1 + count[...])
    count[...] += 1
    return loss
for n in range(5):
    loss = step(m, count, put(np.ones((64, 512), np.float32), "x"))
    m[...] = m[...] * 0.5
    assert (m.sharding.spec, w.sharding.spec) == (P(None, "x"), P("x"))
    assert int(count[...]) == n + 1
"""


@pytest.mark.thorough
def test_references_are_the_arrays_that_they_hold(tmp_path):
    (tmp_path / "p.py").write_text(MUTABLE)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=out)
    assert run.returncode == 0, run.stderr
    workload = load(tmp_path / "out")
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)  # with the same assertions
    found = modules(workload)
    assert [name for name, _ in found].count("step") == 1
    for name, module in found:
        assert instructions(module) == instructions(real[name]), name
    [program] = workload.programs
    updated = [item for item in program.inputs if item.type.shape == (512, 1024)]
    assert all(item.donated >= 0 for item in updated)
