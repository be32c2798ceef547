"""Attention that one side has a kernel for and the other composes, by hand-made ops of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.converters.profilers.torch_ops import op_facts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.composed_attention import COMPOSED, WRITTEN
from flint.validation.rewrites.table import match


def ops(*named):
    """Ops by name and the shapes of their tensors."""
    return [
        op_facts(f"aten::{name}", [[(shape, "f32")] for shape in shapes]) for name, *shapes in named
    ]


def compared(captured, executed):
    return match(Matching(captured, executed, rules_for(executed, recorded=True, backend="cpu")))


def is_whole(matching):
    return not matching.unmatched_captured and not matching.unmatched_executed


#: 2 x 4 heads, 5 queries of 8 and 7 keys: 8 products of each kind.
QUERIES, KEYS = (2, 4, 5, 8), (2, 4, 7, 8)
ATTENTION = replace(
    op_facts(
        "aten::_scaled_dot_product_efficient_attention_backward",
        [[(shape, "f32")] for shape in (QUERIES, QUERIES, KEYS, KEYS, QUERIES)],
    ),
    gemms=((8, 5, 7, 8), (8, 5, 8, 7)),  # as captures name them: forward
)
#: The gradients of the weights, values, queries and keys, and what is between them.
PARTS = (
    ("bmm", (8, 5, 8), (8, 8, 7)),
    ("bmm", (8, 7, 5), (8, 5, 8)),
    ("mul", (2, 4, 5, 7), (2, 4, 5, 7)),
    ("_softmax_backward_data", (2, 4, 5, 7), (2, 4, 5, 7)),
    ("bmm", (8, 5, 7), (8, 7, 8)),
    ("bmm", (8, 8, 5), (8, 5, 7)),
    ("mul", (2, 4, 8, 7)),
    ("mul", (2, 4, 5, 8)),
)


def test_the_gradient_of_attention_may_run_as_its_products():
    matching = compared([ATTENTION], ops(*PARTS))
    assert is_whole(matching) and matching.explained[COMPOSED] == 1 + 4
    assert [j for _, j, _ in matching.pairs] == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("rows", "keys", "products"),
    [
        (8, 8, ((8, 8, 8, 8),)),  # all products look alike
        (8, 7, ((8, 8, 7, 8), (8, 7, 8, 8), (8, 8, 8, 7))),  # one of rows with themselves
    ],
)
def test_sizes_of_a_gradient_of_attention_may_be_equal(rows, keys, products):
    """Products of the same sizes are one item of a captured kernel."""
    queries, values = (2, 4, rows, 8), (2, 4, keys, 8)
    name = "aten::_scaled_dot_product_efficient_attention_backward"
    tensors = [[(shape, "f32")] for shape in (queries, queries, values, values, queries)]
    captured = replace(op_facts(name, tensors), gemms=products)
    scores = 2, 4, rows, keys
    parts = ops(
        ("bmm", (8, rows, 8), (8, 8, keys)), ("bmm", (8, keys, rows), (8, rows, 8)),
        ("mul", scores, scores), ("_softmax_backward_data", scores, scores),
        ("bmm", (8, rows, keys), (8, keys, 8)), ("bmm", (8, 8, rows), (8, rows, keys)),
        ("mul", (2, 4, 8, keys)), ("mul", queries),
    )  # fmt: skip
    matching = compared([captured], parts)
    assert is_whole(matching) and matching.explained[COMPOSED] == 1 + 4


#: 2 x 4 heads of 6 numbers, 24 bytes: no kernel of an accelerator takes them.
UNALIGNED = (2, 4, 5, 6)
FORWARD_PARTS = (
    ("mul", UNALIGNED),
    ("mul", (2, 4, 6, 5)),
    ("bmm", (8, 5, 6), (8, 6, 5)),
    ("_safe_softmax", (2, 4, 5, 5)),
    ("bmm", (8, 5, 5), (8, 5, 6)),
)
BACKWARD_PARTS = (
    ("bmm", (8, 5, 5), (8, 5, 6)),
    ("bmm", (8, 5, 6), (8, 6, 5)),
    ("_softmax_backward_data", (2, 4, 5, 5), (2, 4, 5, 5)),
    ("bmm", (8, 6, 5), (8, 5, 5)),
    ("bmm", (8, 5, 5), (8, 5, 6)),
    ("mul", UNALIGNED),
    ("mul", (2, 4, 6, 5)),
)


@pytest.mark.parametrize(
    ("parts", "name", "tensors", "products"),
    [
        (FORWARD_PARTS, "", 3, 2),
        (BACKWARD_PARTS, "_backward", 5, 4),
    ],
)
def test_the_cpu_may_have_a_kernel_for_attention_that_was_captured_as_its_parts(
    parts, name, tensors, products
):
    kernel = ops((f"_scaled_dot_product_flash_attention_for_cpu{name}", *[UNALIGNED] * tensors))
    matching = compared(ops(*parts), kernel)
    assert is_whole(matching) and len(matching.pairs) == products
    # The two scaled tensors and the softmax, and the kernel itself.
    assert matching.explained[WRITTEN] == 3 + 1


def test_a_kernel_for_attention_of_another_size_is_no_partner_of_the_parts():
    kernel = ops(("_scaled_dot_product_flash_attention_for_cpu", *[(2, 4, 7, 6)] * 3))
    assert compared(ops(*FORWARD_PARTS), kernel).unmatched_executed


def test_fewer_products_are_no_gradient_of_attention():
    matching = compared([ATTENTION], ops(*PARTS[1:]))
    assert list(matching.unmatched_captured) == [0]


#: 2 x 4 heads of 8 numbers in two groups, causal: 5 queries and as many keys.
GROUPED, REPEATED = (2, 2, 5, 8), (2, 2, 2, 5, 8)
GROUPED_FORWARD = (
    ("tril", (5, 5)), ("where", (5, 5)),
    ("clone", REPEATED), ("clone", REPEATED),
    ("mul", QUERIES), ("mul", (2, 4, 8, 5)), ("bmm", (8, 5, 8), (8, 8, 5)),
    ("add", (2, 4, 5, 5), (5, 5)), ("_safe_softmax", (2, 4, 5, 5)),
    ("bmm", (8, 5, 5), (8, 5, 8)),
)  # fmt: skip
GROUPED_BACKWARD = (
    ("bmm", (8, 5, 5), (8, 5, 8)), ("bmm", (8, 5, 8), (8, 8, 5)),
    ("_softmax_backward_data", (2, 4, 5, 5), (2, 4, 5, 5)),
    ("bmm", (8, 8, 5), (8, 5, 5)), ("bmm", (8, 5, 5), (8, 5, 8)),
    ("mul", QUERIES), ("mul", (2, 4, 8, 5)), ("sum", REPEATED), ("sum", REPEATED),
)  # fmt: skip


@pytest.mark.parametrize("backward", [False, True])
def test_parts_of_causal_attention_with_grouped_heads_may_run_as_a_kernel(backward):
    """The model's own sum of two tensors like the queries, of rotary embeddings, is not a part."""
    own = ("add", QUERIES, QUERIES)
    kernel = "_scaled_dot_product_flash_attention_for_cpu" + "_backward" * backward
    tensors = (*[QUERIES] * backward, QUERIES, GROUPED, GROUPED, *[QUERIES] * backward)
    parts = GROUPED_BACKWARD if backward else GROUPED_FORWARD
    matching = compared(ops(*parts, own), ops((kernel, *tensors), own))
    assert is_whole(matching)
    assert [j for _, j, _ in matching.pairs].count(1) == 1
