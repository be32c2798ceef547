"""FLOPs of recorded ops against counts by hand, PyTorch's own counter and our lowerings."""

from __future__ import annotations

from math import prod

import pytest

import flint
from flint.cost import aten_work
from flint.cost.aten_work import PER_ELEMENT
from flint.graph.work import Unit


def work_of(name, arguments, values):
    return aten_work.work_of(name, arguments, values).items


def flops(items, unit=Unit.MATMUL):
    return sum(item.flops for item in items if item.unit == unit)


def tensor(*shape, dtype="f32"):
    return [(shape, dtype)]


def test_a_convolution_is_a_product_of_windows_and_filters():
    """ResNet-50's first one: 32 images, 112 x 112 places of 64 filters of 3 x 7 x 7."""
    arguments = [tensor(32, 3, 224, 224), tensor(64, 3, 7, 7), [], [], [], [], [], [], []]
    values = [None, None, None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1]
    [item] = work_of("convolution", arguments, values)
    assert item.flops == 2 * 32 * 112 * 112 * 64 * 3 * 7 * 7
    assert item.dims == (1, 32 * 112 * 112, 64, 3 * 7 * 7)


def test_the_backward_pass_of_a_convolution_is_as_many_products_as_are_asked_for():
    grad, data, weight = tensor(4, 8, 5, 5), tensor(4, 6, 10, 10), tensor(8, 3, 3, 3)
    forward = 2 * 4 * 25 * 8 * 3 * 9
    for mask, times in (([True, True, False], 2), ([False, True, True], 1)):
        values = [None] * 4 + [[2, 2], [1, 1], [1, 1], False, [0, 0], 2, mask]
        found = work_of("convolution_backward", [grad, data, weight, *[[]] * 8], values)
        assert [item.flops for item in found] == [forward] * times


def test_the_cpus_gradients_of_a_convolution_are_those_that_its_own_mask_asks_for():
    """Of 4 x 8 windows of 3 x 5 x 5 by 16 filters, for the weight alone: 2 x 32 x 75 x 16."""
    arguments = [tensor(1, 16, 4, 8), tensor(1, 3, 8, 12), tensor(16, 3, 5, 5), [], [], [], []]
    for mask, parts in (([False, True, True], 1), ([True, True, False], 2)):
        found = work_of("_slow_conv2d_backward", arguments, [None] * 6 + [mask])
        assert flops(found) == parts * 2 * 32 * 75 * 16


def test_a_convolution_of_unknown_stride_has_no_number():
    assert work_of("convolution", [tensor(1, 3, 8, 8), tensor(4, 3, 3, 3)], []) is None


@pytest.mark.parametrize(
    ("causal", "pairs"), [(False, 16 * 16), (True, 16 * 17 // 2)], ids=["full", "causal"]
)
def test_attention_is_two_products_of_the_pairs_that_see_each_other(causal, pairs):
    """Two batches of three heads, 16 positions, 8 numbers: 2 x 2 x 6 x pairs x 8."""
    q = tensor(2, 3, 16, 8, dtype="bf16")
    values = [None, None, None, 0.0, causal]
    found = work_of("_scaled_dot_product_flash_attention", [q, q, q, [], []], values)
    assert flops(found) == 2 * 2 * 6 * pairs * 8
    assert flops(found, Unit.TRANSCENDENTAL) == 6 * pairs
    lying = tensor(2, 16, 3, 8, dtype="bf16")
    values = [None] * 8 + [causal]
    assert flops(work_of("_flash_attention_forward", [lying] * 3, values)) == flops(found)


def test_a_products_weight_may_have_its_outputs_first_or_last():
    for weight in ((64, 16), (16, 64)):
        found = work_of("rocm_unquantized_gemm", [tensor(2, 8, 16), tensor(*weight), []], [])
        assert flops(found) == 2 * 16 * 16 * 64


def test_a_product_into_its_first_operand_is_that_of_the_operands_behind_it():
    """vLLM's schemas: ``cutlass_scaled_mm(out, a, b, a_scales, b_scales, bias)``, and oneDNN's
    product, whose weight is behind a handle; 8 rows of 16 by a square weight: 2 * 8 * 16 * 16.
    """
    out, a, weight = tensor(8, 16), tensor(8, 16), tensor(16, 16)
    scales = tensor(8, 1), tensor(1, 16)
    for name, arguments in (
        ("_C::cutlass_scaled_mm", [out, a, weight, *scales, []]),
        ("sgl_kernel::fp8_scaled_mm", [a, weight, *scales]),
        ("_C::onednn_mm", [out, a, [], []]),
        ("sgl-kernel::weight_packed_linear", [a, weight, []]),
    ):
        assert flops(work_of(name, arguments, [])) == 2 * 8 * 16 * 16, name
    assert flops(work_of("_C::onednn_mm", [tensor(8, 4), a, [], []], [])) == 2 * 8 * 4 * 16


def test_a_fused_kernel_of_inductor_has_the_ops_that_its_name_lists():
    """add, pow, mean, rsqrt and two mul per element; the largest operand has 32."""
    arguments = [tensor(4, 8), tensor(8), tensor(4, 8), [], []]
    found = work_of("triton_red_fused_add_mean_mul_pow_rsqrt_0", arguments, [])
    assert flops(found, Unit.VECTOR) == 4 * 32
    assert flops(found, Unit.TRANSCENDENTAL) == 32


#: Transforms of 4 x 8 x 16 numbers, with XLA's 8 FLOPs per element and halving of a length, dim by
#: dim: of real numbers the last dim first, after which 9 of its 16 are left; to real numbers the
#: last dim last.
TRANSFORMS = {
    "_fft_r2c": ((4, 8, 16), "f32", True, 8 * (4 * 8 * 16) * 4 + 8 * (4 * 8 * 9) * 3),
    "_fft_c2c": ((4, 8, 16), "complex<f32>", False, 8 * (4 * 8 * 16) * (3 + 4)),
    "_fft_c2r": ((4, 8, 9), "complex<f32>", 16, 8 * (4 * 8 * 9) * (3 + 4)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_counts_as_xla_does_for_each_dim(name):
    shape, dtype, last, wanted = TRANSFORMS[name]
    arguments = [tensor(*shape, dtype=dtype), [], [], []]
    for dims in ([1, 2], [-2, -1]):
        assert flops(work_of(name, arguments, [None, dims, 0, last]), Unit.VECTOR) == wanted
    assert work_of(name, arguments, []) is None


def test_a_factorisation_has_the_leading_terms_of_its_matrices():
    """Two of 30 x 30 by Cholesky: n^3 / 3 each; one of 40 x 30 by LU: m n^2 - n^3 / 3."""
    square = work_of("aten::linalg_cholesky_ex", [tensor(2, 30, 30), []], [])
    assert flops(square, Unit.VECTOR) == 2 * 30**3 // 3
    lying = work_of("aten::linalg_lu_factor_ex", [tensor(30, 40), []], [])
    assert flops(lying, Unit.VECTOR) == 40 * 30**2 - 30**3 // 3


def test_an_optimizers_kernel_counts_all_tensors_of_its_list():
    lists = [[((10, 4), "f32"), ((5,), "f32")]] * 4
    found = work_of("_fused_adamw", [*lists, [], []], [])
    assert flops(found, Unit.VECTOR) == 14 * 45


@pytest.mark.parametrize("name", ["convolution", "_flash_attention_forward", "gelu", "mm"])
def test_shapes_that_do_not_fit_have_no_number(name):
    values = [None, None, None, [1], [0], [1], False, [0], 1]
    for arguments in ([], [[]], [[], tensor(2, 2)]):
        assert work_of(name, arguments, values) is None
    assert work_of("convolution", [tensor(2, 0, 1, 1)] * 9, values) is None


def _described(arguments):
    """Arguments of torch as a profiler has them."""
    import torch

    tensors, values = [], []
    for item in arguments:
        whole = isinstance(item, torch.Tensor)
        tensors.append([(tuple(item.shape), "f32")] if whole else [])
        values.append(None if whole else item)
    return tensors, values


@pytest.mark.thorough
def test_products_are_those_of_pytorchs_own_counter():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def on_meta(*shape):
        return torch.empty(shape, device="meta")

    aten = torch.ops.aten
    x, w, grouped = on_meta(4, 6, 20, 20), on_meta(8, 6, 3, 3), on_meta(8, 3, 3, 3)
    ones, two = [1, 1], [2, 2]
    q = on_meta(2, 3, 16, 8)
    calls = [
        (aten.convolution, x, w, None, two, ones, ones, False, [0, 0], 1),
        (aten.convolution, x, grouped, None, ones, ones, two, False, [0, 0], 2),
        (aten.convolution, x, on_meta(6, 8, 3, 3), None, two, ones, ones, True, [0, 0], 1),
        (aten.convolution_backward, on_meta(4, 8, 10, 10), x, w, None, two, ones, ones, False,
         [0, 0], 1, [True, True, False]),
        (aten._scaled_dot_product_flash_attention, q, q, q, 0.0, False),
    ]  # fmt: skip
    for op, *arguments in calls:
        with FlopCounterMode(display=False) as counter:
            op(*arguments)
        name = op.__name__ if isinstance(op.__name__, str) else str(op)
        found = work_of(name.rpartition(".")[2], *_described(arguments))
        assert flops(found) == counter.get_total_flops(), name


@pytest.mark.thorough
def test_operations_per_element_are_those_of_the_lowerings():
    """Each op captured on 1024 x 512 (norms over 512) or 64 x 32 x 16 x 16, as it is lowered."""
    from tests.cost.ops_per_element import setup, step

    capture = flint.capture(mesh=(1,), axes=("a",), setup=setup, framework="torch")(step)
    seen = set()
    for node in capture.capture().programs[0].graph:
        name = node.op.split(".")[1].rstrip("_") if node.op.startswith("aten.") else ""
        if name not in PER_ELEMENT:
            continue
        elements = prod((1024, 512))
        operations = sum(i.flops for i in node.work.items if i.unit == Unit.VECTOR) / elements
        functions = sum(i.flops for i in node.work.items if i.unit == Unit.TRANSCENDENTAL)
        found = operations, functions / elements
        assert found == pytest.approx(PER_ELEMENT[name], abs=0.02), name
        seen.add(name)
    libraries = {name for name in PER_ELEMENT if name.startswith(("cudnn", "miopen"))}
    assert seen == set(PER_ELEMENT) - libraries


def test_fused_experts_multiply_each_token_by_the_weights_that_it_chose():
    """64 tokens choose 2 of 8 experts: 128 rows by 32 x 64 and 32 x 32, 2 x 128 x 32 x (64 + 32)
    FLOPs, and a gated activation of 128 x 32 elements.
    """
    shapes = [(64, 32), (8, 64, 32), (8, 32, 32), (64, 2), (64, 2)]
    arguments = [[(shape, "bf16")] for shape in shapes]
    found = work_of("inplace_fused_experts", arguments, [None] * 5)
    assert sum(item.flops for item in found if item.unit == Unit.MATMUL) == 786_432
    assert [item.flops for item in found[2:]] == [2 * 128 * 32, 128 * 32]
    arguments[1] = [((8, 64, 16), "ui8")]  # two numbers of 4 bits in a byte
    assert work_of("inplace_fused_experts", arguments, [None] * 5) is None


def test_products_of_fbgemm_are_known_by_their_types():
    """FBGEMM's name says the types of both operands and of the result: 2 x 64 x 16 x 32 FLOPs."""
    arguments = [[(shape, "f8E4M3FN")] for shape in ((64, 32), (16, 32), (64,), (16,))]
    [item] = work_of("f8f8bf16_rowwise", arguments, [None] * 4)
    assert (item.flops, item.dtype) == (65_536, "f8E4M3FN")
