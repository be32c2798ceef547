"""Kernels: quantisation by hand, and never below the roofline."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.cost.grouped import rows_visited
from flint.cost.hardware import KernelModel, Tile
from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from tests.support.roofline import node_seconds

H100 = load_system("dgx-h100")
PEAK = H100.accelerator.matmul["bf16"]


def product(b: int, m: int, n: int, k: int, *ops: str, dtype: str = "bf16") -> WorkloadGraph:
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    result = tensor_type((b, m, n), dtype)
    value = builder.input(tables.type(result))
    items = (WorkItem(Unit.MATMUL, dtype, 2 * b * m * n * k, (b, m, n, k)),)
    work = Work(items, 2 * b * (m * k + k * n), 2 * b * m * n)
    for op in ops or ("dot_general",):
        builder.compute(op, Role.CONTRACTION, (value,), (result,), work)
    return with_tables(builder.finish(()), tables.finish())


def seconds(graph: WorkloadGraph, system=H100) -> float:
    return float(kernel_seconds(graph, system)[0])


def plain(units: int, *tiles: Tile):
    """dgx-h100 with given tiles, memory without end, everything else ideal."""
    model = KernelModel(units, tiles, 1, 1.0, 1.0, 0.0)
    accelerator = replace(
        H100.accelerator, kernel=model, launch_overhead=0.0, memory_bandwidth=1e18
    )
    return replace(H100, accelerator=accelerator)


def test_tiles_that_stick_out_are_computed_in_full():
    """129 x 128 on tiles of 128 x 128 and 2 units: two tiles in one wave, as 256 x 128 takes."""
    system = plain(2, Tile(128, 128, 1.0))
    expected = pytest.approx(2 * 256 * 128 * 4096 / PEAK)
    assert seconds(product(1, 129, 128, 4096), system) == expected


@pytest.mark.parametrize(
    ("op", "share"),
    [
        ("dot_general", 1.0),
        ("attention", 0.5),
        ("__cudnn$fmhaSoftmax", 0.5),
        ("aten._scaled_dot_product_cudnn_attention.default", 0.5),
        ("aten._scaled_dot_product_flash_attention.default", 0.25),
        ("aten.mm.default", 1.0),
    ],
)
def test_kernels_of_attention_reach_the_share_of_who_wrote_them(op, share):
    """One tile of 128 x 128 in one wave, at a share of the rate of a plain product."""
    system = plain(1, Tile(128, 128, 1.0))
    kernel = replace(
        system.accelerator.kernel, attention_efficiency=0.5, eager_attention_efficiency=0.25
    )
    system = replace(system, accelerator=replace(system.accelerator, kernel=kernel))
    expected = pytest.approx(2 * 128 * 128 * 4096 / PEAK / share)
    assert seconds(product(1, 128, 128, 4096, op), system) == expected


@pytest.mark.parametrize(
    ("device", "forward", "backward"),
    [("gb200-nvl72", 2047, 1454), ("hgx-h200", 964, 430)],
)
def test_attention_in_eight_bits_is_as_much_slower_than_products_as_published(
    device, forward, backward
):
    """TFLOP/s of cuDNN's kernels, causal, heads of 128, 8,192 positions, next to those of products
    alone: NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training; Bekman's table."""
    system = load_system(device)
    products = {"gb200-nvl72": 3615.6, "hgx-h200": 1453.4}[device]
    both = 3.5 / (1 / forward + 2.5 / backward)
    times = [
        seconds(product(1, 8192, 8192, 8192, op, dtype="f8E4M3FN"), system)
        for op in ("dot_general", "attention")
    ]
    assert times[0] / times[1] == pytest.approx(both / products, rel=0.03)


@pytest.mark.parametrize("other", ["inductor.triton_poi_fused_add_0", "dot_general"])
def test_pytorchs_attention_has_its_own_share_in_a_step_that_a_compiler_changed(other):
    """The compiler calls it as it is.  The names of ops that decompositions have do not tell that
    anything was opened.
    """
    sizes = (1, 128, 128, 4096)
    flash = "aten._scaled_dot_product_flash_attention.default"
    eager, alone = product(*sizes, flash), product(*sizes, flash, other)
    compiled = product(*sizes, other, flash)
    system = plain(1, Tile(128, 128, 1.0))
    kernel = replace(
        system.accelerator.kernel, attention_efficiency=0.8, flash_attention_efficiency=0.5,
        eager_attention_efficiency=0.25,
    )  # fmt: skip
    system = replace(system, accelerator=replace(system.accelerator, kernel=kernel))
    last = kernel_seconds(compiled, system)[-1]
    assert last == pytest.approx(seconds(eager, system) / 2)
    named = with_tables(eager, replace(eager.tables, ops=(*eager.tables.ops, other)))
    assert seconds(named, system) == seconds(eager, system)
    assert seconds(alone, system) == pytest.approx(last)


def causal(heads: int, length: int) -> WorkloadGraph:
    """Products of causal attention with heads of 128, whose scores stay on the chip."""
    graph = product(heads, length, length, 128, "attention")
    flops = graph.work_flops // (2 * length) * (length + 1)
    return replace(graph, work_flops=flops, bytes_written=np.zeros_like(graph.bytes_written))


def test_blocks_on_the_diagonal_are_computed_whole():
    """1,024 positions in blocks of 512: three of four blocks, where the mask leaves 1025 / 2048."""
    system = plain(1, Tile(128, 128, 1.0))
    kernel = replace(system.accelerator.kernel, attention_block=512)
    system = replace(system, accelerator=replace(system.accelerator, kernel=kernel))
    whole = product(1, 1024, 1024, 128, "attention")
    assert seconds(causal(1, 1024), system) == pytest.approx(seconds(whole, system) * 3 / 4)
    assert seconds(whole, system) == pytest.approx(2 * 1024 * 1024 * 128 / PEAK)


@pytest.mark.parametrize(
    ("products", "published"),
    [(2, (0.3, 0.5, 0.8, 0.9, 1.3)), (7, (0.8, 1.6, 2.4, 3.0, 4.4))],
    ids=["forward", "with gradients"],
)
def test_splash_attention_on_v5p_takes_what_axlearn_measured(products, published):
    """Milliseconds more than 40 heads: two sequences of 2,048, heads of 128, printed to 0.1 ms.

    apple/axlearn, axlearn/common/flash_attention/tpu_attention_benchmark.py of its pull request
    722.  The description's share is that of the last row with gradients.
    """
    system = load_system("tpu-v5p-pod")
    few = seconds(causal(2 * 40 * products, 2048), system)
    for heads, measured in zip((56, 72, 88, 110, 140), published, strict=True):
        more = seconds(causal(2 * heads * products, 2048), system) - few
        assert more * 1e3 == pytest.approx(measured, abs=0.3)


def test_waves_are_computed_in_full():
    """132 tiles on 131 units are two waves: as long as 262 tiles."""
    system = plain(131, Tile(128, 128, 1.0))
    expected = pytest.approx(2 * 128 * 128 * 4096 * 262 / PEAK)
    assert seconds(product(132, 128, 128, 4096), system) == expected


def test_a_long_sum_is_cut_to_fill_the_device():
    """One tile on 16 units: 16 parts of k at once, as fast as the whole device can."""
    system = plain(16, Tile(128, 128, 1.0))
    expected = pytest.approx(2 * 128 * 128 * 4096 / PEAK, rel=1e-4)
    assert seconds(product(1, 128, 128, 4096), system) == expected


def test_products_that_would_waste_the_tiles_run_on_vector_units():
    """A depthwise convolution: for each of 96 channels, 4096 sums of 9 products in f32.

    On a tile it would fill one column of 128. cuDNN does not use tensor cores for it.
    """
    system = plain(132, Tile(128, 128, 1.0))
    expected = 2 * 96 * 4096 * 9 / H100.accelerator.vector["f32"]
    assert seconds(product(96, 4096, 1, 9), system) == pytest.approx(expected)


def test_small_kernels_take_latency_and_launch():
    accelerator = H100.accelerator
    least = accelerator.launch_overhead + accelerator.kernel.latency
    assert least < seconds(product(1, 16, 16, 16)) < least + 0.1e-6


def test_large_products_reach_the_stated_efficiency():
    """8192 x 8192 x 8192: 64 x 32 tiles of 128 x 256 are 15.5 waves of 132, 16 in full."""
    found = seconds(product(1, 8192, 8192, 8192))
    ideal = 2 * 8192**3 / PEAK / H100.accelerator.kernel.matmul_efficiency
    assert ideal < found - 1.9e-6 <= ideal * 16 / (2048 / 132) * 1.0001


@given(
    st.integers(1, 64), st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000),
    st.sampled_from(["dgx-a100", "dgx-h100", "mi300x-8", "tpu-v5e-pod", "tpu-v7x-pod"]),
)  # fmt: skip
def test_never_below_the_roofline(b, m, n, k, name):
    graph, system = product(b, m, n, k), load_system(name)
    assert seconds(graph, system) >= float(node_seconds(graph, system)[0])


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
def test_a_product_takes_as_long_as_its_transpose(m, n, k):
    assert seconds(product(1, m, n, k)) == pytest.approx(seconds(product(1, n, m, k)))


def test_what_is_not_launched_takes_no_time():
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    result = tensor_type((8,), "f32")
    builder.compute("constant", Role.GENERATE, (), (result,), Work((), 0, 0))
    graph = with_tables(builder.finish(()), tables.finish())
    assert kernel_seconds(graph, H100).tolist() == [0.0]


def grouped(groups: int, m: int, n: int, k: int, summed: bool = False) -> WorkloadGraph:
    """A ragged product: rows in groups, or the sum over k in groups."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    shapes = [(k, m), (k, n)] if summed else [(m, k), (groups, k, n)]
    result = tensor_type((groups, m, n) if summed else (m, n), "bf16")
    values = [builder.input(tables.type(tensor_type(shape, "bf16"))) for shape in shapes]
    items = (WorkItem(Unit.MATMUL, "bf16", 2 * m * n * k, (1, m, n, k)),)
    work = Work(items, 2 * sum(math.prod(shape) for shape in shapes), result.bytes)
    builder.compute("chlo.ragged_dot", Role.CONTRACTION, values, (result,), work)
    return with_tables(builder.finish(()), tables.finish())


def test_each_group_of_a_grouped_product_ends_in_a_tile_half_full():
    """640 rows in 8 groups on tiles of 128 x 128: 5 + 8 / 2 tiles down, 2 along, on one unit."""
    system = plain(1, Tile(128, 128, 1.0))
    expected = 2 * 128 * 128 * 512 * (5 + 8 / 2) * 2 / PEAK
    assert seconds(grouped(8, 640, 256, 512), system) == pytest.approx(expected)
    dense = product(1, 640, 256, 512)
    assert seconds(dense, system) == pytest.approx(2 * 640 * 256 * 512 / PEAK)


def test_of_few_rows_every_group_that_has_one_takes_a_tile():
    """16 rows in 64 groups on tiles of 128 x 128: some 64 (1 - (63/64)^16) = 14.25 of them have a
    row, each computes a whole tile."""
    system = plain(1, Tile(128, 128, 1.0))
    busy = 64 * (1 - (63 / 64) ** 16)
    tiles = math.ceil(busy * 2)  # in whole waves of the one unit
    expected = tiles * 2 * 128 * 128 * 512 / PEAK
    assert seconds(grouped(64, 16, 256, 512), system) == pytest.approx(expected)


def test_a_group_with_half_a_tile_of_rows_computes_a_whole_one():
    """512 rows in 8 groups, 64 each, on tiles of 128: 8 tiles down, not 4 + 4 / 2."""
    system = plain(1, Tile(128, 128, 1.0))
    expected = 8 * 2 * 2 * 128 * 128 * 512 / PEAK
    assert seconds(grouped(8, 512, 256, 512), system) == pytest.approx(expected)


def test_sums_in_groups_are_a_product_for_each():
    """A sum over 640 in 8 groups, in steps of 1: 8 products of 80 and half a step."""
    system = plain(1, Tile(128, 128, 1.0))
    expected = 8 * 2 * 128 * 256 * 81 / PEAK  # 80.5 steps are 81
    assert seconds(grouped(8, 128, 256, 640, summed=True), system) == pytest.approx(expected)


@given(st.integers(1, 64), st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 4000))
def test_a_grouped_product_is_never_faster_than_a_dense_one(groups, m, n, k):
    assert seconds(grouped(groups, m, n, k)) >= 0.999 * seconds(product(1, m, n, k))


@pytest.mark.parametrize(("rows", "groups"), [(512, 128), (4096, 8), (65536, 128)])
def test_groups_within_tiles_visit_as_many_as_the_kernel_of_jax(rows, groups):
    """Mean of 20 random routings, by the function that plans the kernel's grid; of few rows per
    group, some groups have none."""
    import jax
    import jax.numpy as jnp

    gmm = import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")
    tile = 512

    def tiles(sizes):
        return gmm.make_group_metadata(
            group_sizes=sizes, m=rows, tm=tile, start_group=jnp.int32(0),
            num_nonzero_groups=groups, visit_empty_groups=False,
        )[1]  # fmt: skip

    even = np.full(groups, 1 / groups)
    routings = np.random.default_rng(7).multinomial(rows, even, size=20).astype(np.int32)
    visited = np.mean(jax.jit(jax.vmap(tiles))(routings)) * tile
    assert rows_visited(rows, tile, groups) == pytest.approx(visited, rel=0.01)


def test_groups_within_tiles_compute_a_tile_once_more_for_each_that_begins_inside():
    """1024 rows in 4 groups on tiles of 256 rows: 4 tiles, and 3 again."""
    system = plain(1, Tile(256, 256, 1.0))
    kernel = replace(system.accelerator.kernel, grouped_rows=256)
    shared = replace(system, accelerator=replace(system.accelerator, kernel=kernel))
    each = 2 * 256 * 256 * 512 / PEAK
    assert seconds(grouped(4, 1024, 256, 512), shared) == pytest.approx(7 * each)
    sums = seconds(grouped(4, 256, 256, 1024, summed=True), shared)  # k of 448 for each of 4
    assert sums == pytest.approx(4 * 448 / 512 * each)
