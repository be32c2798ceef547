"""Movement and creation."""

from __future__ import annotations

import torch

from tests.frontends.torch.lowering_cases.inputs import aten, half, index, normal

CASES = {
    # name: (function, tensors)
    "cat": (lambda x, y: aten.cat.default([x, y], 1), [normal(3, 2), half(3, 4)]),
    "stack": (lambda x, y: aten.stack.default([x, y], 1), [normal(3, 2), normal(3, 2)]),
    "constant_pad_nd": (
        lambda x: aten.constant_pad_nd.default(x, [1, -1, 2, 0], 3.0), [normal(3, 4)],
    ),
    "slice_backward": (
        lambda g: aten.slice_backward.default(g, [3, 9], 1, 1, 8, 3), [normal(3, 3)],
    ),
    "select_backward": (lambda g: aten.select_backward.default(g, [3, 4], 1, -2), [normal(3)]),
    "slice_scatter": (
        lambda x, y: aten.slice_scatter.default(x, y, 1, 1, 3), [normal(3, 4), normal(3, 2)],
    ),
    "select_scatter": (
        lambda x, y: aten.select_scatter.default(x, y, 0, 1), [normal(3, 4), normal(4)],
    ),
    "flip": (lambda x: aten.flip.default(x, [1]), [normal(3, 4)]),
    "roll": (lambda x: aten.roll.default(x, [1, -2], [0, 1]), [normal(3, 4)]),
    "repeat": (lambda x: aten.repeat.default(x, [2, 1, 3]), [normal(2, 4)]),
    "repeat_interleave": (
        aten.repeat_interleave.Tensor, [torch.tensor([0, 2, 0, 3, 1, 0])],
    ),
    "split_with_sizes_copy": (
        lambda x: aten.split_with_sizes_copy.default(x, [1, 3], 1), [normal(3, 4)],
    ),
    "_chunk_cat": (
        lambda x, y: aten._chunk_cat.default([x, y], 0, 2), [normal(5, 3), normal(2, 2)],
    ),
    "tril": (lambda x: aten.tril.default(x, 1), [normal(4, 5)]),
    "triu": (aten.triu.default, [normal(2, 4, 5)]),
    "zeros": (lambda: aten.zeros.default([2, 3]), []),
    "full": (lambda: aten.full.default([2], 3.5), []),
    "full_like": (lambda x: aten.full_like.default(x, 2), [index(3, 2)]),
    "fill_": (lambda x: aten.fill_.Scalar(x, 2.0), [normal(3)]),
    "arange": (lambda: aten.arange.start_step(2, 11, 3), []),
    "arange of floats": (lambda: aten.arange.default(5, dtype=torch.float32), []),
    "linspace": (lambda: aten.linspace.default(0.0, 1.0, 5), []),
    "eye": (lambda: aten.eye.m(3, 4), []),
    "scalar_tensor": (lambda: aten.scalar_tensor.default(2.5), []),
    "_unsafe_view": (lambda x: aten._unsafe_view.default(x, [4, 3]), [normal(3, 4)]),
    "_reshape_copy": (lambda x: aten._reshape_copy.default(x, [4, 3]), [normal(3, 4)]),
    "view_copy": (lambda x: aten.view_copy.default(x, [2, 6]), [normal(3, 4)]),
    "view_copy as another dtype": (
        lambda x: aten.view_copy.dtype(x, torch.int16), [normal(3, 4)],
    ),
    "squeeze_copy": (lambda x: aten.squeeze_copy.dim(x, 1), [normal(3, 1, 4)]),
    "unsqueeze_copy": (lambda x: aten.unsqueeze_copy.default(x, -1), [normal(3, 4)]),
    "permute_copy": (lambda x: aten.permute_copy.default(x, [-1, 0, 1]), [normal(3, 1, 4)]),
    "transpose_copy": (lambda x: aten.transpose_copy.int(x, 0, -1), [normal(3, 2, 4)]),
    "expand_copy": (lambda x: aten.expand_copy.default(x, [2, 3, 4]), [normal(3, 1)]),
    "diagonal_copy": (lambda x: aten.diagonal_copy.default(x), [normal(3, 5)]),
    "diagonal_copy below, of other dims": (
        lambda x: aten.diagonal_copy.default(x, -1, 2, 0), [normal(3, 2, 5)],
    ),
    "diagonal_copy above": (lambda x: aten.diagonal_copy.default(x, 2), [normal(3, 4)]),
    "split_copy": (lambda x: aten.split_copy.Tensor(x, 2, 1), [normal(3, 5)]),
    "unbind_copy": (lambda x: aten.unbind_copy.int(x, -1), [normal(3, 2)]),
    "new_zeros": (lambda x: aten.new_zeros.default(x, [2, 3]), [normal(1)]),
    "new_ones": (lambda x: aten.new_ones.default(x, [2, 3]), [half(1)]),
    "new_full": (lambda x: aten.new_full.default(x, [2, 3], 1.5), [index(3, 1)]),
    "zeros_like": (aten.zeros_like.default, [half(2, 3)]),
    "ones": (lambda: aten.ones.default([2, 3]), []),
    "zero_": (aten.zero_.default, [normal(3)]),
}  # fmt: skip
