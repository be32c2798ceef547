"""Functions that differ in where they say that their arguments lie, or in what static arguments and
closures make of them, are different ones of a step.
"""

from __future__ import annotations

import pytest

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


#: Every second step updates an actor, too, as a static argument or a closure says.
ACTOR = """
import functools, jax, jax.numpy as jnp
def update(state, x, actor):
    def loss(state):
        y = jnp.tanh(x @ state[0])
        return jnp.mean(jnp.tanh(y @ state[1]) if actor else y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, jax.grad(loss)(state))
"""
FORMS = {
    "static argument": """
update = jax.jit(update, static_argnames="actor")
def step(state, x, actor): return update(state, x, actor=actor)
""",
    "closure": """
updates = [jax.jit(functools.partial(update, actor=actor)) for actor in (False, True)]
def step(state, x, actor): return updates[actor](state, x)
""",
}
LOOP = """
state = jnp.ones((64, 64)), jnp.ones((64, 64))
for number in range(8):
    state = step(state, jnp.ones((8, 64)), number % 2 == 0)
"""


def captured(tmp_path, source):
    """The program of rank 0 of 8, and the FLOPs of its matrix products, ascending."""
    (tmp_path / "train.py").write_text(source)
    found = flint(
        "run", "--world", 8, "--ranks", "0", "-o", "out", "--", "python", "train.py",
        cwd=tmp_path, imported="jax",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    [program] = load(tmp_path / "out").programs
    nodes = [node for graph, _ in program.graph.walk() for node in graph]
    return program, sorted(i.flops for n in nodes for i in n.work.items if i.unit is Unit.MATMUL)


@pytest.mark.parametrize("form", FORMS)
def test_one_function_with_and_without_an_actor_is_two_calls_of_the_step(tmp_path, form):
    """8 rows, 64 wide: a product forward and one backward, and with an actor two and three."""
    program, products = captured(tmp_path, ACTOR + FORMS[form] + LOOP)
    assert products == [2 * 8 * 64 * 64] * 7
    assert len(program.calls) == 2


def test_one_function_jitted_for_two_placements_is_two_calls_of_the_step(tmp_path):
    """64 rows on 4 devices and on 8; a product forward and one backward, 64 x 64 each."""
    program, products = captured(tmp_path, BY_TURNS)
    assert products == [2 * rows * 64 * 64 for rows in (8, 8, 16, 16)]
    assert [len(program.calls), program.calls[0].file == program.calls[1].file] == [2, True]
