"""Which of the functions that a program repeats is its step."""

from __future__ import annotations

import json

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.test_against_runs import PROGRAMS, captured, command
from tests.programs import comparing

#: Small parameters, which have values; the policy that collects data renews its own state only.
POLICY = """
import jax, jax.numpy as jnp, numpy as np
def cell(w, state, x):
    return jnp.tanh(x @ w["in"] + state @ w["own"])
policy = jax.jit(cell)
def loss(w, xs):
    return jnp.mean(jax.lax.scan(lambda s, x: (cell(w, s, x), s), jnp.zeros((8, 16)), xs)[1] ** 2)
@jax.jit
def train(w, xs):
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, xs))
w = {"in": jax.random.normal(jax.random.key(0), (4, 16)), "own": jnp.eye(16)}
state = jnp.zeros((1, 16))
for step in range(40):
    state = policy(w, state, np.random.randn(1, 4).astype(np.float32))
    if step > 20:
        w = train(w, np.random.randn(5, 8, 4).astype(np.float32))
"""


def test_a_policy_with_small_parameters_is_not_taken_for_the_training(tmp_path):
    (tmp_path / "p.py").write_text(POLICY)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert load(tmp_path / "out").input["function"] == "train"
    assert "choose the training step" not in run.stderr


ACCUMULATION = """
import jax, jax.numpy as jnp, numpy as np
loss = lambda w, x: jnp.mean((x @ w) ** 2)
grad = jax.jit(lambda w, s, x: s + jax.grad(loss)(w, x))
update = jax.jit(lambda w, s: (w - 0.1 * s, jnp.zeros_like(s)))
w = jax.random.normal(jax.random.key(0), (16, 1))
s = jnp.zeros_like(w)
for step in range(5):
    for part in range(4):
        s = grad(w, s, np.ones((8, 16), np.float32))
    w, s = update(w, s)
"""


@pytest.mark.thorough
def test_sums_of_gradients_of_small_parameters_are_a_part_of_the_step(tmp_path):
    (tmp_path / "p.py").write_text(ACCUMULATION)
    run = command(tmp_path / "p.py", devices=1, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    [rank] = comparing.of_ranks(load(tmp_path / "out"))
    assert rank["flops"] == 4 * 2 * (2 * 8 * 16)  # of each part: forward, and the gradient of w


IN_A_THREAD = """
import queue, threading, jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
batches, double = queue.Queue(4), jax.jit(lambda x: 2 * x)
def prefetch():
    while True:
        x = jax.device_put(np.ones((64, 256), np.float32), NamedSharding(mesh, P("x")))
        batches.put(double(x))
@jax.jit
def train(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
def loop():
    w = jax.device_put(np.ones((256, 256), np.float32), NamedSharding(mesh, P()))
    while True:
        w = train(w, batches.get())
threading.Thread(target=prefetch, daemon=True).start()
training = threading.Thread(target=loop)
training.start()
training.join()
"""


@pytest.mark.thorough
def test_a_training_loop_in_a_thread_is_the_step_beside_a_thread_that_makes_batches(tmp_path):
    (tmp_path / "p.py").write_text(IN_A_THREAD)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "other threads call jitted functions: <lambda>: not part of the step" in run.stderr
    [rank, *_] = comparing.of_ranks(load(tmp_path / "out"))
    assert rank["flops"] == 2 * (2 * 8 * 256 * 256)  # of 8 rows: forward, and the gradient of w


OF_ONE_NAME = """
import jax, jax.numpy as jnp
def trained(power):
    def step(w):
        return w - 0.1 * jax.grad(lambda w: jnp.mean((w @ w) ** power))(w)
    return jax.jit(step)
one, other, w, v = trained(2), trained(4), jnp.ones((8, 8)), jnp.ones((16, 16))
for _ in range(3):
    w = one(w)
for _ in range(3):
    v = other(v)
"""


@pytest.mark.thorough
def test_of_several_steps_of_one_name_the_line_picks_one(tmp_path):
    (tmp_path / "p.py").write_text(OF_ONE_NAME)
    listed = command(tmp_path / "p.py", devices=1, options=("--list-steps", "--json"))
    seen = json.loads(listed.stdout)["steps"]
    assert [(step["name"], step["place"].split("/")[-1]) for step in seen] == [
        ("step", "p.py:9"), ("step", "p.py:11"),
    ]  # fmt: skip
    for choice, size in (("step", 8), ("step@p.py:11", 16)):
        options = ("--step", choice, "-o", tmp_path / "out")
        run = command(tmp_path / "p.py", devices=1, options=options)
        assert run.returncode == 0, run.stderr
        [program] = load(tmp_path / "out").programs
        assert program.inputs[0].type.shape == (size, size)
    options = ("--step", "step@p.py:10", "-o", tmp_path / "out")
    run = command(tmp_path / "p.py", devices=1, options=options)
    assert run.returncode == 2
    assert "--step step@p.py:10: " in run.stderr and "step at " in run.stderr


@pytest.mark.thorough
def test_the_steps_of_a_program_are_listed_and_one_is_chosen(tmp_path):
    listed = command(PROGRAMS / "nnx_model.py", options=("--list-steps", "--json"))
    seen = json.loads(listed.stdout)["steps"]
    assert {"eval_step", "train_step"} <= {step["name"] for step in seen}
    workload = captured("nnx_model", tmp_path / "out", options=("--step", "eval_step"))
    assert workload.input["function"] == "eval_step"


#: Threads of a pool take turns at the steps, and no line of the program's runs in them.
POOL = """
import threading
from concurrent.futures import ThreadPoolExecutor
import jax, jax.numpy as jnp
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
pool, all_have_begun = ThreadPoolExecutor(4), threading.Barrier(4)
[one.result() for one in [pool.submit(all_have_begun.wait) for _ in range(4)]]
w = jnp.ones((512, 1024))
for _ in range(12):
    pool.submit(threading.get_ident)
    w = pool.submit(step, w, jnp.ones((16, 512))).result()
"""


@pytest.mark.thorough
def test_threads_that_take_turns_train_one_model(tmp_path):
    (tmp_path / "p.py").write_text(POOL)
    run = command(tmp_path / "p.py", devices=1, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "stay unchanged" not in run.stderr and "other threads" not in run.stderr
    [rank] = comparing.of_ranks(load(tmp_path / "out"))
    assert rank["flops"] == 2 * 2 * 16 * 512 * 1024  # forward, and the gradient of w
