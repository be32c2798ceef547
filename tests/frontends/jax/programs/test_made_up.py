"""What a program gets in place of what is not there, or not known yet."""

from __future__ import annotations

import re

import pytest

from tests.frontends.jax.programs.test_against_runs import command

MISSING = """
import jax, jax.numpy as jnp, orbax.checkpoint as ocp
manager = ocp.CheckpointManager("FOLDER/none")
state = manager.restore(7, args=ocp.args.StandardRestore({"w": jnp.ones((8, 8))}))
step = jax.jit(lambda state, x: {"w": state["w"] + x.sum()}, donate_argnums=0)
for _ in range(4):
    state = step(state, jnp.ones(8))
"""


@pytest.mark.thorough
def test_a_checkpoint_that_is_not_there_is_made_up_on_request(tmp_path):
    (tmp_path / "p.py").write_text(MISSING.replace("FOLDER", str(tmp_path)))
    options = ("-o", tmp_path / "out", "--fake-data")
    run = command(tmp_path / "p.py", devices=1, per_node=1, options=options)
    assert run.returncode == 0, run.stderr
    assert re.search(r"made-up data at .*p\.py:4: a checkpoint: arrays", run.stderr)


#: Where the results of the first step lie is asked for before the step is found.
ENDS_BY_DATA = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
w = jax.device_put(np.ones((512, 512), np.float32), NamedSharding(mesh, P("x")))
step = jax.jit(lambda w: jax.lax.while_loop(lambda w: w.sum() > 1, lambda w: 0.9 * w, w))
for _ in range(4):
    w = step(w)
    assert len(w.sharding.device_set) == 4
"""


def test_a_placement_that_a_program_asks_for_needs_no_trip_counts(tmp_path):
    (tmp_path / "p.py").write_text(ENDS_BY_DATA)
    options = "--trip-count", 5, "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=options)
    assert run.returncode == 0, run.stderr
