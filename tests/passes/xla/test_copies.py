"""Copies, transposes and reads of granularity xla that XLA's compiled modules have or do not have
(jaxlib 0.10.2, H100)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import flint
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, conv, of


def kernels(function, *arguments):
    return apply(flint.capture(mesh=(1,))(function).capture(*arguments).graph, "xla")


def test_a_product_does_not_overwrite_the_carried_value_that_it_reads() -> None:
    """As ``mhlo.copy`` of Shampoo's loops; what is added to a carried value is written in place."""

    def steps(m, t):
        return lax.scan(lambda m, _: (t @ m, None), m, None, length=4)[0]

    def sums(m, t):
        return lax.scan(lambda m, _: (m + t, None), m, None, length=4)[0]

    square = of(2048, 2048)
    body = kernels(steps, square, square).loops[0].body
    [copy] = [node for node in body if node.op == "copy"]
    assert (copy.work.read, copy.work.written) == (2048 * 2048 * 2, 2048 * 2048 * 2)
    assert "copy" not in {node.op for node in kernels(sums, square, square).loops[0].body}


def test_a_product_converts_what_others_read_in_another_type() -> None:
    """As ``gemm_fusion_dot_general`` of the codebook, whose tokens of bf16 are squared in f32."""

    def both(x, w):
        y = x.astype(F32)
        return y @ w, (y * y).sum(-1)

    found = kernels(both, of(4096, 256), of(256, 1024, dtype=F32))
    [product] = [node for node in found if node.op == "dot_general"]
    assert product.work.read == 4096 * 256 * 2 + 256 * 1024 * 4


def test_slices_beside_each_other_are_written_first() -> None:
    """As ``wrapped_slice`` of the graph network: a merged product loads no slices of two stacks."""
    found = kernels(lambda x, a, b: (x @ a[0], x @ b[0]), of(4096, 256), *[of(2, 256, 256)] * 2)
    cuts = [node for node in found if node.op == "slice" and node.work.written == 256 * 256 * 2]
    [product] = [node for node in found if node.op == "dot_general"]
    assert len(cuts) == 2 and product.work.read == (4096 + 2 * 256) * 256 * 2


def test_filters_of_several_groups_are_transposed() -> None:
    """As ``wrapped_transpose`` of the inverted residual: [3, 3, 1, 384] to [384, 3, 3, 1]."""
    dims = ("NHWC", "HWIO", "NHWC")

    def apart(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=x.shape[-1]
        )

    found = kernels(apart, of(8, 28, 28, 384), of(3, 3, 1, 384))
    assert (384, 3, 3, 1) in {node.result_types[0].shape for node in found}


def test_padding_of_a_convolution_is_unknown_behind_a_reshape() -> None:
    """Its input [1, 32, 32, 256] was [32, 32, 8, 32], which has as many dims: XLA pads nothing."""

    def reshaped(x, w):
        return conv(x.reshape(1, 32, 32, 256), w)

    found = kernels(reshaped, of(32, 32, 8, 32), of(3, 3, 256, 64))
    assert "pad" not in {node.op for node in found}


def test_what_is_made_of_vectors_needs_no_transpose() -> None:
    """As the votes of the capsules: an outer product is made as its reader wants it."""

    def outer(a, b, x):
        return jnp.einsum("bi,bj->bji", a, b) * x

    [kernel] = kernels(outer, of(64, 512), of(64, 128), of(64, 128, 512))
    assert kernel.work.read == 64 * (512 + 128 + 128 * 512) * 2


def test_a_kernel_that_concatenates_has_one_result() -> None:
    """As ``input_concatenate_fusion`` and ``input_reduce_fusion`` of the branches."""

    def joined(a, b):
        y = jnp.concatenate([a, b], -1)
        return jax.nn.relu(y), y.astype(F32).sum(0)

    found = kernels(joined, of(8192, 256), of(8192, 256))
    assert {len(node.results) for node in found} == {1}
