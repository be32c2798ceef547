"""Softmaxes and normalisations, forward and backward."""

from __future__ import annotations

import math

import torch

from tests.frontends.torch.lowering_cases.inputs import aten, half, mask, normal, positive


def batch_norm(train):
    def run(x, w, b, mean, variance):
        out = aten.native_batch_norm.default(x, w, b, mean, variance, train, 0.1, 1e-5)
        return [*(part for part in out if part.numel()), mean, variance]

    return run


def batch_norm_backward(train):
    def run(grad, x, w, b, mean, variance):
        _, save, inverse = aten.native_batch_norm.default(x, w, b, mean, variance, train, 0.1, 1e-5)
        return aten.native_batch_norm_backward.default(
            grad, x, w, mean, variance, save, inverse, train, 1e-5, [True] * 3
        )

    return run


def layer_norm_backward(grad, x, w, b):
    _, mean, rstd = aten.native_layer_norm.default(x, [6], w, b, 1e-5)
    return aten.native_layer_norm_backward.default(grad, x, [6], mean, rstd, w, b, [True] * 3)


def group_norm_backward(grad, x, w, b):
    _, mean, rstd = aten.native_group_norm.default(x, w, b, 2, 6, 20, 3, 1e-5)
    return aten.native_group_norm_backward.default(grad, x, mean, rstd, w, 2, 6, 20, 3, [True] * 3)


def weight_norm_backward(dim):
    def run(grad, v, g):
        _, norms = aten._weight_norm_interface.default(v, g, dim)
        return aten._weight_norm_interface_backward.default(grad, v, g, norms, dim)

    return run


CASES = {
    # name: (function, tensors)
    "_softmax": (lambda x: aten._softmax.default(x, -1, False), [normal(3, 4)]),
    "_softmax bf16": (lambda x: aten._softmax.default(x, 0, False), [half(3, 4)]),
    "_softmax_backward_data": (
        lambda g, y: aten._softmax_backward_data.default(g, y, 1, torch.float32),
        [normal(3, 4), positive(3, 4)],
    ),
    "_log_softmax": (lambda x: aten._log_softmax.default(x, 1, False), [normal(3, 4)]),
    "_log_softmax_backward_data": (
        lambda g, y: aten._log_softmax_backward_data.default(g, y, 1, torch.float32),
        [normal(3, 4), -positive(3, 4)],
    ),
    "_safe_softmax": (
        lambda x: aten._safe_softmax.default(x, -1),
        [torch.tensor([[1.0, 2.0], [-math.inf, -math.inf]])],
    ),
    "native_layer_norm": (
        lambda x, w, b: aten.native_layer_norm.default(x, [6], w, b, 1e-5),
        [normal(2, 3, 6), normal(6), normal(6)],
    ),
    "native_layer_norm_backward": (
        layer_norm_backward, [normal(2, 3, 6), normal(2, 3, 6), normal(6), normal(6)],
    ),
    **{
        f"native_batch_norm train={train}": (
            batch_norm(train),
            [normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
        )
        for train in (True, False)
    },
    **{
        f"native_batch_norm_backward train={train}": (
            batch_norm_backward(train),
            [normal(4, 3, 5, 5), normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
        )
        for train in (True, False)
    },
    "native_group_norm": (
        lambda x, w, b: aten.native_group_norm.default(x, w, b, 2, 6, 20, 3, 1e-5),
        [normal(2, 6, 4, 5), normal(6), normal(6)],
    ),
    "native_group_norm_backward": (
        group_norm_backward, [normal(2, 6, 4, 5), normal(2, 6, 4, 5), normal(6), normal(6)],
    ),
    **{
        f"_weight_norm_interface_backward dim={dim}": (
            weight_norm_backward(dim), [normal(*shape), normal(*shape), normal(*ones)],
        )
        for dim, shape, ones in ((0, (3, 4, 2), (3, 1, 1)), (2, (3, 4, 2), (1, 1, 2)))
    },
    "upsample_nearest2d": (
        lambda x: aten.upsample_nearest2d.default(x, [8, 15]), [normal(2, 3, 4, 5)],
    ),
    "upsample_nearest2d_backward": (
        lambda g: aten.upsample_nearest2d_backward.default(g, [8, 15], [2, 3, 4, 5]),
        [normal(2, 3, 8, 15)],
    ),
    "leaky_relu_backward": (
        lambda g, x: aten.leaky_relu_backward.default(g, x, 0.1, False), [normal(6), normal(6)],
    ),
    "hardtanh_backward": (
        lambda g, x: aten.hardtanh_backward.default(g, x, -0.5, 0.5), [normal(6), normal(6)],
    ),
    "softplus_backward": (
        lambda g, x: aten.softplus_backward.default(g, x, 2, 1), [normal(6), normal(6)],
    ),
    "elu with scales": (lambda x: aten.elu.default(x, 1.5, 2.0, 0.5), [normal(6)]),
    "_batch_norm_with_update": (
        lambda x, w, b, mean, variance: [
            *aten._batch_norm_with_update.default(x, w, b, mean, variance, 0.1, 1e-5)[:3],
            mean, variance,
        ],
        [normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
    ),
    "_native_batch_norm_legit": (
        lambda x, w, b, mean, variance: [
            *aten._native_batch_norm_legit.default(x, w, b, mean, variance, True, 0.1, 1e-5),
            mean, variance,
        ],
        [normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
    ),
    "_native_batch_norm_legit_no_training": (
        lambda *tensors: aten._native_batch_norm_legit_no_training.default(*tensors, 0.1, 1e-5)[0],
        [normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
    ),
    "native_dropout that keeps all": (
        lambda x: aten.native_dropout.default(x, 0.0, True), [normal(3, 4)],
    ),
    "native_dropout_backward": (
        lambda g, kept: aten.native_dropout_backward.default(g, kept, 1.25),
        [normal(3, 4), mask(3, 4)],
    ),
}  # fmt: skip
