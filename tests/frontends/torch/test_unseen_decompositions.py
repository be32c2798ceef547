"""Ops that the table of lowerings lacks, by PyTorch's decompositions, against its eager kernels."""

from __future__ import annotations

import pytest
import torch

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.frontends.torch.lowerings.table import entry_of
from flint.graph.work import Unit
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.frontends.torch.checking import check, skip_if_not_decomposed
from tests.frontends.torch.lowering_cases.inputs import aten, half, index, normal, positive
from tests.frontends.torch.real_recording import by_hand, record

SHARES = positive(3, 4) / 2

CASES = {
    # name: (function, tensors)
    "elu_backward": (
        lambda g, x: aten.elu_backward.default(g, 1.0, 1.0, 1.0, False, x),
        [normal(3, 4), normal(3, 4)],
    ),
    "hardswish_backward": (aten.hardswish_backward.default, [normal(3, 4), 4 * normal(3, 4)]),
    "hardswish_backward bf16": (aten.hardswish_backward.default, [half(3, 4), 4 * half(3, 4)]),
    "hardsigmoid_backward": (aten.hardsigmoid_backward.default, [normal(3, 4), 4 * normal(3, 4)]),
    "gelu of bf16": (aten.gelu.default, [half(3, 4)]),
    "mish_backward": (aten.mish_backward.default, [normal(3, 4), normal(3, 4)]),
    "celu_": (lambda x: aten.celu_.default(x), [normal(3, 4)]),
    "glu": (lambda x: aten.glu.default(x, 1), [normal(3, 4)]),
    "glu_backward": (lambda g, x: aten.glu_backward.default(g, x, 1), [normal(3, 2), normal(3, 4)]),
    "prelu": (aten._prelu_kernel.default, [normal(3, 4), normal(1, 4)]),
    "prelu_backward": (
        aten._prelu_kernel_backward.default, [normal(3, 4), normal(3, 4), normal(1, 4)],
    ),
    "hardshrink": (aten.hardshrink.default, [normal(3, 4)]),
    "binary_cross_entropy": (aten.binary_cross_entropy.default, [SHARES, SHARES.flip(0)]),
    "binary_cross_entropy_backward": (
        aten.binary_cross_entropy_backward.default, [normal(), SHARES, SHARES.flip(0)],
    ),
    "smooth_l1_loss": (aten.smooth_l1_loss.default, [normal(3, 4), normal(3, 4)]),
    "smooth_l1_loss_backward": (
        lambda g, x, y: aten.smooth_l1_loss_backward.default(g, x, y, 1, 1.0),
        [normal(), normal(3, 4), normal(3, 4)],
    ),
    "huber_loss": (aten.huber_loss.default, [normal(3, 4), normal(3, 4)]),
    "multi_margin_loss": (aten.multi_margin_loss.default, [normal(3, 4), index(4, 3)]),
    "weight_norm": (lambda v, g: aten._weight_norm_interface.default(v, g, 0),
                    [normal(3, 4), normal(3, 1)]),
    "bilinear": (
        lambda x: aten.upsample_bilinear2d.default(x, [6, 8], False), [normal(2, 3, 4, 5)],
    ),
    "bicubic": (
        lambda x: aten.upsample_bicubic2d.default(x, [6, 8], False), [normal(1, 2, 4, 5)],
    ),
    "trilinear": (
        lambda x: aten.upsample_trilinear3d.default(x, [6, 8, 4], True), [normal(1, 2, 4, 5, 2)],
    ),
    "nearest 1d": (lambda x: aten.upsample_nearest1d.default(x, [6]), [normal(2, 3, 4)]),
    "nearest 2d by a fraction": (
        lambda x: aten.upsample_nearest2d.default(x, [6, 7]), [normal(2, 3, 4, 5)],
    ),
    "grid_sampler_2d": (
        lambda x, g: aten.grid_sampler_2d.default(x, g, 0, 0, False),
        [normal(2, 3, 4, 5), normal(2, 3, 3, 2).clamp(-1, 1)],
    ),
    "reflection_pad2d": (
        lambda x: aten.reflection_pad2d.default(x, [1, 2, 1, 1]), [normal(2, 3, 4, 5)],
    ),
    "reflection_pad2d_backward": (
        lambda g, x: aten.reflection_pad2d_backward.default(g, x, [1, 2, 1, 1]),
        [normal(2, 3, 6, 8), normal(2, 3, 4, 5)],
    ),
    "im2col": (
        lambda x: aten.im2col.default(x, [2, 2], [1, 1], [0, 0], [1, 1]), [normal(2, 3, 4, 5)],
    ),
    "tril_indices": (lambda x: aten.tril_indices.default(4, 4, -1) + x, [index(1, 1)]),
    "diag_embed": (aten.diag_embed.default, [normal(2, 3)]),
    "aminmax": (aten.aminmax.default, [normal(2, 3)]),
    "isin": (aten.isin.Tensor_Tensor, [index(5, 6), index(5, 3)]),
    "xlogy": (aten.xlogy.Tensor, [positive(3, 4), positive(3, 4)]),
    "index_fill": (
        lambda x, i: aten.index_fill.int_Scalar(x, 0, i, 2.0), [normal(3, 4), torch.tensor([0, 2])],
    ),
    "max_pool3d": (
        lambda x: aten.max_pool3d_with_indices.default(x, [2, 2, 2]), [normal(1, 2, 4, 4, 4)],
    ),
    "adaptive_max_pool2d": (
        lambda x: aten.adaptive_max_pool2d.default(x, [2, 2]), [normal(2, 3, 4, 4)],
    ),
}  # fmt: skip


@torch.library.custom_op("flint_tests::scaled_mm", mutates_args=())
def scaled_mm(x: torch.Tensor, w: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    narrow = (x / scale).to(torch.float8_e4m3fn)
    one = x.new_tensor(scale, dtype=torch.float32)
    turned = w.to(torch.float8_e4m3fn).t()
    made = torch._scaled_mm(narrow, turned, one, one, out_dtype=torch.bfloat16)
    return made, narrow


@torch.library.custom_op("flint_tests::by_values", mutates_args=())
def by_values(x: torch.Tensor) -> torch.Tensor:
    return x + float(x.max())


def recorded(function, tensors):
    def step(*tensors):
        out = function(*tensors)
        return [out] if isinstance(out, torch.Tensor) else list(out)

    with torch.no_grad():
        return record(step, *[tensor.clone() for tensor in tensors])


@pytest.mark.parametrize("name", CASES)
def test_a_decomposed_op_computes_what_eager_pytorch_computes(name):
    skip_if_not_decomposed(name)
    check(recorded(*CASES[name]))


@pytest.mark.parametrize("name", ["gelu of bf16", "hardswish_backward bf16", "glu_backward"])
def test_a_program_that_ends_in_inference_mode_changes_no_decomposition(name):
    """There ``to`` is not taken apart before a mode sees it."""
    made = recorded(*CASES[name])
    with torch.inference_mode():
        check(made)


def test_a_decomposed_op_is_one_kernel_that_reads_and_writes_its_tensors_once():
    made = emitted(recorded(aten.glu.default, [normal(3, 8)]).recording, strict=True)
    assert not made.warnings
    assert entry_of("aten.glu.default") is None
    [node] = [node for node in walk(read_mlir(made.data, "step")).graph if "glu" in node.op]
    assert (node.work.read, node.work.written) == (4 * 3 * 8, 4 * 3 * 4)


def test_what_a_decomposition_is_made_of_must_be_known():
    recording = by_hand("aten.lgamma.default", [normal(3)], [normal(3)], {0})
    with pytest.raises(FlintError, match=r"prims.lgamma.default, which it contains, has no low"):
        emitted(recording, strict=True)
    assert any("one FLOP per element" in text for text in emitted(recording).warnings)


def test_a_programs_own_op_is_one_kernel_with_the_work_of_its_function():
    x, w = half(32, 16), half(48, 16)
    results = [half(32, 48), x.to(torch.float8_e4m3fn)]
    recording = by_hand("flint_tests.scaled_mm.default", [x, w], results, {0}, {1}, 2.0)
    made = emitted(recording, strict=True)
    assert not made.warnings
    [node] = [node for node in walk(read_mlir(made.data, "step")).graph if "mm" in node.op]
    products = [item.flops for item in node.work.items if item.unit is Unit.MATMUL]
    assert products == [2 * 32 * 48 * 16]
    assert node.work.read == 2 * (32 * 16 + 48 * 16)
    assert node.work.written == 2 * 32 * 48 + 32 * 16


def test_an_own_op_that_reads_values_is_estimated_with_a_warning():
    x = normal(3, 4)
    recording = by_hand("flint_tests.by_values.default", [x], [x], {0})
    [text] = emitted(recording).warnings
    assert "flint_tests.by_values.default" in text and "one FLOP per element assumed" in text


def test_an_op_whose_function_writes_in_place_has_the_products_that_it_calls():
    """Scores, and the gradients of tokens and of weights, in two chunks."""
    found = "torch.nn.modules.linear_cross_entropy_options"
    options = pytest.importorskip(found).LinearCrossEntropyOptions()
    chosen = index(32, 16)

    def step(x, w):
        loss = torch.nn.functional.linear_cross_entropy(x, w, chosen, options=options)
        loss.backward()
        return x.grad, w.grad

    parameters = normal(16, 8).requires_grad_(), normal(32, 8).requires_grad_()
    made = emitted(record(step, *parameters).recording)
    graph = walk(read_mlir(made.data, "step")).graph
    work = [item for node in graph for item in node.work.items if item.unit is Unit.MATMUL]
    assert sum(item.flops for item in work) == 3 * 2 * 16 * 8 * 32
    assert any("products that its function calls" in text for text in made.warnings)


def test_a_decomposition_that_reads_values_leaves_an_op_of_estimated_flops():
    """PyTorch's own of ``take`` asks for the number of an index of no dims."""
    made = emitted(record(lambda x, i: x.take(i), normal(3, 4), index(12)).recording)
    [text] = [text for text in made.warnings if "aten.take.default" in text]
    assert "fails on shapes alone" in text and "one FLOP per element assumed" in text
