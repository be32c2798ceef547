"""Kernels of channels-first tensors, against what others measured.

H100: Nsight Compute's times in f32 training steps of torchvision's MobileNetV2 (64 images) and
ResNet-50 (32), published with Orion (Strati et al., EuroSys 2024, github.com/eth-easl/orion, MIT
licence, commit 27837ac, benchmarking/model_kernels/h100).  The model's six rates are from
MobileNetV2; ResNet-50 and the MI300X were compared afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from flint.cost.classes import FINE, KERNELS, fine_classes, kernel_classes
from flint.cost.kernels import kernel_seconds
from flint.cost.library_kernels import (
    ADDED,
    CHANNELS_FIRST,
    COLUMNS,
    DIRECT,
    LOOPED,
    PER_CHANNEL,
    ROWS,
    SOFTMAX,
    SORTED,
    TRANSPOSING,
    TWICE,
    WITH_BIAS,
)
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import NodeKind, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Work
from flint.stablehlo.rules.contraction import gemm

#: (channels, side) -> microseconds forward and backward.
MOBILENET_NORMS = {
    (32, 112): (693.6, 1590.4), (16, 112): (682.7, 1550.5), (96, 112): (741.9, 1676.2),
    (96, 56): (191.2, 423.4), (24, 56): (165.6, 371.4), (144, 56): (291.5, 442.0),
    (144, 28): (77.4, 117.6), (32, 28): (46.7, 78.4), (192, 28): (80.9, 125.1),
    (192, 14): (19.3, 28.0), (64, 14): (15.8, 24.6), (384, 14): (32.4, 51.2),
    (96, 14): (16.5, 25.0), (576, 14): (47.4, 75.7), (576, 7): (23.8, 29.7),
    (160, 7): (11.1, 13.0), (960, 7): (32.5, 40.3), (320, 7): (17.3, 20.7),
    (1280, 7): (40.0, 50.4),
}  # fmt: skip
RESNET_NORMS = {
    (64, 112): (362.9, 817.0), (64, 56): (90.0, 206.0), (256, 56): (161.5, 255.5),
    (128, 56): (102.4, 218.4), (128, 28): (24.4, 41.6), (512, 28): (59.5, 102.0),
    (256, 28): (30.9, 69.2), (256, 14): (14.3, 18.5), (1024, 14): (44.2, 62.7),
    (512, 14): (24.2, 32.8), (512, 7): (15.4, 16.8), (2048, 7): (47.7, 54.0),
}  # fmt: skip
#: (channels, side, stride) -> microseconds of a depthwise convolution with windows of 3 x 3 and of
#: its two gradients together.
DEPTHWISE = {
    (32, 112, 1): (416.8, 684.8 + 934.0), (144, 56, 1): (468.6, 763.1 + 705.2),
    (192, 28, 1): (159.3, 254.7 + 261.9), (384, 14, 1): (81.5, 129.5 + 163.5),
    (576, 14, 1): (119.9, 192.0 + 235.9), (960, 7, 1): (53.3, 83.2 + 206.1),
    (96, 112, 2): (332.8, 2074.9 + 518.9), (144, 56, 2): (130.6, 782.5 + 209.3),
    (192, 28, 2): (48.1, 268.0 + 92.2), (576, 14, 2): (37.7, 200.5 + 129.1),
}  # fmt: skip
#: The same, means over the kernels of PyTorch's own batch norms in bf16, whose grids are a block of
#: 256 threads per channel (forward with a second kernel per element): 10 images on an MI300X, from
#: AMD-AGI/TraceLens, tests/traces/mi300/resnet_act_checkpoint.json.gz.
MI300X_NORMS = {
    (64, 112): (140.1 + 10.6, 399.2), (64, 56): (41.5 + 6.3, 85.3), (128, 28): (14.4 + 5.2, 29.4),
    (256, 14): (7.0 + 4.6, 11.7), (512, 7): (5.8 + 5.5, 7.6),
}  # fmt: skip
#: Norms that read twice: (op, activations, shape, type) -> microseconds of their kernels on an
#: H100, medians of profiles of benchmarks/accuracy/single_gpu (torch 2.11, 28 November 2026).
TWO_PASSES = {
    ("native_batch_norm", 1, (128, 256, 56, 56), "f16"): 238.1,
    ("native_batch_norm", 1, (128, 512, 28, 28), "f16"): 162.0,
    ("native_batch_norm_backward", 2, (128, 256, 56, 56), "f16"): 363.8,
    ("native_batch_norm_backward", 2, (128, 64, 56, 56), "f16"): 86.3,
    ("native_group_norm", 1, (16, 192, 64, 64), "f32"): 75.7,
    ("native_group_norm_backward", 2, (16, 192, 64, 64), "f32"): 116.0,
    ("native_layer_norm_backward", 2, (16, 1024, 768), "f32"): 136.0,
    ("_fused_rms_norm_backward", 2, (2, 2048, 2048), "bf16"): 42.6,
}
#: Op, what it does, operands, result, microseconds alone on an H100, of kernels.csv or medians of
#: profiles there: loops whose time their elements decide.
LOOPS = [
    ("clone", TRANSPOSING, ["8192x4096 bf16"], "8192x4096 bf16", 252.7),
    ("clone", TRANSPOSING, ["16384x768 bf16"], "16384x768 bf16", 94.3),
    ("sum", ROWS, ["8192x4096 bf16"], "8192 bf16", 30.6),
    ("sum", ROWS, ["16384x768 bf16"], "16384 bf16", 14.7),
    ("sum", COLUMNS, ["16384x768 bf16"], "768 bf16", 36.1),
    ("sum", COLUMNS, ["12288x1024 f32"], "1024 f32", 37.4),
    # 3.09, 4.40 and 3.11 ps for an element.
    ("_to_copy", LOOPED, ["16384x768 bf16"], "16384x768 f32", 38.9),
    ("add", LOOPED, ["16384x768 bf16", "16384x768 f32"], "16384x768 f32", 55.4),
    ("clone", LOOPED, ["16384x768 bf16"], "16384x768 bf16", 39.1),
]
H100 = load_system("dgx-h100")
ALONE = replace(
    H100, accelerator=replace(H100.accelerator, kernel=H100.accelerator.kernel.on_one_device())
)


def node(op, hero, operands, results, work=None):
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    values = [builder.input(tables.type(item)) for item in operands]
    moved = [sum(item.bytes for item in items) for items in (operands, results)]
    types = [tables.type(item) for item in results]
    builder.node(
        NodeKind.COMPUTE,
        tables.op(op, hero),
        values,
        types,
        role=Role.OPAQUE,
        work=work or Work((), *moved),
    )
    return with_tables(builder.finish(()), tables.finish())


def norm(images, channels, side, backward, dtype="f32", hero=PER_CHANNEL):
    data = tensor_type((images, channels, side, side), dtype)
    vector = tensor_type((channels,), "f32")
    if backward:
        operands, results = [data, data, vector, vector, vector], [data, vector, vector]
        return node("aten.native_batch_norm_backward.default", hero, operands, results)
    return node("aten.native_batch_norm.default", hero, [data, vector, vector], [data, vector])


def depthwise(channels, side, stride, backward, hero=DIRECT):
    data = tensor_type((64, channels, side, side), "f32")
    weight = tensor_type((channels, 1, 3, 3), "f32")
    out = tensor_type((64, channels, side // stride, side // stride), "f32")
    if backward:
        operands, results = [out, weight, data], [data, weight]
        return node("aten.convolution_backward.default", hero, operands, results)
    return node("aten.convolution.default", hero, [data, weight], [out])


def microseconds(graph, system=H100):
    return float(kernel_seconds(graph, system)[0]) * 1e6


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("images", "measured"), [(64, MOBILENET_NORMS), (32, RESNET_NORMS)])
def test_batch_norms_take_what_was_measured_on_an_h100(images, measured, backward):
    ratios = {
        size: microseconds(norm(images, *size, backward)) / times[backward]
        for size, times in measured.items()
    }
    assert all(0.6 < ratio < 1.5 for ratio in ratios.values()), ratios
    assert 0.85 < fmean(ratios.values()) < 1.15


@pytest.mark.parametrize("backward", [False, True])
def test_depthwise_convolutions_take_what_was_measured_on_an_h100(backward):
    ratios = {
        size: microseconds(depthwise(*size, backward)) / times[backward]
        for size, times in DEPTHWISE.items()
    }
    assert all(0.5 < ratio < 1.4 for ratio in ratios.values()), ratios
    assert 0.85 < fmean(ratios.values()) < 1.15


def test_without_that_knowledge_their_bytes_alone_would_take_a_tenth():
    times = [microseconds(norm(64, 32, 112, False, hero=hero)) for hero in (PER_CHANNEL, "")]
    assert times[1] < times[0] / 8


@pytest.mark.parametrize("backward", [False, True])
def test_batch_norms_of_another_gpu_and_library_are_as_slow(backward):
    """At most two thirds of the time are missing, where bytes alone would be a twentieth."""
    system = load_system("mi300x-8")
    for size, times in MI300X_NORMS.items():
        ours = microseconds(norm(10, *size, backward, "bf16"), system)
        assert 0.33 < ours / times[backward] < 1.1, (size, ours)
    bytes_alone = microseconds(norm(10, 64, 112, backward, "bf16", ""), system)
    assert bytes_alone < MI300X_NORMS[64, 112][backward] / 10


@pytest.mark.parametrize(("case", "measured"), TWO_PASSES.items())
def test_norms_in_two_passes_are_nearer_to_what_was_measured(case, measured):
    op, activations, shape, dtype = case
    data = tensor_type(shape, dtype)
    times = [
        microseconds(node(f"aten.{op}.default", hero, [data] * activations, [data]))
        for hero in (TWICE, "")
    ]
    assert 0.6 < times[0] / measured < 1.1
    assert times[1] < times[0]


def tensor(text):
    sizes, dtype = text.split()
    return tensor_type(tuple(map(int, sizes.split("x"))), dtype)


@pytest.mark.parametrize(("op", "hero", "operands", "result", "measured"), LOOPS)
def test_loops_take_what_was_measured_where_they_count(op, hero, operands, result, measured):
    graph = node(f"aten.{op}.default", hero, [tensor(one) for one in operands], [tensor(result)])
    assert 0.75 < microseconds(graph, ALONE) / measured < 1.4
    assert microseconds(graph) < microseconds(graph, ALONE)


@pytest.mark.parametrize(("rows", "to", "measured"), [
    ("3000000x256 f32", "200000x256 f32", 44559.1 / 8),
    ("98304x2048 bf16", "16384x2048 bf16", 13333.7 / 8),
])  # fmt: skip
def test_rows_are_added_at_indices_as_fast_as_an_h200_adds_them(rows, to, measured):
    """Eight in a profiled step of a graph network, and of a mixture of experts (torch 2.11)."""
    index = tensor_type((tensor(rows).shape[0],), "i64")
    graph = node("aten.index_add_.default", ADDED, [tensor(to), tensor(rows), index], [tensor(to)])
    assert microseconds(graph, load_system("hgx-h200")) == pytest.approx(measured, rel=0.12)


def test_rows_are_added_at_sorted_indices_as_fast_as_a_b200_does():
    """Backward through ``x[permuted]`` of 196,608 rows and 64 that repeat one index: 1.848 ms with
    the zeros that are added to (pytorch/ao, pull request 4623).
    """
    rows, index = tensor("196672x2048 bf16"), tensor_type((196672,), "i64")
    to = tensor("196609x2048 bf16")
    zeros = to.bytes / 5.6e6  # microseconds, as copies reach it (flint/cost/accelerators/b200.toml)
    put = node("aten._index_put_impl_.default", SORTED, [to, index, rows], [to])
    found = microseconds(put, load_system("dgx-b200")) + zeros
    assert found == pytest.approx(1848, rel=0.1)


def convolution(backward, hero):
    """16 images of 256 channels and 64 x 64 pixels, 3 x 3, in bf16."""
    data, weight, bias = (
        tensor_type(shape, "bf16") for shape in ((16, 256, 64, 64), (256, 256, 3, 3), (256,))
    )
    if backward:
        operands, results = [data, data, weight], [data, weight, bias]
        return node("aten.convolution_backward.default", hero, operands, results)
    return node("aten.convolution.default", hero, [data, weight, bias], [data])


@pytest.mark.parametrize(("backward", "measured", "bias"), [
    # Of a UNet's convolutions of this size: 8 forward passes, 7 backward; then bias and its sum.
    (False, (295.9 + 258.9) / 8, 1230 / 46), (True, (686.7 + 286.6) / 7, 252.5 / 7),
])  # fmt: skip
def test_turning_around_convolutions_takes_what_was_measured(backward, measured, bias):
    turning, biased, plain = (
        microseconds(convolution(backward, hero)) for hero in (CHANNELS_FIRST, WITH_BIAS, "")
    )
    assert 0.7 < (turning - biased) / measured < 1.3
    assert 0.3 < (biased - plain) / bias < 1.3


def test_products_alone_reach_more_than_in_steps_of_many_devices():
    """8192 x 2048 x 8192 in bf16: 389.1 us on an H100; convolutions stay as they are."""
    left, right, out = (
        tensor_type(shape, "bf16") for shape in ((8192, 2048), (2048, 8192), (8192, 8192))
    )
    work = gemm((1, 8192, 8192, 2048), [left, right], [out])
    times = [
        microseconds(node(f"aten.{op}.default", "", [left, right], [out], work), system)
        for op in ("mm", "convolution") for system in (H100, ALONE)
    ]  # fmt: skip
    assert times[1] == pytest.approx(389.1, rel=0.12)
    assert times[0] > 1.25 * times[1]
    assert times[2] == times[3] == times[0]


@pytest.mark.parametrize(
    ("graph", "plain", "fine"),
    [
        (norm(2, 8, 4, False), "reduction", PER_CHANNEL),
        (depthwise(8, 4, 1, True), "matmul", DIRECT),
        (node("aten.index_add_.default", ADDED, [], []), "reduction", ADDED),
    ],
)
def test_such_kernels_are_told_by_what_they_do(graph, plain, fine):
    assert KERNELS[kernel_classes(graph)[0]] == plain
    assert FINE[fine_classes(graph)[0]] == fine


@pytest.mark.parametrize("hero", [PER_CHANNEL, ADDED, CHANNELS_FIRST, SOFTMAX])
def test_a_tpu_has_no_such_kernels(hero):
    data = tensor_type((2, 8, 16, 16), "f32")
    times = [
        microseconds(
            node("aten.any.default", one, [data, data], [data]), load_system("tpu-v5p-pod")
        )
        for one in (hero, "")
    ]
    assert times[0] == times[1]


def test_an_op_that_only_claims_to_be_such_a_kernel_is_an_ordinary_one():
    vector = tensor_type((8,), "f32")
    for hero in (PER_CHANNEL, DIRECT):
        claimed = node("aten.add.Tensor", hero, [vector], [vector])
        plain = node("aten.add.Tensor", "", [vector], [vector])
        assert microseconds(claimed) == microseconds(plain)
