"""Counters that a training passes from step to step: what they decide, counted by hand."""

from __future__ import annotations

from flint.workload.loading import load
from tests.frontends.jax.programs.test_against_runs import command
from tests.programs import comparing

TRAINS = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",))
over = NamedSharding(mesh, P("data"))
w, step = jax.device_put(jnp.ones((256, 256)), over), jnp.int32(0)

@jax.jit
def train(w, step, x):
    def update(w):
        return w - 0.1 * jnp.mean(x, 0)[:, None] * w.sum(0)
    w = jax.lax.cond(step % 4 == 0, update, lambda w: w, w)
    w = jax.lax.fori_loop(0, step + 3, lambda _, w: w * 0.5 @ w, w)
    return w, step + 1

for _ in range(20):
    w, step = train(w, step, jax.device_put(jnp.ones((64, 256)), over))
"""


def test_a_step_does_what_its_counter_decides(tmp_path):
    """The fifth step's counter is 4: it updates (two sums of 256 floats), and multiplies 7 times,
    each time with all rows: a gather of a rank's 32 and a product of 32 x 256 x 256.
    """
    (tmp_path / "p.py").write_text(TRAINS)
    options = ("--step", "5", "-o", tmp_path / "out")
    done = command(tmp_path / "p.py", options=options)
    assert done.returncode == 0, done.stderr
    assert "case_0 (" in done.stderr and "while_0 (" in done.stderr  # which choices were made
    workload = load(tmp_path / "out")
    [rank, *_] = comparing.of_ranks(workload)
    [exchanged] = rank["collectives"].values()
    gathers = [size for kind, size in exchanged if kind == "all_gather"]
    # jax 0.8 keeps a rank's rows of one of the sums alone: a reduce-scatter.
    sums = [size for kind, size in exchanged if kind in ("all_reduce", "reduce_scatter")]
    assert (gathers, sums) == ([4 * 32 * 256] * 7, [4 * 256] * 2)
    assert rank["flops"] == 7 * 2 * 32 * 256 * 256
    assert workload.options["branches"] == {"case_0": 1}  # so that it can be walked again
    assert workload.options["trip_counts"] == {"while_0": 7}
