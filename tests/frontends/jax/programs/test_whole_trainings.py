"""Trainings in one call: an iteration of their loop, with FLOPs and bytes counted by hand."""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import modules
from tests.frontends.jax.programs.test_against_runs import captured, command
from tests.programs import comparing


@pytest.mark.thorough
def test_a_training_in_one_call_is_captured_as_one_iteration_of_its_loop(tmp_path):
    """Rows per device: 64 / 8 = 8, and 8 * 16 of all steps.  A rollout's step is two products, of 8
    x 8 x 64 and 8 x 64 x 2; the loss has both, the gradients of both matrices and one between.
    """
    workload = captured("whole_training", tmp_path / "out")
    assert any("one of the 10 iterations of the loop at" in text for text in workload.warnings)
    assert modules(workload)[0][0] == "train"
    [rank, *_] = comparing.of_ranks(workload)
    first, second = 2 * 8 * 64, 2 * 64 * 2
    assert rank["flops"] == 16 * 8 * (first + second) + 16 * 8 * (2 * first + 3 * second)
    everyone = "over " + ", ".join(map(str, range(8)))
    sums = sorted(size for _, size in rank["collectives"].pop(everyone))
    assert (sums, rank["collectives"]) == ([4 * 64 * 2, 4 * 8 * 64], {})
    [program] = workload.programs
    carried = [item.donated for item in program.inputs if item.donated >= 0]
    assert carried == list(range(len(program.graph.outputs)))


LOOP = """
import jax, jax.numpy as jnp
@jax.jit
def epoch(w, rows):
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w), None
    return jax.lax.scan(step, w, rows)[0]
w = epoch(jnp.ones((64, 32)), jnp.ones((5, 16, 64)))
print(jax.jit(lambda w: w + 1)(w).shape)
"""


@pytest.mark.thorough
def test_a_loop_inside_of_a_function_is_chosen_by_name(tmp_path):
    (tmp_path / "p.py").write_text(LOOP)
    for chosen in ((), ("--step", "epoch:loop")):  # nothing else repeats
        options = (*chosen, "-o", tmp_path / "out")
        told = command(tmp_path / "p.py", devices=1, options=options).stderr
        assert "one of the 5 iterations of the loop at" in told
        [rank] = comparing.of_ranks(load(tmp_path / "out"))
        assert rank["flops"] == 2 * (2 * 16 * 64 * 32)  # forward, and the gradient of w
    options = ("--step", "<lambda>:loop", "-o", tmp_path / "out")
    told = command(tmp_path / "p.py", devices=1, options=options).stderr
    assert "<lambda> has no loop: capture it whole, with --step <lambda>:1" in told


#: Two trainings with one name, of different sizes, neither of which repeats the other.
UNLIKE = """
import jax, jax.numpy as jnp
for size in (32, 64):
    step = lambda w, x: (w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w), None)
    w, _ = jax.lax.scan(step, jnp.ones((64, size)), jnp.ones((5, 16, 64)))
"""


@pytest.mark.thorough
def test_of_trainings_that_do_not_repeat_each_other_the_last_is_captured(tmp_path):
    (tmp_path / "p.py").write_text(UNLIKE)
    run = command(tmp_path / "p.py", devices=1, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    [rank] = comparing.of_ranks(load(tmp_path / "out"))
    assert rank["flops"] == 2 * (2 * 16 * 64 * 64)


#: One step over three layers, whose backward half is a loop as well; no step repeats.
LAYERS = """
import jax, jax.numpy as jnp
def loss(w, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0].sum()
w, x = jnp.ones((3, 64, 64)), jnp.ones((16, 64))
CALL
"""


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["jax.jit(jax.grad(loss))(w, x)", "jax.grad(loss)(w, x)"])
def test_a_loop_over_layers_is_no_training(call, tmp_path):
    (tmp_path / "p.py").write_text(LAYERS.replace("CALL", call))
    told = command(tmp_path / "p.py", devices=1, options=("-o", tmp_path / "out")).stderr
    assert "ended before its step ran 2 times" in told and "(1 time)" in told


#: A solver saves its values: 25 times as many numbers as the step has parameters, or data.
SOLVES = """
import jax, jax.numpy as jnp, numpy as np
def solved(w, x):
    def advance(n, carried):
        x, saved = carried
        x = x + 0.1 * jnp.tanh(x @ w)
        return x, saved.at[n].set(x)
    return jax.lax.fori_loop(0, 25, advance, (x, jnp.zeros((25, 64, 64))))[1]
@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: solved(w, x).mean())(w)
w = jnp.ones((64, 64))
for seed in range(4):
    w = step(w, np.random.default_rng(seed).standard_normal((64, 64)).astype("f"))
"""


@pytest.mark.thorough
def test_a_step_whose_loop_carries_more_than_its_parameters_is_the_call(tmp_path):
    (tmp_path / "p.py").write_text(SOLVES)
    run = command(tmp_path / "p.py", devices=1, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    [rank] = comparing.of_ranks(load(tmp_path / "out"))
    # Forward, then the gradients of the parameters and of x.
    assert rank["flops"] == 25 * 3 * 2 * 64**3


OUTSIDE = """
import jax, jax.numpy as jnp
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w), None
w = jnp.ones((512, 1024))
for epoch in range(EPOCHS):
    w, _ = jax.lax.scan(step, w, jnp.ones((5, 16, 512)))
"""


def test_a_loop_outside_of_every_jit_is_a_program_as_in_a_run(tmp_path):
    product = 2 * 16 * 512 * 1024
    for epochs, options, rounds in (("4", (), 5), ("1", (), 1)):
        (tmp_path / "p.py").write_text(OUTSIDE.replace("EPOCHS", epochs))
        run = command(tmp_path / "p.py", devices=1, options=("-o", tmp_path / epochs, *options))
        assert run.returncode == 0, run.stderr
        workload = load(tmp_path / epochs)
        [rank] = comparing.of_ranks(workload)
        assert rank["flops"] == rounds * 2 * product  # forward, and the gradient of w
        [loop] = [node for node in workload.programs[0].graph if node.loop is not None]
        assert loop.source.file.endswith("p.py") and loop.source.line == 7
