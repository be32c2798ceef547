"""Numbers that a user gives for lines that read arrays on the device (``--value``)."""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.test_against_runs import command
from tests.support.command_line import failed

#: A router's step: how many tokens are kept follows from their scores.
PROGRAM = """
import functools, jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
jax.set_mesh(jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)))
@jax.jit
def wanted(w):
    return (w > 0).sum(axis=0).max()
@functools.partial(jax.jit, static_argnums=1)
def train(w, kept):
    return w - jax.grad(lambda w: jnp.sum(w[:, :kept] @ w[:, :kept].T))(w)
w = jax.device_put(jnp.ones((64, 512)), P("x"))
for _ in range(4):
    w = train(w, int(wanted(w)))
"""


def run(folder, *options):
    (folder / "train.py").write_text(PROGRAM)
    return command(
        folder / "train.py", devices=4, per_node=4, options=("-o", folder / "out", *options)
    )


@pytest.fixture(scope="module")
def stated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stated")
    done = run(folder, "--value", "train.py:13=24", "--value", "train.py:12=2")
    assert done.returncode == 0, done.stderr
    return done.stderr, load(folder / "out")


def test_sizes_follow_from_the_number_of_a_line(stated):
    """Backward only (a sum's value is not needed): two products of 64 x 64 by 64 x 24.

    A device has 16 of the 64 rows of each: 2 x 16 x 64 x 24 FLOPs.
    """
    said, workload = stated
    assert "train.py:13: 24, as --value says" in said
    products = {
        node.work.flops
        for program in workload.programs
        for node in program.graph
        if node.op == "dot_general"
    }
    assert products == {2 * 16 * 64 * 24}


def test_a_line_that_reads_nothing_is_reported(stated):
    assert "--value train.py:12=2: this line reads no value that is not known" in stated[0]
    assert "--value train.py:13=24:" not in stated[0]


def test_a_number_that_the_array_cannot_hold_is_refused(tmp_path):
    said = failed(run(tmp_path, "--value", "train.py:13=24.5"), 2)
    assert said.endswith("train.py:13 is read from an array of int32")
