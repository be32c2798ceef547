"""Programs that search for a learning rate, and then train: the step is that of the training."""

from __future__ import annotations

import pytest

from flint.graph.work import Unit
from flint.workload.loading import load
from tests.support.command_line import flint

#: A search on 8 rows, and a training on 16, of 64 features.
SEARCHES = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())

def loss(w, x): return jnp.mean(jnp.tanh(x @ w) ** 2)

def find_rate(w):
    @jax.jit
    def attempt(w, x, rate): return w - rate * jax.grad(loss)(w, x)
    for number in range(COUNT):
        w = attempt(w, jax.device_put(jnp.ones((8, 64)), rows), 1.05 ** (number - 400))
    return 0.1

@jax.jit
def train(w, x, rate): return w - rate * jax.grad(loss)(w, x)

w = jax.device_put(jnp.ones((64, 64)), whole)
rate = find_rate(w)
AFTER
for _ in range(5):
    w = train(w, jax.device_put(jnp.ones((16, 64)), rows), rate)
"""


def captured(tmp_path, count, *options, after=""):
    """What was said, and the FLOPs of the matrix products of a rank."""
    text = SEARCHES.replace("COUNT", str(count)).replace("AFTER", after)
    (tmp_path / "train.py").write_text(text)
    found = flint(
        "run", "--world", 8, "--ranks", "0", *options, "-o", "out", "--", "python", "train.py",
        cwd=tmp_path, imported="jax",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    [program] = load(tmp_path / "out").programs
    nodes = [node for graph, _ in program.graph.walk() for node in graph]
    flops = sum(i.flops for n in nodes for i in n.work.items if i.unit is Unit.MATMUL)
    return " ".join(found.stderr.split()), flops


#: Forward and of the weights, of a row.
ROW = 2 * 2 * 64 * 64


@pytest.mark.parametrize(
    ("count", "options", "rows", "said"),
    [
        (20, (), 2, "the step is train at train.py:23; --step NAME captures another: attempt at "
                    "train.py:13"),
        (400, (), 1, "the step is attempt at train.py:13; --step NAME captures another: one at "
                     "train.py:23, not begun yet"),
        (20, ("--step", "attempt"), 1, ""),
        (400, ("--step", "train"), 2, ""),
    ],
)  # fmt: skip
def test_the_step_is_that_of_the_training_behind_a_search(tmp_path, count, options, rows, said):
    words, flops = captured(tmp_path, count, *options)
    assert flops == rows * ROW and said in words
    assert ("trains more than once" in words) == bool(said)


@pytest.mark.parametrize("after", ["raise SystemExit", "fails()\ndef fails(): pass"])
def test_a_program_that_fails_or_ends_before_its_next_training_is_captured(tmp_path, after):
    assert captured(tmp_path, 20, after=after)[1] == ROW


#: A training for each of two settings, of parameters that each makes anew, in two epochs.
EACH_ROUND = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())

def put(x, where): return jax.device_put(x, where)

def loss(w, x): return jnp.mean(jnp.tanh(x @ w) ** 2)

@jax.jit
def train(w, x, rate): return w - rate * jax.grad(loss)(w, x)

def run(rate):
    w = MADE
    for epoch in range(2):
        for _ in range(5):
            w = train(w, put(jnp.ones((16, 64)), rows), rate)

LOOP:
    run(0.1)
"""
PUT = "put(jax.random.normal(jax.random.key(0), (64, 64)), whole)"
JITTED = "jax.jit(lambda: jnp.ones((64, 64)) * 0.5, out_shardings=whole)()"


@pytest.mark.parametrize(
    ("made", "loop", "named"),
    [
        (PUT, "for rate in (0.1, 0.2)", True),
        (JITTED, "for rate in (0.1, 0.2)", True),
        (JITTED, "if True", False),
        (PUT, "if True", False),
        (f"{JITTED}; w = train(w, put(jnp.ones((8, 64)), rows), 0.0)",
         "for rate in (0.1, 0.2)", True),
    ],
)  # fmt: skip
def test_a_loop_that_makes_parameters_in_each_round_is_named(tmp_path, made, loop, named):
    (tmp_path / "train.py").write_text(EACH_ROUND.replace("MADE", made).replace("LOOP", loop))
    done = flint(
        "run", "--world", 8, "--ranks", "0", "-o", "out", "--", "python", "train.py",
        cwd=tmp_path, imported="jax",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = "each round of the loop at train.py:20 makes parameters, as a training of its own does"
    assert (said in " ".join(done.stderr.split())) == named
    assert ("each round" in done.stderr) == named
