"""Granularity xla against what XLA's GPU compiler makes of the same programs (h100.json).

``docs/kernels.md`` has the table, and says where the two differ and why.
"""

from __future__ import annotations

import json
import statistics

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import flint
from flint.capturing.targets import targets
from flint.passes import apply
from flint.passes.grouped_as_dense import as_dense
from flint.passes.xla.reductions import runs_of, steps
from flint.passes.xla.split_products import parts_of
from tests.passes.xla.kernels.further import FURTHER
from tests.passes.xla.kernels.latest import LATEST
from tests.passes.xla.kernels.newest import NEWEST
from tests.passes.xla.kernels.programs import F32, MODELS, PROGRAMS, of
from tests.passes.xla.kernels.recent import RECENT
from tests.passes.xla.kernels.record import GOLDEN, captured, figures
from tests.passes.xla.kernels.small_losses import SMALL
from tests.passes.xla.kernels.unguided import UNGUIDED
from tests.passes.xla.kernels.unmet import UNMET
from tests.passes.xla.kernels.unseen import UNSEEN
from tests.passes.xla.kernels.untaught import UNTAUGHT
from tests.passes.xla.kernels.untouched import UNTOUCHED
from tests.passes.xla.kernels.untried import UNTRIED
from tests.support.shared import quick

XLA = json.loads(GOLDEN.read_text())
#: Programs whose bytes are XLA's within a thousandth, and whose number of kernels is, too.
SAME = [
    "attention", "causal attention", "ViT block", "Llama block", "dense", "layer norm", "softmax",
    "Adam", "clipped SGD", "cross entropy", "smoothed cross entropy", "embedding",
    "U-Net level", "batch norm", "residual block", "squeeze and excite", "contrastive loss", "Lion",
    "LAMB", "codebook", "AdamW and average", "graph network", "two towers",
    "separable convolutions", "Adafactor", "teacher", "eight bits", "tied head", "variational",
    "fake quantization",
]  # fmt: skip


def bytes_ratio(name: str) -> float:
    return figures(apply(as_dense(captured(name).graph), "xla"))[1] / XLA[name][1]


@pytest.mark.parametrize("name", quick(SAME, "layer norm", "dense"))
def test_kernels_are_those_of_xla(name: str) -> None:
    kernels, moved = figures(apply(captured(name).graph, "xla"))
    assert kernels == XLA[name][0]
    assert moved == pytest.approx(XLA[name][1], rel=0.001)


@pytest.mark.thorough
def test_bytes_of_all_programs_are_near_xlas() -> None:
    off = {name: abs(bytes_ratio(name) - 1) for name in PROGRAMS}
    assert statistics.median(off.values()) < 0.002 and max(off.values()) < 0.05
    assert sum(each <= 0.001 for each in off.values()) >= 18


@pytest.mark.thorough
def test_bytes_of_programs_that_were_not_looked_at() -> None:
    off = [abs(bytes_ratio(name) - 1) for name in UNSEEN]
    assert statistics.median(off) < 0.01 and max(off) < 0.05
    off = [abs(bytes_ratio(name) - 1) for name in FURTHER]
    assert statistics.median(off) < 0.02 and max(off) < 0.05
    off = [abs(bytes_ratio(name) - 1) for name in LATEST]
    assert statistics.median(off) < 0.02 and max(off) < 0.04
    off = [abs(bytes_ratio(name) - 1) for name in NEWEST]
    assert statistics.median(off) < 0.02 and max(off) < 0.09
    off = [abs(bytes_ratio(name) - 1) for name in RECENT]
    assert statistics.median(off) < 0.02 and max(off) < 0.07
    off = [abs(bytes_ratio(name) - 1) for name in UNTRIED]
    assert statistics.median(off) < 0.02 and max(off) < 0.04
    off = [abs(bytes_ratio(name) - 1) for name in UNMET]
    assert statistics.median(off) < 0.01 and max(off) < 0.08
    off = [abs(bytes_ratio(name) - 1) for name in UNTOUCHED]
    assert statistics.median(off) < 0.03 and max(off) < 0.05
    off = [abs(bytes_ratio(name) - 1) for name in UNGUIDED]
    assert statistics.median(off) < 0.02 and max(off) < 0.29
    off = [abs(bytes_ratio(name) - 1) for name in UNTAUGHT]
    assert statistics.median(off) < 0.07 and max(off) < 0.28
    off = [abs(bytes_ratio(name) - 1) for name in SMALL]
    assert statistics.median(off) < 0.001 and max(off) < 0.05


@pytest.mark.thorough
def test_kernels_and_bytes_of_models_are_near_xlas() -> None:
    off = []
    for name in MODELS:
        kernels, moved = figures(apply(captured(name).graph, "xla"))
        assert abs(kernels / XLA[name][0] - 1) < 0.1
        off.append(abs(moved / XLA[name][1] - 1))
    assert statistics.median(off) < 0.03 and max(off) < 0.08


@pytest.mark.parametrize(
    ("whole", "result", "parts"),
    [
        ((16, 56, 56, 64), (64,), [(128, 64)]),
        ((16, 28, 28, 64), (64,), [(64, 64)]),
        ((8192, 1024), (1024,), [(64, 1024)]),
        ((4096, 512), (), [(1024,)]),
        ((1024, 1024), (), [(1024,)]),
        ((4096, 512), (512,), []),
        ((1000,), (), []),
    ],
)
def test_long_sums_are_cut_as_xla_cuts_them(whole, result, parts) -> None:
    """Results of the first kernel, as XLA wrote them for the residual block, the bottleneck, the
    layer norm, the clipped gradients and the dense layer (jaxlib 0.10.2, H100)."""
    assert [shape for shape, _ in steps(runs_of(whole, result))][:-1] == parts


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((1, 4096, 2048, 512), 1),
        ((1, 2048, 512, 4096), 2),
        ((1, 512, 512, 4096), 8),
        ((1, 512, 1536, 4096), 4),
        ((64, 512, 512, 64), 1),
        ((1, 32, 768, 256), 4),
        ((1, 32, 512, 768), 8),
        ((1, 1024, 512, 8192), 4),
        ((1, 512, 8, 1024), 8),
    ],
)
def test_products_are_split_as_xla_splits_them(sizes, parts) -> None:
    """Parts that XLA wrote for the dense layer, attention, the GRU and the mixture of experts,
    products that share an operand merged as there (jaxlib 0.10.2, H100)."""
    assert parts_of(sizes, (16, 16, 16)) == parts


def test_what_is_summed_was_shaped_by_a_reshape_that_leaves_no_node() -> None:
    """XLA sums the groups [8, 32, 32, 16, 8] of a norm first over the images' places, to [8, 16, 8]
    (``input_reduce_fusion`` of the normed U-Net); the operand's node has [8, 32, 32, 128]."""
    runs = runs_of((8, 32, 32, 128), (8, 16), (1, 2, 4, -1, 8, 32, 32, 16, 8))
    assert runs == [(8, False), (1024, True), (16, False), (8, True)]
    assert [shape for shape, _ in steps(runs)] == [(8 * 16, 8), ()]


def test_a_split_product_writes_its_parts_and_another_kernel_adds_them_up() -> None:
    """A gradient [512, 512] that is summed over 4,096 tokens: 8 parts in f32, as XLA's
    ``gemm_fusion_dot`` and ``loop_reduce_fusion`` of the embedding."""
    step = flint.capture(mesh=(1,))(lambda x, y: x.T @ y)
    graph = step.capture(of(4096, 512), of(4096, 512)).graph
    product, addition = apply(graph, "xla")
    assert product.work.flops == 2 * 512 * 512 * 4096
    assert (product.work.read, product.work.written) == (2 * 4096 * 512 * 2, 8 * 512 * 512 * 4)
    assert (addition.work.read, addition.work.written) == (8 * 512 * 512 * 4, 512 * 512 * 2)


@pytest.mark.parametrize(
    ("terms", "columns", "parts", "padded"),
    [
        (1_000_000, 256, 64, 1_000_192),
        (1_000_000, 128, 128, 1_000_448),
        (100_000, 128, 128, 100_352),
        (100_000, 256, 64, 100_096),
        (4096, 128, 8, 4096),
    ],
)
def test_parts_of_a_sum_are_as_long_as_each_other(terms, columns, parts, padded) -> None:
    """XLA's loop_pad_fusion of a graph network's operands of f32 (jaxlib 0.10.2, H200): 64 parts of
    15,628 or 1,564 terms, 128 of 7,816 or 784."""
    step = flint.capture(mesh=(1,))(lambda x, y: x.T @ y)
    graph = step.capture(of(terms, 128, dtype=F32), of(terms, columns, dtype=F32)).graph
    nodes = list(apply(graph, "xla"))
    pads = {node.result_types[0].shape for node in nodes if node.op == "pad"}
    wanted = {(padded, 128), (padded, columns)} if padded > terms else set()
    assert pads == wanted
    [product] = [node for node in nodes if node.op == "dot_general"]
    assert padded == terms or product.result_types[0].shape[0] == parts
    assert "transpose" not in {node.op for node in nodes}


def test_every_stack_of_a_scan_begins_in_its_own_buffer() -> None:
    """XLA writes six stacks of bf16, two of f32 and two of a number per row before the loop
    (``loop_broadcast_fusion`` of the scan over layers), and the sums of two gradients."""
    graph = apply(captured("scan over layers").graph, "xla")
    broadcasts = [node for node in graph if node.op == "broadcast_in_dim"]
    stack, rows = 4 * 8 * 512 * 512, 4 * 8 * 512
    sums = 4 * 512 * 512 * 2 + 512 * 4
    written = 6 * stack * 2 + 2 * stack * 4 + 2 * rows * 4 + sums
    assert sum(node.work.written for node in broadcasts) == written


def test_what_is_computed_from_one_slice_reads_it_once() -> None:
    """The backward pass of a GELU reads five slices of stacks, one of them for two of its factors,
    and two gradients: 25.17 MB, as XLA's ``loop_add_fusion`` of the scan over layers."""
    loop = apply(captured("scan over layers").graph, "xla").loops[-1].body
    values = 8 * 512 * 512
    read = [node.work.read for node in loop if node.work.written == values * 2]
    assert any(0 <= each - 6 * values * 2 < 100 for each in read)


def test_gradient_of_a_maximum_over_windows_finds_places_and_scatters() -> None:
    """XLA reads [8, 64, 64, 128], before its activation and zeros, and writes an element
    of f32 and four indices for each of [8, 32, 32, 128] windows (``loop_reduce_window_fusion`` of
    the pooled stage), then reads these."""
    image, windows = 8 * 64 * 64 * 128, 8 * 32 * 32 * 128
    graph = apply(captured("pooled stage").graph, "xla")
    [places] = [node for node in graph if len(node.results) == 2 and node.op == "reduce_window"]
    [scatter] = [node for node in graph if node.op == "scatter"]
    assert (places.work.read, places.work.written) == (2 * image * 2, windows * 5 * 4)
    assert scatter.work.written == windows * 2
    assert scatter.work.read >= windows * (4 * 4 + 2 + 2)


def test_two_gradients_of_maxima_keep_their_readers() -> None:
    """Each scatter reads its own places, whose second result moves the values behind it."""

    def pooled(x):
        window = (1, 2, 2, 1)
        for _ in range(2):
            x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID") * x[:, ::2, ::2]
        return x.sum()

    step = flint.capture(mesh=(1,))(jax.grad(pooled))
    graph = apply(step.capture(of(8, 64, 64, 32, dtype=F32)).graph, "xla")
    scatters = [node for node in graph if node.op == "scatter"]
    shapes = {node.result_types[0].shape for node in scatters}
    assert shapes == {(8, 64, 64, 32), (8, 32, 32, 32)}
    for node in scatters:
        batch, rows, columns, features = node.result_types[0].shape
        index = (4, batch, rows // 2, columns // 2, features)
        assert index in {kind.shape for kind in node.operand_types}


def test_a_product_reads_a_matrix_that_is_both_of_its_operands_twice() -> None:
    """As XLA's ``gemm_fusion_dot_general`` of Muon: 2 x 1,024 x 1,024 of bf16."""
    step = flint.capture(mesh=(1,))(lambda x: x @ x.T)
    [product, *_] = apply(step.capture(of(1024, 1024)).graph, "xla")
    assert product.work.read == 2 * 1024 * 1024 * 2


def test_a_transpose_behind_a_reshape_is_fused_before_others_that_save_as_much() -> None:
    """The gated activation of the mixture of experts: XLA's ``input_transpose_fusion`` of tanh, and
    the one of what it scales, transpose the experts' columns of the product [1024, 8200]; the
    gradient, which could be transposed as well by its reader, is ``wrapped_transpose``."""
    graph = apply(captured("mixture of experts").graph, "xla")
    whole = 8 * 1024 * 1024 * 2
    found = {node.op: (node.work.read, node.work.written) for node in graph}
    assert found["tanh"] == (whole, whole)
    scaled = [node for node in graph if (node.work.read, node.work.written) == (2 * whole, whole)]
    assert [node.op for node in scaled] == ["multiply"]
    assert figures(graph)[0] == pytest.approx(XLA["mixture of experts"][0], abs=1)
    assert figures(graph)[1] == pytest.approx(XLA["mixture of experts"][1], rel=0.05)


def test_buffers_of_one_type_are_filled_by_one_kernel() -> None:
    """As XLA's ``loop_broadcast_fusion`` in front of a scan, with a result for each stack."""
    graph = apply(captured("GRU").graph, "xla")
    fills = [node for node in graph if node.op == "broadcast_in_dim" and not node.work.read]
    kinds = [{str(kind) for kind in node.result_types} for node in fills]
    assert all(len(kind) == 1 for kind in kinds)
    assert max(len(node.result_types) for node in fills) == 11
    assert len(set.union(*kinds)) == len(fills)


def test_results_that_each_read_another_part_of_one_value_read_another_value_once() -> None:
    """Three sums [4096, 512] in one kernel read 3 rows of a parameter and, once, what all add."""
    step = flint.capture(mesh=(1,))(lambda x, w: tuple(x + row for row in (w[0], w[1], w[2])))
    [kernel] = apply(step.capture(of(4096, 512), of(3, 512)).graph, "xla")
    whole = 4096 * 512 * 2
    assert (kernel.work.read, kernel.work.written) == (whole + 3 * 512 * 2, 3 * whole)


def test_tanh_is_written_for_the_backward_pass() -> None:
    """It takes 467 cycles of each element in XLA's table: behind a dropout, two kernels read it."""
    assert bytes_ratio("dropout") == pytest.approx(1, abs=0.01)


def test_a_sum_in_steps_has_the_work_of_one() -> None:
    """2^24 - 1 additions, and 4 KB of parts that are written and read."""
    graph = flint.capture(mesh=(1,))(lambda x: x.sum()).capture(of(4096, 4096, dtype=F32)).graph
    first, last = apply(graph, "xla")
    assert first.work.flops + last.work.flops == 4096 * 4096 - 1
    assert (first.work.written, last.work.read, last.work.written) == (4096 * 4, 4096 * 4, 4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["softmax", "Adam", "RMS norm"])
def test_what_was_recorded_is_what_xla_makes(name: str) -> None:
    [missing] = [target.missing for target in targets() if target.name == "h100"]
    if missing:
        pytest.skip(missing)
    workload = captured(name, level="optimized", target="h100")
    assert workload.compiled is not None
    assert XLA["compiler"] == workload.compiled.compiler
    assert [*figures(workload.graph)] == XLA[name]
