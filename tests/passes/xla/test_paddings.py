"""Uneven paddings at granularity xla: what XLA writes for cuDNN (sizes of its own HLO)."""

from __future__ import annotations

import pytest
from jax import lax

import flint
from flint.passes import apply
from flint.passes.xla.images import has_gaps
from tests.passes.xla.kernels.programs import grads, of
from tests.passes.xla.kernels.test_kernels import bytes_ratio


def kernels(padding, stride=2):
    """Names and results of the kernels of a convolution's gradients, 48 x 48 places."""

    def step(x, w):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=dims)

    arguments = of(8, 48, 48, 96), of(3, 3, 96, 192)
    graph = flint.capture(mesh=(1,))(grads(step, 2)).capture(*arguments).graph
    return [(node.op, str(node.result_types[0])) for node in apply(graph, "xla")]


def test_an_input_is_padded_once_and_its_gradient_cut() -> None:
    """XLA: loop_pad_fusion and __cudnn$convBackwardInput of 8x49x49x96, wrapped_slice."""
    found = kernels("SAME")
    assert found.count(("pad", "8x49x49x96xbf16")) == 1
    assert found.count(("convolution", "8x49x49x96xbf16")) == 1
    assert found.count(("slice", "8x48x48x96xbf16")) == 1


@pytest.mark.parametrize(
    ("padding", "stride"), [("SAME", 1), ("VALID", 1), ([(1, 1), (1, 1)], 2), ("VALID", 3)]
)
def test_an_even_padding_is_cudnns(padding, stride) -> None:
    """With a stride of 2 and one element before, as many behind are padded as before."""
    assert not {"pad", "slice"} & {op for op, _ in kernels(padding, stride)}


def test_bytes_of_a_level_of_a_u_net_are_those_of_xla() -> None:
    assert bytes_ratio("U-Net level") == pytest.approx(1, abs=0.01)


def test_a_filter_of_patches_whose_gradient_was_a_sequence() -> None:
    """The reshape to a sequence leaves no node, so the gradient that a convolution reads has three
    dims. XLA: wrapped_transpose of 589,824 bytes before the forward convolution, and its bytes."""

    def patches(x, w):
        dims = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, w, (16, 16), "VALID", dimension_numbers=dims)
        return y.reshape(x.shape[0], -1, w.shape[-1])

    arguments = of(16, 224, 224, 3), of(16, 16, 3, 384)
    graph = apply(flint.capture(mesh=(1,))(grads(patches, 2)).capture(*arguments).graph, "xla")
    moved = {
        (node.op, node.work.read, node.work.written)
        for node in graph
        if node.op in ("transpose", "convolution")
    }
    assert ("transpose", 589824, 589824) in moved
    assert {("convolution", 5406720, 2408448), ("convolution", 7225344, 589824)} <= moved


def test_a_filter_that_is_cut_out_of_a_stack_pads_as_any_other() -> None:
    """XLA: ``loop_pad_fusion`` of 8x2049x128 for a causal convolution of 2,048 places."""

    def step(x, stack):
        dims = ("NWC", "WIO", "NWC")
        return lax.conv_general_dilated(x, stack[0], (1,), [(1, 0)], dimension_numbers=dims)

    graph = flint.capture(mesh=(1,))(step).capture(of(8, 2048, 128), of(4, 2, 128, 128)).graph
    [pad] = [node for node in apply(graph, "xla") if node.op == "pad"]
    assert (pad.work.read, pad.work.written) == (8 * 2048 * 128 * 2, 8 * 2049 * 128 * 2)


def test_a_deconvolution_reads_its_input_with_gaps() -> None:
    """Of the normed U-Net: loop_pad_fusion [8, 32, 32, 128] -> [8, 67, 67, 128] (31 gaps of one and
    2 at each end), its filter's gradient from transposed images, wrapped_transpose [128, 32, 32,
    8]; the gradient of its input is cuDNN's."""

    def step(x, w):
        return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    arguments = of(8, 32, 32, 128), of(4, 4, 128, 64)
    graph = apply(flint.capture(mesh=(1,))(grads(step, 2)).capture(*arguments).graph, "xla")
    moved = [(node.op, node.work.read, node.work.written) for node in graph]
    image, wide = 8 * 32 * 32 * 128 * 2, 8 * 67 * 67 * 128 * 2
    assert moved.count(("pad", image, wide)) == 1
    assert moved.count(("transpose", image, image)) == 1
    assert sum(op == "pad" for op, *_ in moved) == 1


def test_the_gradient_of_a_filter_per_channel_reads_its_input_with_gaps() -> None:
    """Of the separable convolutions: loop_pad_fusion [16, 28, 28, 128] -> [16, 58, 58, 128] and
    __cudnn$convForward to [16, 56, 56, 128]: 27 gaps of one, 3 places at both ends together."""

    def step(x, w):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (2, 2), "SAME", dimension_numbers=dims, feature_group_count=128
        )

    arguments = of(16, 56, 56, 128), of(3, 3, 1, 128)
    graph = apply(flint.capture(mesh=(1,))(grads(step, 2)).capture(*arguments).graph, "xla")
    moved = {(node.op, node.work.read, node.work.written) for node in graph}
    assert ("pad", 16 * 28 * 28 * 128 * 2, 16 * 58 * 58 * 128 * 2) in moved
    written = {size for op, _, size in moved if op == "convolution"}
    assert 16 * 56 * 56 * 128 * 2 in written


@pytest.mark.parametrize(
    ("padding", "image", "other", "gaps"),
    [
        ((2, 0), 2048, 2048, True),  # a dilation of 2
        ((1, 0), 2048, 2048, False),
        ((0, 1), 2048, 1024, False),  # a stride of 2
        ((2, 2), 1024, 2048, True),  # a deconvolution
    ],
)
def test_which_gradients_of_filters_have_gaps(padding, image, other, gaps) -> None:
    """Filters of two places, from XLA's kernels of the dilated convolutions."""
    form = (0, 0, 2, *padding)
    found = has_gaps(form, [(8, image, 128), (8, other, 128)], (2, 128, 128))
    assert found == gaps
