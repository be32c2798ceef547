"""Functions that differ in where they say that their arguments lie are different ones of a step."""

from __future__ import annotations

from flint.graph.work import Unit
from flint.workload.loading import load
from tests.support.command_line import flint

#: Every second batch lies on one axis of the mesh only.
BY_TURNS = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
def step(w, x): return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
places = [NamedSharding(mesh, P(axes)) for axes in ("a", ("a", "b"))]
steps = [jax.jit(step, in_shardings=(None, place)) for place in places]
w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P()))
for number in range(6):
    w = steps[number % 2](w, jax.device_put(jnp.ones((64, 64)), places[number % 2]))
"""


def test_one_function_jitted_for_two_placements_is_two_calls_of_the_step(tmp_path):
    """64 rows on 4 devices and on 8; a product forward and one backward, 64 x 64 each."""
    (tmp_path / "train.py").write_text(BY_TURNS)
    found = flint(
        "run", "--world", 8, "--ranks", "0", "-o", "out", "--", "python", "train.py", cwd=tmp_path
    )
    assert found.returncode == 0, found.stderr
    [program] = load(tmp_path / "out").programs
    nodes = [node for graph, _ in program.graph.walk() for node in graph]
    products = [i.flops for n in nodes for i in n.work.items if i.unit is Unit.MATMUL]
    assert sorted(products) == [2 * rows * 64 * 64 for rows in (8, 8, 16, 16)]
    assert [len(program.calls), program.calls[0].file == program.calls[1].file] == [2, True]
