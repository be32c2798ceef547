"""Reading and writing at places, sorting, counting."""

from __future__ import annotations

import torch

from tests.frontends.torch.lowering_cases.inputs import aten, half, index, mask, normal

CASES = {
    # name: (function, tensors)
    "embedding": (aten.embedding.default, [normal(7, 4), index(7, 2, 3)]),
    "embedding_dense_backward": (
        lambda g, i: aten.embedding_dense_backward.default(g, i, 7, 2, False),
        [normal(2, 3, 4), index(7, 2, 3)],
    ),
    "index_select": (
        lambda x, i: aten.index_select.default(x, 1, i), [normal(3, 5, 2), index(5, 4)],
    ),
    "index_add": (
        lambda x, i, y: aten.index_add.default(x, 1, i, y, alpha=2),
        [normal(3, 5), index(5, 4), normal(3, 4)],
    ),
    "index_copy": (
        lambda x, y: aten.index_copy.default(x, 0, torch.tensor([2, 0]), y),
        [normal(3, 5), normal(2, 5)],
    ),
    "index_add of a scalar": (
        lambda x, i, y: aten.index_add.default(x, 0, i, y), [normal(), index(1, 1), normal()],
    ),
    "index_add bf16": (
        lambda x, i, y: aten.index_add.default(x, 0, i, y),
        [half(5, 3), index(5, 4), half(4, 3)],
    ),
    "index_copy last dim": (
        lambda x, y: aten.index_copy.default(x, -1, torch.tensor([4, 1]), y),
        [normal(2, 3, 5), normal(2, 3, 2)],
    ),
    "index_fill": (
        lambda x, i: aten.index_fill.int_Scalar(x, 1, i, 2.5), [normal(3, 5, 2), index(5, 2)],
    ),
    "index_fill tensor": (
        lambda x, i, v: aten.index_fill.int_Tensor(x, 0, i, v),
        [normal(3, 5), index(3, 2), normal()],
    ),
    "index_reduce amax": (
        lambda x, i, y: aten.index_reduce.default(x, 1, i, y, "amax"),
        [normal(3, 5), index(5, 4), normal(3, 4)],
    ),
    "index_reduce prod of what comes": (
        lambda x, i, y: aten.index_reduce.default(x, 0, i, y, "prod", include_self=False),
        [normal(5, 3), index(5, 4), normal(4, 3)],
    ),
    "index_reduce mean": (
        lambda x, i, y: aten.index_reduce.default(x, 0, i, y, "mean"),
        [normal(5, 3), index(5, 4), normal(4, 3)],
    ),
    "gather": (lambda x, i: aten.gather.default(x, 1, i), [normal(3, 5), index(5, 2, 4)]),
    "gather of whole rows": (
        lambda x, i: aten.gather.default(x, 0, i[:, None].expand(-1, 5)),
        [normal(3, 5), index(3, 7)],
    ),
    "gather of parts of rows": (
        lambda x, i: aten.gather.default(x, 0, i[:, None].expand(-1, 4)),
        [normal(3, 5), index(3, 7)],
    ),
    "gather of whole columns, others repeated": (
        lambda x, i: aten.gather.default(x, 1, i[:, :, None].expand(-1, -1, 2)),
        [normal(3, 5, 2), index(5, 3, 4)],
    ),
    "scatter_add of whole rows": (
        lambda x, i, y: aten.scatter_add.default(x, 0, i[:, None].expand(-1, 5), y),
        [normal(3, 5), index(3, 7), normal(7, 5)],
    ),
    "scatter_add of parts of rows": (
        lambda x, i, y: aten.scatter_add.default(x, 0, i[:, None].expand(-1, 5), y),
        [normal(3, 5), index(3, 7), normal(9, 6)],
    ),
    "scatter of a number in whole columns": (
        lambda x, i: aten.scatter.value(x, 1, i.expand(3, -1), 2.5), [normal(3, 5), index(5, 4)],
    ),
    "elementwise of repeated numbers": (
        lambda i: aten.add.Tensor(i.expand(3, -1), i[:, None].expand(-1, 4)[:3]), [index(5, 4)],
    ),
    "scatter src": (
        lambda x, y: aten.scatter.src(x, 1, torch.tensor([[0, 2], [1, 3]]), y),
        [normal(3, 5), normal(3, 4)],
    ),
    "index by a mask": (
        lambda x, m: aten.index.Tensor(x, [None, m]), [normal(2, 3, 4, 5), mask(3, 4)],
    ),
    "masked_select": (aten.masked_select.default, [normal(3, 4, 5), mask(4, 5)]),
    "masked_select of a number": (aten.masked_select.default, [normal(5), mask(3, 5)]),
    "nonzero": (aten.nonzero.default, [mask(3, 4, 5)]),
    "nonzero of numbers": (aten.nonzero.default, [index(3, 7)]),
    "_unique2": (aten._unique2.default, [index(5, 3, 7)]),
    "_unique2 inverse and counts": (
        lambda x: aten._unique2.default(x, True, True, True), [index(5, 3, 7)],
    ),
    "_unique2 of few": (
        lambda x: aten._unique2.default(x, True, True, True), [normal(1)],
    ),
    "_unique2 of none": (lambda x: aten._unique2.default(x, True, True, True), [normal(0)]),
    "unique_consecutive": (aten.unique_consecutive.default, [index(2, 3, 7)]),
    "unique_consecutive inverse and counts": (
        lambda x: aten.unique_consecutive.default(x, True, True), [index(2, 3, 7)],
    ),
    "_jagged_to_padded_dense_forward": (
        lambda x, o: aten._jagged_to_padded_dense_forward.default(x, [o], [4], -1.0),
        [normal(7, 3), torch.tensor([0, 2, 2, 6, 7])],
    ),
    "_jagged_to_padded_dense_forward cut": (
        lambda x, o: aten._jagged_to_padded_dense_forward.default(x, [o], [2]),
        [half(7, 3), torch.tensor([0, 2, 2, 6, 7], dtype=torch.int32)],
    ),
    "_padded_dense_to_jagged_forward": (
        lambda x, o: aten._padded_dense_to_jagged_forward.default(x, [o], 7),
        [normal(4, 4, 3), torch.tensor([0, 2, 2, 6, 7])],
    ),
    "scatter value": (
        lambda x: aten.scatter.value(x, 1, torch.tensor([[0], [1]]), 3.0), [normal(3, 5)],
    ),
    "scatter_add": (
        lambda x, i, y: aten.scatter_add.default(x, 0, i, y),
        [normal(3, 5), index(3, 4, 5), normal(4, 5)],
    ),
    "scatter_reduce": (
        lambda x, i, y: aten.scatter_reduce.two(x, 0, i, y, "amax"),
        [normal(3, 5), index(3, 4, 5), normal(4, 5)],
    ),
    "scatter_reduce mean of what comes": (
        lambda x, i, y: aten.scatter_reduce.two(x, 0, i, y, "mean", include_self=False),
        [normal(3, 5), index(3, 4, 5), normal(4, 5)],
    ),
    "scatter_reduce amin of what comes": (
        lambda x, i, y: aten.scatter_reduce.two(x, 0, i, y, "amin", include_self=False),
        [normal(3, 5), index(3, 4, 5), normal(4, 5)],
    ),
    "scatter_add bf16": (  # whole numbers, as sums of others depend on their order
        lambda x, i, y: aten.scatter_add.default(x, 0, i, y),
        [half(3, 5).mul(4).round(), index(3, 4, 5), half(4, 5).mul(4).round()],
    ),
    "scatter of a scalar": (
        lambda x, y: aten.scatter.src(x, 0, torch.tensor([0]), y), [normal(), normal(1)],
    ),
    "index one": (lambda x, i: aten.index.Tensor(x, [i]), [normal(5, 3), index(5, 2, 2) - 5]),
    "index middle": (
        lambda x, i: aten.index.Tensor(x, [None, i]), [normal(2, 5, 3), index(5, 4)],
    ),
    "index two neighbours": (
        lambda x, i, j: aten.index.Tensor(x, [None, i, j]),
        [normal(2, 5, 3, 2), index(5, 4, 1), index(3, 2)],
    ),
    "index two apart": (
        lambda x, i, j: aten.index.Tensor(x, [i, None, j]),
        [normal(2, 5, 3), index(2, 4), index(3, 4)],
    ),
    "index_put": (
        lambda x, y: aten.index_put.default(x, [torch.tensor([2, 0])], y),
        [normal(3, 5), normal(5)],
    ),
    "index_put accumulate": (
        lambda x, i, y: aten.index_put.default(x, [None, i], y, True),
        [normal(3, 5), index(5, 7), normal(3, 7)],
    ),
    "index_put by a mask": (
        lambda x, m: aten.index_put.default(x, [m], torch.tensor(2.0)), [normal(3, 5), mask(3, 5)],
    ),
    "index_put two apart": (
        lambda x, i, j, y: aten.index_put.default(x, [i, None, j], y),
        [normal(4, 5, 3), torch.tensor([2, 0]), torch.tensor([1, 1]), normal(2, 5)],
    ),
    "index_put two neighbours": (
        lambda x, i, j, y: aten.index_put.default(x, [None, i, j], y),
        [normal(2, 5, 3), torch.tensor([[2], [0]]), torch.tensor([1, -1]), normal(2, 2)],
    ),
    "index_put middle": (
        lambda x, y: aten.index_put.default(x, [None, torch.tensor([3, 0])], y),
        [normal(2, 5, 3), normal(2, 2, 3)],
    ),
    "index_put bf16 accumulate": (
        lambda x, i, y: aten.index_put.default(x, [i], y, True),
        [half(5, 3), index(5, 4), half(4, 3)],
    ),
    "index_put of rows by a mask": (
        lambda x, y: aten.index_put.default(
            x, [None, torch.tensor([[True, False, True], [False, True, False]])], y
        ),
        [normal(2, 2, 3, 4), normal(2, 3, 4)],
    ),
    "index_put of one row by a mask": (
        lambda x, m, y: aten.index_put.default(x, [m], y, True),
        [normal(3, 5, 2), mask(3, 5), normal(2)],
    ),
    "masked_scatter": (
        lambda x, m, y: aten.masked_scatter.default(x, m, y),
        [normal(3, 4), mask(4), normal(5, 4)],
    ),
    "sort": (lambda x: aten.sort.default(x, 0, True), [normal(6, 3)]),
    "sort stable": (lambda x: aten.sort.stable(x, stable=True), [index(3, 9)]),
    "argsort": (aten.argsort.default, [normal(6)]),
    "topk": (lambda x: aten.topk.default(x, 2), [normal(4, 6)]),
    "topk bf16": (lambda x: aten.topk.default(x, 2)[0], [half(4, 6)]),
    "topk of ints": (lambda x: aten.topk.default(x, 2)[0], [index(99, 4, 6)]),
    "topk smallest": (lambda x: aten.topk.default(x, 2, 0, False), [normal(6, 2)]),
    "bincount": (lambda x: aten.bincount.default(x, None, 7), [index(7, 20)]),
    "histc": (lambda x: aten.histc.default(x, 4, 0, 4), [index(4, 20).float()]),
    "searchsorted": (
        aten.searchsorted.Tensor, [torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 2.0, 5.0])],
    ),
    "_unsafe_index": (
        lambda x, i: aten._unsafe_index.Tensor(x, [None, i]), [normal(2, 5, 3), index(5, 4)],
    ),
    "_unsafe_index_put": (
        lambda x, i, y: aten._unsafe_index_put.default(x, [i], y, True),
        [normal(5, 3), index(5, 4), normal(4, 3)],
    ),
    "_index_put_impl_": (
        lambda x, i, y: aten._index_put_impl_.default(x, [i], y, True),
        [normal(5, 3), index(5, 4), normal(4, 3)],
    ),
    "bucketize": (
        lambda x, edges: aten.bucketize.Tensor(x, edges),
        [normal(3, 4), torch.tensor([-1.0, 0.0, 0.5])],
    ),
}  # fmt: skip
