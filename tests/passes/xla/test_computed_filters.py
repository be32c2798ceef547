"""Filters that a program computes, at granularity xla: kernels and bytes as XLA compiles them for
an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import pytest
from jax import lax

import flint
from flint.passes import apply
from flint.passes.xla.orders import regrouped
from tests.passes.xla.kernels.programs import F32, of

LAYOUT = ("NHWC", "HWIO", "NHWC")
IMAGES, FILTER = of(8, 32, 32, 128), of(3, 3, 128, 256)


def kernels(function, *arguments):
    """Op, bytes read and written of the kernels that are not tiny."""
    graph = apply(flint.capture(mesh=(1,))(function).capture(*arguments).graph, "xla")
    found = [(node.op, node.work.read, node.work.written) for node in graph]
    return [each for each in found if each[1] + each[2] > 5000]


def convolved(x, filters):
    return lax.conv_general_dilated(x, filters, (1, 1), "SAME", dimension_numbers=LAYOUT)


def test_a_standardised_filter_is_computed_in_the_order_in_which_cudnn_reads_it() -> None:
    """XLA's ``input_reduce_fusion``, ``input_transpose_fusion`` f32[256,3,3,128],
    ``input_reduce_fusion``, ``loop_convert_fusion`` and ``__cudnn$convForward``, with these bytes:
    the mean is subtracted from a filter that is transposed."""

    def step(x, w):
        f = w.astype(F32)
        f = f - f.mean((0, 1, 2))
        f = f * lax.rsqrt((f**2).mean((0, 1, 2)) + 1e-5)
        return convolved(x, f.astype(x.dtype))

    assert [moved for _, *moved in kernels(step, IMAGES, FILTER)] == [
        [589_824, 1_024],
        [590_848, 1_179_648],
        [1_179_648, 1_024],
        [1_180_672, 589_824],
        [2_686_976, 4_194_304],
    ]


def test_a_product_of_two_parameters_is_transposed_behind_it() -> None:
    """XLA's ``input_transpose_fusion`` and ``__cudnn$convForward``: one transpose, not two."""
    found = kernels(lambda x, w, s: convolved(x, w * s), IMAGES, FILTER, FILTER)
    assert [op for op, *_ in found] == ["transpose", "convolution"]
    assert [moved for _, *moved in found] == [[1_179_648, 589_824], [2_686_976, 4_194_304]]


@pytest.mark.parametrize(
    ("shape", "back", "other", "order"),
    [
        ((3, 3, 128, 1024), (3, 0, 1, 2), (3, 3, 128, 8, 128), (3, 4, 0, 1, 2)),
        ((3, 3, 128, 8, 128), (3, 4, 0, 1, 2), (3, 3, 128, 1024), (3, 0, 1, 2)),
        ((3, 3, 128, 8, 128), (4, 3, 0, 1, 2), (3, 3, 128, 1024), ()),
        ((4, 6), (1, 0), (1, 4, 6), (0, 2, 1)),
        ((4, 6), (1, 0), (8, 3), ()),
        ((0, 3), (1, 0), (0, 5), ()),
    ],
)
def test_the_order_of_a_reshaped_value(shape, back, other, order) -> None:
    """Dims that are split stay together; dims that are joined must be next to each other."""
    assert regrouped(shape, back, other) == order
