"""Loops that end where an outer counter or a rank's place says, as causal attention has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.graph.work import Unit

BLOCKS, SIZE, HEAD = 6, 16, 8


def setup(mesh):
    sharding = NamedSharding(mesh, P("data"))
    kind = jax.ShapeDtypeStruct((8, BLOCKS * SIZE, HEAD), jnp.float32, sharding=sharding)
    return kind, kind, kind


@flint.capture(mesh=(4,), axes=("data",), setup=setup)
def blockwise(q, k, v):
    """Causal attention block by block: a block of queries reads the keys up to its own."""

    def rows(block):
        mine = lax.dynamic_slice_in_dim(q, block * SIZE, SIZE, 1)

        def read(other, total):
            keys = lax.dynamic_slice_in_dim(k, other * SIZE, SIZE, 1)
            values = lax.dynamic_slice_in_dim(v, other * SIZE, SIZE, 1)
            return total + jnp.exp(mine @ keys.swapaxes(1, 2)) @ values

        return lax.fori_loop(0, block + 1, read, jnp.zeros_like(mine))

    return lax.map(rows, jnp.arange(BLOCKS))


@flint.capture(mesh=(4,), axes=("data",), setup=setup)
def by_place(q, k, v):
    """Rank r of the axis multiplies r + 1 times."""

    def part(q, k, v):
        times = lax.axis_index("data") + 1
        return lax.fori_loop(0, times, lambda _, x: x @ k.swapaxes(1, 2) @ v, q)

    return jax.shard_map(part, in_specs=P("data"), out_specs=P("data"), check_vma=False)(q, k, v)


def multiplied_at(times, xs, **keywords):
    """A step that scans and multiplies where ``times`` of the scanned numbers holds."""

    def step(q, k, v):
        def body(q, x):
            product = lambda q: q @ k.swapaxes(1, 2) @ v  # noqa: E731
            return lax.cond(times(x), product, lambda q: q, q), None

        return lax.scan(body, q, xs, **keywords)[0]

    return flint.capture(step, mesh=(4,), axes=("data",), setup=setup)


def matmul_flops(program):
    return sum(
        times * sum(item.flops for node in graph for item in node.work.items
                    if item.unit == Unit.MATMUL)
        for graph, times in program.graph.walk()
    )  # fmt: skip


@pytest.mark.parametrize(("level", "batch"), [("partitioned", 2), ("logical", 4)])
def test_a_loop_is_counted_where_some_axes_are_manual_and_others_are_not(level, batch):
    """JAX writes sharding constraints of the counter into such loops."""

    def ticks(x):
        def tick(x, _):
            return lax.ppermute(x @ x.swapaxes(1, 2) @ x, "stage", [(0, 1), (1, 0)]), None

        return lax.scan(tick, x, None, length=7)[0]

    step = jax.shard_map(
        ticks, in_specs=P("stage"), out_specs=P("stage"), axis_names={"stage"}, check_vma=False
    )

    def arguments(mesh):
        sharding = NamedSharding(mesh, P(("stage", "data")))
        return (jax.ShapeDtypeStruct((8, SIZE, HEAD), jnp.float32, sharding=sharding),)

    captured = flint.capture(step, mesh=(2, 2), axes=("stage", "data"), setup=arguments)
    [program] = captured.capture(level=level).programs
    # 7 ticks of two products, of the batch of a stage or, partitioned, of a rank.
    assert matmul_flops(program) == 7 * 2 * batch * 2 * SIZE * SIZE * HEAD


@pytest.mark.parametrize(("level", "batch"), [("partitioned", 2), ("logical", 8)])
def test_blocks_above_the_diagonal_are_not_computed(level, batch):
    [program] = blockwise.capture(level=level).programs
    # Of 6 x 6 blocks the 1 + 2 + ... + 6 = 21 on and below the diagonal, two products each.
    assert matmul_flops(program) == 21 * 2 * batch * 2 * SIZE * SIZE * HEAD


def test_each_rank_has_its_own_number_of_iterations():
    workload = by_place.capture()
    length = BLOCKS * SIZE
    each = 2 * 2 * 2 * length * length * HEAD  # two products, a batch of two, 2 m n k
    found = {int(program.ranks.array()[0]): matmul_flops(program) for program in workload.programs}
    assert found == {rank: (rank + 1) * each for rank in range(4)}


@pytest.mark.parametrize(
    ("step", "times"),
    [
        # 7 iterations, two at a time and one that is left: 0, 3 and 6 are multiples of 3.
        (multiplied_at(lambda x: x % 3 == 0, jnp.arange(7), unroll=2), 3),
        # 3 x 3 pairs of blocks, of which 6 are on or below the diagonal.
        (multiplied_at(lambda x: x[0] >= x[1], jnp.indices((3, 3)).reshape(2, 9).T), 6),
    ],
    ids=["unrolled", "pairs"],
)
def test_branches_follow_from_the_rows_that_a_scan_reads(step, times):
    [program] = step.capture().programs
    length = BLOCKS * SIZE
    assert matmul_flops(program) == times * 2 * 2 * 2 * length * length * HEAD
