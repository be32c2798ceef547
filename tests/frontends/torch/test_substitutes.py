"""Substitutes for ops without a lowering, and the messages of --strict."""

from __future__ import annotations

import pytest
import torch

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.graph.work import Unit
from flint.stablehlo.read.bindings import parse
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.frontends.torch.lowering_cases.inputs import normal
from tests.frontends.torch.real_recording import by_hand, record

aten = torch.ops.aten


def test_an_op_without_a_lowering_is_a_kernel_with_torchs_own_flops_and_a_warning():
    x, w = normal(3, 4), normal(5, 4)
    tensors = [x, w.t(), normal(3, 2), normal(2, 5)]  # scales per block
    recording = by_hand("aten._scaled_mm.default", tensors, [normal(3, 5)], {0}, {1}, {2}, {3})
    made = emitted(recording)
    assert list(made.warnings.values()) == [1]
    text = str(parse(made.data))
    assert "custom_call @flint.aten._scaled_mm.default(%arg0, %arg1, %arg2, %arg3)" in text
    assert f"\\22flops\\22: {2 * 3 * 4 * 5}," in text
    graph = walk(read_mlir(made.data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._scaled_mm.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.MATMUL, 2 * 3 * 4 * 5)]


def test_a_product_with_lists_of_scales_has_its_flops():
    """PyTorch's flop counter does not know ``scaled_mm`` with recipes."""
    x, w, scale = normal(3, 4), normal(5, 4).t(), normal()
    recording = by_hand(
        "aten._scaled_mm_v2.default",
        [x, w, scale, scale],
        [normal(3, 5)],
        {0}, {1}, [{2}], [0], [0], [{3}], [0], [0], None, None,
    )  # fmt: skip
    graph = walk(read_mlir(emitted(recording).data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._scaled_mm_v2.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.MATMUL, 2 * 3 * 4 * 5)]


def test_an_unknown_op_has_a_flop_per_element_and_a_warning():
    recording = by_hand("aten._pdist_forward.default", [normal(3, 4)], [normal(3)], {0})
    made = emitted(recording)
    assert any("one FLOP per element assumed" in text for text in made.warnings)
    graph = walk(read_mlir(made.data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._pdist_forward.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.VECTOR, 3)]


#: Op, shapes of its tensors and of its results, FLOPs by hand.
BY_FORMULA = {
    # windows of 3, 4 and 3 elements along both dims, 6 planes, a division each
    "_adaptive_avg_pool2d": ([(2, 3, 8, 8)], [(2, 3, 3, 3)], 6 * (10 * 10 + 9)),
    "_adaptive_avg_pool2d_backward": ([(2, 3, 3, 3), (2, 3, 8, 8)], [(2, 3, 8, 8)], 6 * 109),
    # per channel, place and corner of 4: one product and sum, and per coordinate 4 operations
    "grid_sampler_2d_backward": (
        [(2, 3, 4, 5), (2, 3, 8, 8), (2, 4, 5, 2)], [(2, 3, 8, 8), (2, 4, 5, 2)],
        2 * 3 * 4 * 5 * 4 * (2 + 2 * 4),
    ),
    "linalg_cholesky_ex": ([(5, 6, 6)], [(5, 6, 6), (5,)], 5 * 6**3 / 3),
    "cholesky_inverse": ([(6, 6)], [(6, 6)], 2 * 6**3 / 3),
    # per pair of rows and column: a difference, its power, a sum; backward a quotient, too
    "_cdist_forward": ([(2, 5, 3), (2, 4, 3)], [(2, 5, 4)], 2 * 5 * 4 * 3 * 3),
    "_cdist_backward": (
        [(2, 5, 4), (2, 5, 3), (2, 4, 3)], [(2, 5, 3)], 2 * 5 * 4 * 3 * 4,
    ),
    "linalg_inv_ex": ([(6, 6)], [(6, 6), ()], 2 * 6**3),
    "_linalg_eigh": ([(6, 6)], [(6,), (6, 6)], 9 * 6**3),
    "_linalg_svd": ([(6, 4)], [(6, 4), (4,), (4, 4)], 6 * 6 * 16 + 20 * 64),
    # R by reflections of 2 n^2 (m - n / 3), and Q as much
    "linalg_qr": ([(9, 3)], [(9, 3), (3, 3)], 2 * 2 * 9 * (9 - 1)),
    "linalg_solve_triangular": ([(6, 6), (6, 2)], [(6, 2)], 2 * 6**2),
    "cholesky_solve": ([(6, 2), (6, 6)], [(6, 2)], 2 * 2 * 6**2),  # with L, then with its transpose
    "linalg_lu_solve": ([(6, 6), (6,), (6, 2)], [(6, 2)], 2 * 2 * 6**2),
    "_linalg_slogdet": ([(6, 6)], [(), (), (6, 6), (6,)], 2 * 6**3 / 3),
    "masked_scatter_backward": ([(6, 2), (6, 2)], [(3,)], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_FORMULA)
def test_windows_that_do_not_fit_and_linear_algebra_count_by_formulas(name):
    shapes, results, flops = BY_FORMULA[name]
    tensors, made = ([normal(*shape) for shape in group] for group in (shapes, results))
    places = [{at} for at in range(len(shapes))]
    recording = by_hand(f"aten.{name}.default", tensors, made, *places)
    module = emitted(recording)
    assert any(text.endswith("FLOPs by a formula") for text in module.warnings)
    [node] = walk(read_mlir(module.data, "step")).graph
    assert node.work.flops == flops


def test_the_gradient_of_bilinear_upsampling_is_8_flops_per_gradient():
    """Four corners, a product and a sum each; products of weights once for the 6 planes."""
    grad = normal(2, 3, 8, 10)
    recording = record(
        lambda grad: aten.upsample_bilinear2d_backward.default(grad, [8, 10], [2, 3, 4, 5], False),
        grad,
    ).recording
    [node] = walk(read_mlir(emitted(recording, strict=True).data, "step")).graph
    floats = sum(item.flops for item in node.work.items if item.dtype == "f32")
    assert floats == 8 * 2 * 3 * 8 * 10 + 4 * 8 * 10


def test_strict_refuses_an_op_without_a_lowering():
    recording = by_hand("aten._pdist_forward.default", [normal(3, 4)], [normal(3)], {0})
    with pytest.raises(FlintError, match=r"op 0 \(aten._pdist_forward.default\).*no lowering"):
        emitted(recording, strict=True)


def test_an_operand_that_is_only_written_is_not_read():
    recorded = record(lambda x, y: aten.copy_.default(x, y), normal(3), normal(3))
    text = str(parse(emitted(recorded.recording).data))
    assert 'composite "aten.copy_.default" %arg1 {' in text
