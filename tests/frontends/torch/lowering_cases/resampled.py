"""Gradients of upsampling, and pooling over windows of three dims or of adaptive size."""

from __future__ import annotations

from tests.frontends.torch.lowering_cases.inputs import aten, normal


def upsampled_back(name, out, size, *options):
    function = getattr(aten, f"{name}_backward").default
    return lambda grad: function(grad, out, [2, 3, *size], *options)


def max_pool3d_backward(grad, x):
    _, places = aten.max_pool3d_with_indices.default(x, [2, 3, 2], [2, 2, 1], [1, 1, 0])
    return aten.max_pool3d_with_indices_backward.default(
        grad, x, [2, 3, 2], [2, 2, 1], [1, 1, 0], [1, 1, 1], False, places
    )


def adaptive_max_pool_backward(grad, x):
    _, places = aten.adaptive_max_pool2d.default(x, [3, 4])
    return aten.adaptive_max_pool2d_backward.default(grad, x, places)


def adaptive_max_pool3d_backward(grad, x):
    _, places = aten.adaptive_max_pool3d.default(x, [2, 3, 2])
    return aten.adaptive_max_pool3d_backward.default(grad, x, places)


CASES = {
    **{
        f"{name} backward to {out} {options}": (
            upsampled_back(name, out, size, *options), [normal(2, 3, *out)],
        )
        for name, out, size, options in [
            ("upsample_nearest1d", [7], [3], ()),
            ("upsample_nearest2d", [6, 7], [3, 4], ()),
            ("upsample_nearest2d", [6, 6], [3, 4], (2.0, 1.5)),
            ("upsample_nearest3d", [4, 6, 5], [2, 3, 5], ()),
            ("upsample_nearest3d", [4, 7, 5], [2, 3, 5], ()),
            ("_upsample_nearest_exact1d", [7], [3], ()),
            ("_upsample_nearest_exact2d", [5, 9], [3, 4], ()),
            ("_upsample_nearest_exact3d", [4, 5, 5], [2, 3, 2], ()),
            ("upsample_linear1d", [8], [5], (False,)),
            ("upsample_bilinear2d", [8, 5], [5, 6], (False,)),
            ("upsample_bilinear2d", [8, 5], [5, 4], (True,)),
            ("upsample_bilinear2d", [10, 6], [5, 4], (False, 2.0, 1.5)),
            ("upsample_trilinear3d", [4, 5, 6], [2, 3, 2], (False,)),
            ("upsample_bicubic2d", [8, 7], [5, 4], (False,)),
            ("upsample_bicubic2d", [8, 7], [5, 4], (True,)),
        ]
    },
    "avg_pool3d backward": (
        lambda g, x: aten.avg_pool3d_backward.default(
            g, x, [2, 3, 2], [2, 2, 1], [1, 1, 0], False, True, None
        ),
        [normal(2, 3, 3, 3, 3), normal(2, 3, 5, 6, 4)],
    ),
    "max_pool3d backward": (
        max_pool3d_backward, [normal(2, 3, 3, 3, 3), normal(2, 3, 5, 6, 4)],
    ),
    "adaptive_max_pool backward": (
        adaptive_max_pool_backward, [normal(2, 3, 3, 4), normal(2, 3, 9, 8)],
    ),
    "adaptive_max_pool3d backward": (
        adaptive_max_pool3d_backward, [normal(2, 3, 2, 3, 2), normal(2, 3, 4, 6, 4)],
    ),
    "adaptive_avg_pool3d": (
        lambda x: aten._adaptive_avg_pool3d.default(x, [2, 3, 2]), [normal(2, 3, 4, 6, 4)],
    ),
    "adaptive_avg_pool3d backward": (
        aten._adaptive_avg_pool3d_backward.default, [normal(2, 3, 2, 3, 2), normal(2, 3, 4, 6, 4)],
    ),
    # name: (function, tensors)
}  # fmt: skip
