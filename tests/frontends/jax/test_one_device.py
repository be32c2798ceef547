"""A mesh of one device: nothing to partition, and the same program as on many."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.models.jax import llama3

SIZE = 8


def plain(x):
    return x @ x


def annotated(x):
    return jax.lax.with_sharding_constraint(x @ x, P("data"))


def looped(x):
    y, _ = jax.lax.scan(lambda c, _: (annotated(c), None), x, None, length=3)
    return y


def setup(mesh):
    sharding = NamedSharding(mesh, P("data"))
    return (jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32, sharding=sharding),)


@pytest.mark.parametrize(("step", "products"), [(plain, 1), (annotated, 1), (looped, 3)])
def test_a_step_on_one_device_is_captured(step, products):
    workload = flint.capture(jax.jit(step), mesh=(1,), axes=("data",), setup=setup).capture()
    graph = workload.programs[0].graph
    flops = sum(times * int(block.work_flops[block.work_unit == 0].sum())
                for block, times in graph.walk())  # fmt: skip
    assert flops == products * 2 * SIZE**3
    assert not graph.tables.communications


@pytest.mark.thorough
def test_a_model_on_one_device_does_a_data_parallel_ranks_work():
    """Each of 4 data-parallel ranks has one sequence, as the only device has."""

    def products(mesh):
        [program] = llama3.training(llama3.TINY, mesh=mesh).capture().programs
        return sum(
            times * int(block.work_flops[block.work_unit == 0].sum())
            for block, times in program.graph.walk()
        )

    assert products((1, 1)) == products((4, 1))
