"""A program's function is partitioned once, however often it is needed."""

from __future__ import annotations

import pytest

from tests.support.command_line import flint_with_jax as flint

#: Counts calls of the partitioner in the program's process, which is also Flint's.
PROGRAM = """
import functools
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from flint.frontends.jax.partition.partitioning import Partitioner
plain = Partitioner.run
def counted(self, request):
    with open("partitioned", "a") as file:
        print(len(request.module), file=file)
    return plain(self, request)
Partitioner.run = counted
rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
w = jax.device_put(np.ones((512, 512), np.float32), rows)
@functools.partial(jax.jit, donate_argnums=0)
def step(w, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    return w - 0.1 * g, loss
"""
LOOP = """
for _ in range(4):
    w, loss = step(w, jax.device_put(np.ones((64, 512), np.float32), rows))
"""
ASKS = """
step = step.lower(w, jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=rows)).compile()
assert step.cost_analysis()["flops"] > 0 and step.memory_analysis().argument_size_in_bytes > 0
"""


@pytest.mark.parametrize("text", (LOOP, ASKS + LOOP), ids=("called", "asked for its costs"))
def test_a_step_whose_results_xla_places_is_partitioned_once(text, tmp_path):
    (tmp_path / "p.py").write_text(PROGRAM + text)
    run = flint("run", "--world", 8, "-o", "out", "--", "python", "p.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert len((tmp_path / "partitioned").read_text().splitlines()) == 1
