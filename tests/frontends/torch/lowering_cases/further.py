"""Fourier transforms, bags of embeddings, scaled losses."""

from __future__ import annotations

import math

import torch

from tests.frontends.torch.lowering_cases.inputs import aten, index, normal, positive

BEGINS = torch.tensor([0, 2, 2, 5])


def both(*shape):
    return torch.complex(normal(*shape), normal(*shape))


def bag(mode, padding=-1):
    def run(weight, indices, *weights):
        own = weights[0] if weights else None
        out = aten._embedding_bag.default(
            weight, indices, BEGINS, False, mode, False, own, False, padding
        )
        return out[0]

    return run


def bag_backward(mode, padding=-1):
    def run(grad, weight, indices, *weights):
        own = weights[0] if weights else None
        _, bags, sizes, largest = aten._embedding_bag.default(
            weight, indices, BEGINS, False, mode, False, own, False, padding
        )
        return aten._embedding_bag_backward.default(
            grad, indices, BEGINS, bags, sizes, largest, 6, False, mode, False, own, padding
        )

    return run


def unscale(first, second, found, inverse):
    aten._amp_foreach_non_finite_check_and_unscale_.default([first, second], found, inverse)
    return [first, second, found]


def update(scale, steps, found):
    aten._amp_update_scale_.default(scale, steps, found, 2.0, 0.5, 4)
    return [scale, steps]


CASES = {
    # name: (function, tensors)
    "put": (
        lambda x, y: aten.put.default(x, torch.tensor([[2], [-3]]), y),
        [normal(3, 5), normal(2, 1)],
    ),
    "put accumulate": (
        lambda x, i, y: aten.put.default(x, i, y, True), [normal(3, 5), index(15, 8), normal(8)],
    ),
    **{
        f"_fft_c2c {label}": (
            lambda x, given=given: aten._fft_c2c.default(x, *given), [both(3, 4, 6)],
        )
        for label, given in [
            ("forward", ([2], 0, True)), ("inverse", ([2], 2, False)),
            ("two dims", ([0, 2], 1, True)), ("inverse of two dims", ([1, 0], 1, False)),
        ]
    },
    **{
        f"_fft_r2c {label}": (
            lambda x, given=given: aten._fft_r2c.default(x, *given), [normal(3, 4, 6)],
        )
        for label, given in [
            ("one side", ([2], 0, True)), ("both sides", ([1], 1, False)),
            ("two dims", ([0, 1], 2, True)),
        ]
    },
    **{
        f"_fft_c2r {label}": (
            lambda x, given=given: aten._fft_c2r.default(x, *given), [both(3, 4, 4)],
        )
        for label, given in [
            ("even", ([2], 2, 6)), ("odd", ([2], 0, 7)), ("two dims", ([0, 2], 1, 6)),
        ]
    },
    "_embedding_bag sum": (bag(0), [normal(6, 4), index(6, 7)]),
    "_embedding_bag mean": (bag(1), [normal(6, 4), index(6, 7)]),
    "_embedding_bag padded": (bag(1, 2), [normal(6, 4), torch.tensor([2, 1, 0, 2, 3, 4, 2])]),
    "_embedding_bag weighted": (bag(0), [normal(6, 4), index(6, 7), positive(7)]),
    "_embedding_bag_forward_only": (
        lambda w, i: aten._embedding_bag_forward_only.default(w, i, BEGINS)[0],
        [normal(6, 4), index(6, 7)],
    ),
    "_embedding_bag_backward sum": (bag_backward(0), [normal(4, 4), normal(6, 4), index(6, 7)]),
    "_embedding_bag_backward mean": (bag_backward(1), [normal(4, 4), normal(6, 4), index(6, 7)]),
    "_embedding_bag_backward padded": (
        bag_backward(1, 2), [normal(4, 4), normal(6, 4), torch.tensor([2, 1, 0, 2, 3, 4, 2])],
    ),
    "_amp_foreach_non_finite_check_and_unscale_": (
        unscale, [normal(3), normal(2, 2), torch.zeros(1), torch.full((1,), 0.25)],
    ),
    "_amp_foreach_non_finite_check_and_unscale_ overflown": (
        unscale, [torch.tensor([1.0, math.inf]), normal(2), torch.zeros(1), torch.full((1,), 0.5)],
    ),
    **{
        f"_amp_update_scale_ {label}": (
            update,
            [torch.full((1,), 8.0), torch.full((1,), steps, dtype=torch.int32),
             torch.full((1,), found)],
        )
        for label, steps, found in [("grows", 3, 0.0), ("stays", 1, 0.0), ("falls", 3, 1.0)]
    },
}  # fmt: skip
