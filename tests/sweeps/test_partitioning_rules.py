"""A sweep over a step whose partitioning a rule in Python decides."""

from __future__ import annotations

import json

import pytest

from flint.workload.loading import load
from tests.support.command_line import flint_with_jax as flint

pytest.importorskip("jax")

#: Each device has its rows' softmax, and half of the sum over all devices; 4 KiB on each of 4.
STEP = """
import jax, jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec as P

@custom_partitioning
def mixed(x):
    return jax.nn.softmax(x, -1)

def partition(mesh, arguments, result):
    own = arguments[0].sharding
    return mesh, lambda x: jax.lax.psum(jax.nn.softmax(x, -1), "data") / 2, own, (own,)

mixed.def_partition(
    partition=partition, sharding_rule="i j -> i j",
    infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
)

def setup(mesh):
    return (jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data"))),)

def step(x):
    return mixed(x)
"""


@pytest.mark.thorough
def test_rules_in_python_are_asked_in_a_sweep_as_in_a_capture(tmp_path):
    """The processes of a sweep are forks of one that has imported jax, with answers of its own."""
    (tmp_path / "step.py").write_text(STEP)
    place, out = f"{tmp_path / 'step.py'}:step", tmp_path / "out"
    mesh = "--setup", "setup", "--mesh", "4", "--axes", "data"
    for command, into in (("sweep", tmp_path / "swept"), ("capture", out)):
        run = flint(command, place, *mesh, "-o", into)
        assert run.returncode == 0, run.stderr
    [row] = json.loads((tmp_path / "swept/results.json").read_text())["rows"]
    [program] = load(out).programs
    [summed] = program.graph.tables.communications
    assert (summed.kind, summed.bytes_in) == ("all_reduce", 64 // 4 * 64 * 4)
    simulated = json.loads(flint("simulate", out, "--json").stdout)
    assert row["step_seconds"] == simulated["step_seconds"]
