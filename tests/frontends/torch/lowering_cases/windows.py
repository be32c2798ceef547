"""Convolutions and pooling, forward and backward."""

from __future__ import annotations

from tests.frontends.torch.lowering_cases.inputs import aten, normal


def convolved(*options):
    return lambda *tensors: aten.convolution.default(*tensors, *options)


def convolved_back(*options):
    def run(grad, x, w):
        return aten.convolution_backward.default(grad, x, w, [w.shape[0]], *options, [True] * 3)

    return run


def max_pool(x):
    return aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])


def max_pool_backward(grad, x):
    _, places = max_pool(x)
    return aten.max_pool2d_with_indices_backward.default(
        grad, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places
    )


CASES = {
    **{
        f"convolution {label}": (
            convolved(*options), [normal(2, 4, 9, 8), normal(*kernel), normal(bias)],
        )
        for label, options, kernel, bias in [
            ("plain", ([1, 1], [0, 0], [1, 1], False, [0, 0], 1), (6, 4, 3, 3), 6),
            ("strided", ([2, 3], [1, 2], [1, 1], False, [0, 0], 1), (6, 4, 3, 3), 6),
            ("dilated", ([1, 2], [2, 1], [2, 2], False, [0, 0], 1), (6, 4, 3, 2), 6),
            ("grouped", ([2, 2], [1, 1], [1, 1], False, [0, 0], 2), (6, 2, 3, 3), 6),
            ("transposed", ([2, 2], [1, 0], [1, 1], True, [1, 0], 2), (4, 3, 3, 3), 6),
        ]
    },
    "convolution 1d": (
        convolved([2], [1], [1], False, [0], 1), [normal(2, 4, 9), normal(6, 4, 3), normal(6)],
    ),
    **{
        f"convolution_backward {label}": (
            convolved_back(*options),
            [normal(*aten.convolution.default(x, w, None, *options).shape), x, w],
        )
        for label, options, x, w in [
            ("plain", ([1, 1], [0, 0], [1, 1], False, [0, 0], 1), normal(2, 4, 9, 8),
             normal(6, 4, 3, 3)),
            ("strided", ([2, 3], [1, 2], [1, 1], False, [0, 0], 1), normal(2, 4, 9, 8),
             normal(6, 4, 3, 3)),
            ("dilated", ([1, 2], [2, 1], [2, 2], False, [0, 0], 1), normal(2, 4, 9, 8),
             normal(6, 4, 3, 2)),
            ("grouped", ([2, 2], [1, 1], [1, 1], False, [0, 0], 2), normal(2, 4, 9, 8),
             normal(6, 2, 3, 3)),
        ]
    },
    "max_pool": (max_pool, [normal(2, 3, 9, 8)]),
    "max_pool backward": (max_pool_backward, [normal(2, 3, 5, 4), normal(2, 3, 9, 8)]),
    "avg_pool": (
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1]), [normal(2, 3, 9, 8)],
    ),
    "avg_pool without padding in the count": (
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], True, False),
        [normal(2, 3, 9, 8)],
    ),
    "avg_pool backward": (
        lambda g, x: aten.avg_pool2d_backward.default(
            g, x, [3, 3], [2, 2], [1, 1], False, False, None
        ),
        [normal(2, 3, 5, 4), normal(2, 3, 9, 8)],
    ),
    "avg_pool3d": (
        lambda x: aten.avg_pool3d.default(x, [2, 3, 2], [2, 2, 1], [1, 1, 0], False, False),
        [normal(2, 3, 5, 6, 4)],
    ),
    "adaptive_avg_pool": (
        lambda x: aten._adaptive_avg_pool2d.default(x, [3, 2]), [normal(2, 3, 9, 8)],
    ),
    "adaptive_avg_pool backward": (
        aten._adaptive_avg_pool2d_backward.default, [normal(2, 3, 3, 2), normal(2, 3, 9, 8)],
    ),
}  # fmt: skip
