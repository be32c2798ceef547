"""What Pallas kernels compute, counted from their code, against counts by hand.

Longer than 300 lines because each kernel is next to the derivation of its count.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton
from jax.experimental.pallas.ops.gpu import attention
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel,
    splash_attention_mask,
)
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from tests.support.meshes import auto_mesh

MESH = auto_mesh((2,), ("x",))


WHOLE = P()


def array(*shape, dtype=jnp.bfloat16, spec=WHOLE):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, spec))


def mapped(function, *specs, out=WHOLE):
    """Under ``shard_map``, where alone kernels can stand in a partitioned program."""
    return jax.shard_map(function, mesh=MESH, in_specs=specs, out_specs=out, check_vma=False)


def captured(step, *arguments, level="partitioned"):
    return flint.capture(step, mesh=(2,), axes=("x",)).capture(*arguments, level=level)


def counted(workload):
    """(unit, type) -> FLOPs, and of how many kernels."""
    [program] = workload.programs
    found, kernels = {}, 0
    for block, times in program.graph.walk():
        for node in block:
            if "custom_call" in node.op or "triton" in node.op:
                kernels += times
                for item in node.work.items:
                    key = item.unit.name.lower(), item.dtype
                    found[key] = found.get(key, 0) + item.flops * times
    return found, kernels


def kernel_of(body, result, **options):
    return pl.pallas_call(
        body, out_shape=result, compiler_params=triton.CompilerParams(), **options
    )


M, K, N, BLOCK = 256, 128, 512, 64


def product(x, w, **options):
    def body(x, w, out):
        out[...] = jnp.tanh(x[...] @ w[...]).astype(out.dtype)

    return kernel_of(
        body,
        jax.ShapeDtypeStruct((x.shape[0], N), jnp.bfloat16),
        grid=(x.shape[0] // BLOCK, N // BLOCK),
        in_specs=[
            pl.BlockSpec((BLOCK, K), lambda i, j: (i, 0)),
            pl.BlockSpec((K, BLOCK), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j)),
        **options,
    )(x, w)


@pytest.mark.parametrize("level", ["logical", "partitioned"])
def test_a_product_is_that_of_all_blocks_on_each_device(level):
    """Each device has M / 2 rows: 2 (M / 2) K N FLOPs, a tanh per element of its result."""
    step = mapped(product, P("x"), P(), out=P("x"))
    workload = captured(step, array(M, K, spec=P("x")), array(K, N), level=level)
    count, kernels = counted(workload)
    rows = M // 2
    assert kernels == 1
    assert count == {("matmul", "bf16"): 2 * rows * K * N, ("transcendental", "bf16"): rows * N}
    assert not any("not known" in text or "upper bound" in text for text in workload.warnings)


TOKENS, WIDTH, TILE = 512, 64, 128
TILES = TOKENS // TILE


def attention_like(bound, *arrays, **options):
    """Unnormalised attention: a program per tile of queries, a loop over as many tiles of keys as
    ``bound`` says."""

    def body(q, k, v, *rest):
        *others, out = rest

        def tile(number, sums):
            keys = pl.ds(number * TILE, TILE)
            scores = jnp.dot(q[...], k[keys, :].T, preferred_element_type=jnp.float32)
            weights = jnp.exp(scores).astype(v.dtype)
            return sums + jnp.dot(weights, v[keys, :], preferred_element_type=jnp.float32)

        start = jnp.zeros((TILE, WIDTH), jnp.float32)
        out[...] = jax.lax.fori_loop(0, bound(*others), tile, start)

    whole = pl.BlockSpec((TOKENS, WIDTH), lambda i: (0, 0))
    part = pl.BlockSpec((TILE, WIDTH), lambda i: (i, 0))
    result = jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.float32)
    others = [pl.BlockSpec(item.shape, lambda i: (0,)) for item in arrays[3:]]
    specs = [part, whole, whole, *others]
    grid = (TILES,)
    return kernel_of(body, result, grid=grid, in_specs=specs, out_specs=part, **options)(*arrays)


def attention_count(tiles):
    """Of ``tiles`` tiles of scores: two products of TILE x TILE x WIDTH multiply-adds; an
    exponential of each score and its conversion to bf16; the addition to the sums."""
    return {
        ("matmul", "bf16"): tiles * 2 * 2 * TILE * TILE * WIDTH,
        ("transcendental", "f32"): tiles * TILE * TILE,
        ("vector", "f32"): tiles * (TILE * TILE + TILE * WIDTH),
    }


HEAD = array(TOKENS, WIDTH)


@pytest.mark.parametrize(
    ("bound", "tiles"),
    [
        (lambda: TILES, TILES * TILES),
        (lambda: pl.program_id(0) + 1, sum(i + 1 for i in range(TILES))),
        (lambda: pl.num_programs(0) - pl.program_id(0) // 2, sum(4 - i // 2 for i in range(4))),
    ],
)
def test_a_loop_counts_as_often_as_it_runs_at_each_place_of_the_grid(bound, tiles):
    step = mapped(functools.partial(attention_like, bound), P(), P(), P())
    assert counted(captured(step, HEAD, HEAD, HEAD, level="logical"))[0] == attention_count(tiles)


def test_a_mapped_kernel_counts_as_often_as_it_is_mapped():
    """``jax.vmap`` puts an axis into the grid that the kernel's program ids do not have."""
    heads = array(3, TOKENS, WIDTH)
    one = jax.vmap(functools.partial(attention_like, lambda: pl.program_id(0) + 1))
    workload = captured(mapped(one, P(), P(), P()), heads, heads, heads, level="logical")
    assert counted(workload)[0] == attention_count(3 * sum(i + 1 for i in range(TILES)))


def test_a_kernel_in_a_loop_of_layers_counts_once_per_layer():
    def layers(q, k, v):
        def layer(x, _):
            return attention_like(lambda: TILES, x, k, v).astype(x.dtype), None

        return jax.lax.scan(layer, q, None, length=3)[0]

    workload = captured(mapped(layers, P(), P(), P()), HEAD, HEAD, HEAD)
    assert counted(workload) == (attention_count(3 * TILES * TILES), 3)


def test_a_selection_is_in_the_type_of_what_it_selects():
    def body(x, out):
        out[...] = jnp.where(x[...] > 0, x[...], 2.0)

    rows = array(8, 128, dtype=jnp.float32)
    call = kernel_of(body, jax.ShapeDtypeStruct(rows.shape, rows.dtype))
    count, _ = counted(captured(mapped(call, P()), rows, level="logical"))
    assert count == {("vector", "f32"): 2 * 8 * 128}


def test_a_loop_whose_end_is_data_leaves_the_kernel_unknown_and_reports_it():
    step = mapped(functools.partial(attention_like, lambda end: end[0]), P(), P(), P(), P())
    end = array(1, dtype=jnp.int32)
    workload = captured(step, HEAD, HEAD, HEAD, end, level="logical")
    assert counted(workload) == ({}, 1)
    assert any("a loop whose trip count depends on data" in text for text in workload.warnings)
    assert any("not known (counted as 0)" in text for text in workload.warnings)


def test_a_loop_that_data_may_end_counts_to_its_end_and_reports_it():
    """10 times all numbers are doubled, 11 times their maximum is looked at."""

    def body(x, out):
        def doubled(state):
            number, value = state
            return number + 1, value + value

        def goes_on(state):
            number, value = state
            return (number < 10) & (jnp.max(value) < 100)

        out[...] = jax.lax.while_loop(goes_on, doubled, (0, x[...]))[1]

    elements = 8 * 128
    rows = array(8, 128, dtype=jnp.float32)
    call = kernel_of(body, jax.ShapeDtypeStruct(rows.shape, rows.dtype))
    workload = captured(mapped(call, P()), rows, level="logical")
    count, _ = counted(workload)
    assert count["vector", "f32"] == 10 * elements + 11 * (elements - 1)
    assert any("upper bound: a loop that data may end early" in text for text in workload.warnings)


def test_what_the_author_estimates_is_believed():
    """Also on GPUs, where JAX itself drops it."""
    estimate = pl.CostEstimate(flops=1000, transcendentals=10, bytes_accessed=5)
    one = functools.partial(attention_like, lambda: TILES, cost_estimate=estimate)
    workload = captured(mapped(one, P(), P(), P()), HEAD, HEAD, HEAD, level="logical")
    assert counted(workload)[0] == {("matmul", "bf16"): 1000, ("transcendental", "bf16"): 10}


def of_jax(**options):
    return mapped(lambda q, k, v: attention.mha(q, k, v, None, **options), P(), P(), P())


BATCH, HEADS = 2, 4


@pytest.mark.parametrize("causal", [False, True])
def test_products_of_jaxs_attention_are_those_of_the_tiles_that_it_visits(causal):
    """Q K^T and P V, in tiles of 128 x 128; with a causal mask those below the diagonal and on it,
    10 of 16."""
    operand = array(BATCH, TOKENS, HEADS, WIDTH)
    workload = captured(of_jax(causal=causal), *[operand] * 3)
    tiles = sum(i + 1 for i in range(TILES)) if causal else TILES * TILES
    count, kernels = counted(workload)
    assert kernels == 1
    assert count["matmul", "bf16"] == BATCH * HEADS * tiles * 2 * 2 * TILE * TILE * WIDTH
    assert not any("upper bound" in text for text in workload.warnings)


def test_the_backward_pass_of_jaxs_attention_computes_seven_products_more():
    """Its two loops compute Q K^T and dP twice: of dK and dV with four products, of dQ with three,
    all of them in the 136 of 256 tiles of 32 x 32 that a causal mask leaves."""
    operand = array(BATCH, TOKENS, HEADS, WIDTH)

    def loss(q, k, v):
        return attention.mha(q, k, v, None, causal=True).astype(jnp.float32).sum()

    step = mapped(jax.grad(loss, argnums=(0, 1, 2)), P(), P(), P())
    count, kernels = counted(captured(step, *[operand] * 3, level="logical"))
    forward = sum(i + 1 for i in range(4)) * 2 * 2 * 128 * 128 * WIDTH
    backward = sum(i + 1 for i in range(16)) * 7 * 2 * 32 * 32 * WIDTH
    assert kernels == 3
    assert count["matmul", "bf16"] == BATCH * HEADS * (forward + backward)


def test_splash_attention_counts_the_tiles_that_its_mask_leaves():
    """Tiles are of 128 x 128; a causal mask leaves n (n + 1) / 2 of n x n.  Q K^T is of bf16; the
    kernel converts V to f32 before P V."""
    mask = splash_attention_mask.CausalMask((TOKENS, TOKENS))
    kernel = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([mask] * HEADS), head_shards=1, q_seq_shards=1
    )
    operand = array(HEADS, TOKENS, 128)
    workload = captured(mapped(kernel, P(), P(), P()), *[operand] * 3)
    count, kernels = counted(workload)
    assert kernels == 1
    tiles = TOKENS // 128 * (TOKENS // 128 + 1) // 2
    assert tiles < (TOKENS // 128) ** 2
    one = HEADS * tiles * 128 * 128 * 128 * 2
    assert (count["matmul", "bf16"], count["matmul", "f32"]) == (one, one)
    assert not any("upper bound" in text for text in workload.warnings)


def test_a_mask_that_is_an_argument_counts_every_tile():
    """Which tiles run stands in an array that is data then: all of them are the most."""

    def step(q, k, v, hidden):
        mask = splash_attention_mask.CausalMask((TOKENS, TOKENS))
        kernel = splash_attention_kernel.make_splash_mha(
            splash_attention_mask.MultiHeadMask([mask] * HEADS), head_shards=1, q_seq_shards=1
        )
        return jax.tree.map(lambda one: one + hidden if one.dtype == "int8" else one, kernel)(
            q, k, v
        )

    operand = array(HEADS, TOKENS, 128)
    given = (*[operand] * 3, array(1, dtype=jnp.int8))
    workload = captured(mapped(step, P(), P(), P(), P()), *given)
    count, _ = counted(workload)
    assert count["matmul", "bf16"] == HEADS * TOKENS * TOKENS * 128 * 2
    assert any("upper bound: a branch that depends on data" in text for text in workload.warnings)


def test_a_branch_on_the_place_in_the_grid_counts_where_it_is_taken():
    """``pl.when`` on the last step of an accumulation: M x N tanhs, not one per block and step."""
    depth, steps = 512, 4

    def body(x, w, out, sums):
        @pl.when(pl.program_id(2) == 0)
        def _():
            sums[...] = jnp.zeros_like(sums)

        sums[...] += jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == steps - 1)
        def _():
            out[...] = jnp.tanh(sums[...])

    call = pl.pallas_call(
        body,
        jax.ShapeDtypeStruct((M, N), jnp.float32),
        grid=(M // 128, N // 128, steps),
        in_specs=[
            pl.BlockSpec((128, 128), lambda i, j, k: (i, k)),
            pl.BlockSpec((128, 128), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)],
    )
    workload = captured(mapped(call, P(), P()), array(M, depth), array(depth, N), level="logical")
    assert counted(workload)[0] == {
        ("matmul", "bf16"): 2 * M * depth * N,
        ("vector", "f32"): M * N * steps,
        ("transcendental", "f32"): M * N,
    }
    assert not any("upper bound" in text for text in workload.warnings)
