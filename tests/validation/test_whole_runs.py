"""Whole programs of JAX, run under ``jax.profiler`` from their first line on.

A program initialises arrays by ops that its step has, too, computes outside of its jitted
functions, maps functions over devices, calls the host.
"""

from __future__ import annotations

import pytest

from flint.validation.validating import validate
from flint.workload.loading import load
from tests.support.children import child_environment
from tests.support.command_line import flint_with_jax as flint
from tests.support.shared import quick
from tests.support.warm import warm

PROFILED = """
import runpy, sys, jax
with jax.profiler.trace("profile"):
    runpy.run_path("train.py", run_name="__main__")
    jax.block_until_ready(jax.live_arrays())
"""
HEAD = """
import functools, jax, jax.numpy as jnp
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
def place(x, *spec): return jax.device_put(x, NamedSharding(mesh, P(*spec)))
def loss(w, x): return jnp.mean(jnp.tanh(x @ w) ** 2)
key = jax.random.key(0)
"""
PROGRAMS = {
    # The weight is scaled on one device, the batch on all.
    "scaled": """
w = place(jax.random.normal(key, (32, 16)) * 0.1)
@jax.jit
def step(w, x): return w - 0.1 * jax.grad(loss)(w, x)
for _ in range(4):
    w = step(w, place(jnp.ones((64, 32)), "d") * 0.5)
""",
    # So are other arrays of the batch's shape, before the first step.
    "scaled_alike": """
w = place(jax.random.normal(key, (32, 16)))
mean = [place(jnp.ones((64, 32)), "d") * scale for scale in (0.1, 0.2, 0.3)]
@jax.jit
def step(w, x): return w - 0.1 * jax.grad(loss)(w, x)
for _ in range(4):
    w = step(w, place(jnp.ones((64, 32)), "d") * 0.5)
""",
    # One of the step's functions has a loop of products, and an op between them has none.
    "looped": """
w = place(jax.random.normal(key, (32, 32)))
@jax.jit
def forward(w, x): return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), x.sum(1)), x, length=3)
@jax.jit
def step(w, x): return w - 0.1 * jax.grad(loss)(w, x)
for _ in range(4):
    x, _ = forward(w, place(jnp.ones((64, 32)), "d"))
    w = step(w, jnp.flip(x, 1))
""",
    # What is jitted has JAX's name; a metric is taken from what it returns.
    "mapped": """
@functools.partial(jax.pmap, axis_name="d")
def step(w, x):
    value, slope = jax.value_and_grad(loss)(w, x)
    return w - 0.1 * jax.lax.pmean(slope, "d"), value
w = jnp.ones((8, 32, 16))
for _ in range(4):
    w, value = step(w, jnp.ones((8, 4, 32)))
    print(float(value.mean()))
""",
    # Effects in order have a token among the arguments of a run.
    "told": """
w = place(jax.random.normal(key, (32, 16)))
@jax.jit
def step(w, x):
    value, slope = jax.value_and_grad(loss)(w, x)
    io_callback(print, None, value, ordered=True)
    return w - 0.1 * slope
for _ in range(4):
    w = step(w, place(jnp.ones((64, 32)), "d"))
""",
    # The largest of a row on several devices, in a loop: its first value, -inf, changes nothing.
    "largest": """
w = place(jax.random.normal(key, (32, 16)), None, "d")
def loss(w, x): return jnp.mean(jax.nn.logsumexp(x @ w, axis=-1))
@jax.jit
def step(w, x): return w - 0.1 * jax.lax.map(lambda x: jax.grad(loss)(w, x), x).mean(0)
for _ in range(4):
    w = step(w, place(jnp.ones((2, 64, 32))))
""",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(PROGRAMS, "looped"))
def test_a_run_from_its_first_line_on_agrees_with_the_capture(name, tmp_path):
    (tmp_path / "train.py").write_text(HEAD + PROGRAMS[name])
    captured = flint(
        "run", "--world", 8, "--gpus-per-node", 8, "-o", "out", "--", "python", "train.py",
        cwd=tmp_path,
    )  # fmt: skip
    assert captured.returncode == 0, captured.stderr
    (tmp_path / "profiled.py").write_text(PROFILED)
    ran = warm("jax").run(["profiled.py"], tmp_path, child_environment(8))
    assert ran.returncode == 0, ran.stderr
    report = validate(load(tmp_path / "out"), [tmp_path / "profile"])
    assert report.ok, (report.verdict, report.differences[:4])
    assert report.ranks == list(range(8))
