"""Steps that call several programs, compiled for a target: each as it is compiled alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding

import flint
from flint.passes.one_of_sequence import alone, ends
from tests.frontends.jax import sequence_steps
from tests.frontends.jax.sequence_steps import ROWS, SIZES, WHOLE

TARGETS = {"cuda": "h100", "tpu": "tpu-v5p"}


def captured(function, platform, *specs):
    def setup(mesh):
        return tuple(
            jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
            for shape, spec in specs
        )

    step = flint.capture(mesh=(4, 2), axes=("data", "model"), setup=setup)(function)
    return step.capture(level="optimized", target=TARGETS[platform])


@pytest.fixture(scope="module")
def sequence():
    known = {}

    def get(name, platform):
        if (name, platform) not in known:
            step = getattr(sequence_steps, name)
            known[name, platform] = step.capture(level="optimized", target=TARGETS[platform])
        return known[name, platform]

    return get


@pytest.fixture(scope="module")
def programs():
    known = {}

    def get(platform):
        if platform not in known:
            w, m, x = SIZES["w"], SIZES["m"], SIZES["x"]
            known[platform] = (
                captured(sequence_steps.gradient, platform, (w, WHOLE), (x, ROWS)),
                captured(sequence_steps.momentum, platform, (w, WHOLE), (m, ROWS), (w, WHOLE)),
            )
        return known[platform]

    return get


def test_each_program_is_the_one_compiled_alone(sequence, programs, platform):
    [program] = sequence("zero1", platform).programs
    outputs = [call.outputs for call in program.calls]
    assert len(ends(program.graph)) == 2
    for number, expected in enumerate(programs(platform)):
        graph = alone(program.graph, number, program.calls[number].operands, outputs)
        assert [node.op for node in graph] == [node.op for node in expected.graph]
        assert [node.work for node in graph] == [node.work for node in expected.graph]


def test_the_compilers_own_costs_are_added_up_over_calls(sequence, programs, platform):
    gradient, momentum = (item.compiled for item in programs(platform))
    both = sequence("zero1", platform).compiled
    assert both.flops == gradient.flops + momentum.flops
    assert both.bytes_accessed == gradient.bytes_accessed + momentum.bytes_accessed
    assert both.needed_bytes == max(gradient.needed_bytes, momentum.needed_bytes)
    often = sequence("accumulates", platform).compiled  # four gradients, and additions
    assert often.flops > 4 * gradient.flops + momentum.flops
