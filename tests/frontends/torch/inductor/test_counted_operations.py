"""Operations of generated kernels, against counts by hand of the sources that Inductor writes."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.frontends.torch.in_child import in_child, record_in_child


def work_of(function, *sizes, train=False, dtype=torch.float32):
    """(operations, special functions) of each kernel in its order."""

    def setup(mesh):
        tensors = [
            torch.empty(size, dtype=dtype, device="cuda", requires_grad=train) for size in sizes
        ]
        made = function().cuda() if isinstance(function, type) else function
        return torch.compile(made), tensors, torch.empty(sizes[0], dtype=dtype, device="cuda")

    def run(compiled, tensors, gradient):
        made = compiled(*tensors)
        if train:
            made.backward(gradient)

    found = record_in_child(run, setup, (1,), ("dp",), compile_for="h100-sxm")
    works = [json.loads(op.args[2]) for op in found.ops if op.name.startswith("inductor")]
    return [(work["flops"], work["transcendentals"]) for work in works], works


ROWS, COLUMNS = 512, 256
ELEMENTS = ROWS * COLUMNS


class Normalised(nn.LayerNorm):
    def __init__(self):
        super().__init__(COLUMNS)


def test_a_layer_norm_computes_what_is_shared_once_and_what_is_a_rows_once_per_row():
    """Forward, an element: a sum; a difference from the mean, its square, a sum; (x - mean), times
    the root, times the weight, plus the bias: 8.  A row: two divisions, plus epsilon; a root.

    Gradients of weight and bias, an element: (x - mean) times the root, times the gradient, and two
    sums: 5; then, of 4 parts of the rows, a sum each for the 256 columns.

    Gradient of x, an element: g = gradient times weight, its sum; n = (x - mean) times the root,
    g times n, its sum; 256 g, minus the first sum, n times the second, minus it, times the row's
    factor: 11.  A row: the factor, a division.
    """
    found, works = work_of(Normalised, (ROWS, COLUMNS), train=True)
    assert found == [
        (8 * ELEMENTS + 3 * ROWS, ROWS),
        (5 * ELEMENTS, 0),
        *[(4 * COLUMNS, 0)] * 2,
        (11 * ELEMENTS + ROWS, 0),
    ]
    # Forward reads x, weight and bias; that the root takes the variance's place is no read.
    assert sorted(works[0]["read"]) == [4 * COLUMNS, 4 * COLUMNS, 4 * ELEMENTS]


LONG = 65536


@pytest.mark.thorough
def test_a_softmax_that_does_not_fit_in_a_block_scales_its_sum_for_each_element():
    """``online_softmax_combine``: the new maximum; of both scales, a difference, a selection and an
    exponential, and whether the maximum is infinite; the sum, times its scale, plus the other: 8
    and 2.  Then, of each element, a difference, an exponential and a division.  The rows are few,
    so that each is divided into parts, which one more kernel joins.
    """
    found, _ = work_of(lambda x: x.softmax(-1), (64, LONG))
    plain, special = (sum(column) for column in zip(*found, strict=True))
    assert special == pytest.approx(3 * 64 * LONG, rel=0.01)
    assert plain == pytest.approx(10 * 64 * LONG, rel=0.01)


def test_a_softmax_that_fits_in_a_block_is_two_reductions():
    """An element: the maximum, a difference, an exponential, a sum; a difference and an exponential
    again, in the other type of block that its source has, and a division.
    """
    ((plain, special),), _ = work_of(lambda x: x.softmax(-1), (ROWS, COLUMNS))
    assert (plain, special) == (5 * ELEMENTS, 2 * ELEMENTS)


def test_a_scan_computes_what_joins_two_values_and_a_sort_compares_pairs():
    """``logcumsumexp`` joins two: their minimum and maximum, whether they differ, whether the first
    is infinite, not, or; a difference, an exponential, a logarithm, a sum, a selection: 9 and 2.
    A bitonic sort of 2**8 has 36 rounds of 128 pairs, 18 an element; and an addition.
    """
    ((plain, special),), _ = work_of(lambda x: x.logcumsumexp(1), (ROWS, COLUMNS))
    assert (plain, special) == (9 * ELEMENTS, 2 * ELEMENTS)
    ((plain, special),), _ = work_of(lambda x: x.sort(1)[0] + 1, (ROWS, COLUMNS))
    assert (plain, special) == (19 * ELEMENTS, 0)


def test_what_is_added_to_chosen_rows_is_added_and_addresses_are_not_counted():
    """An element: twice it, its row's number as an integer, and a sum with the chosen row."""

    def added(x, numbers):
        return torch.zeros_like(x).index_put((numbers.long(),), x * 2, accumulate=True)

    (_, found), _ = work_of(added, (ROWS, COLUMNS), (ROWS,))
    assert found == (3 * ELEMENTS, 0)


COUNTED = {
    "many sums": lambda x: (x.sum(), x.amax(0), x.var()),
    "places": lambda x: (x.index_put((x[:, 0].long(),), x, accumulate=True), x.roll(1, 0)),
    "scans": lambda x: (x.cumsum(1), x.sort(1)[0] + 1, x.topk(3)[0]),
}


def counted(functions):
    """Kernels that Inductor says it has made, and kernels of the recording, of each function."""
    from torch._inductor import metrics

    from flint.frontends.torch.session import record

    made = []

    def step(x):
        for function in functions:
            torch._dynamo.reset()
            before = metrics.generated_kernel_count
            torch.compile(function)(x)
            made.append(metrics.generated_kernel_count - before)

    given = lambda mesh: (torch.empty(ROWS, COLUMNS, device="cuda"),)  # noqa: E731
    found = record(step, given, (1,), ("dp",), 0, compile_for="h100-sxm")
    return made, sum(op.name.startswith("inductor") for op in found.ops)


def test_there_are_as_many_kernels_as_inductor_has_made():
    made, found = in_child(counted, list(COUNTED.values()))
    assert all(made) and found == sum(made[-len(COUNTED) :])
