"""Steps of a capture and of a trace that begin at different places of the same loop."""

from __future__ import annotations

import pytest

from flint.converters.profilers.torch_ops import op_facts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.turning import turned_by


def ops(*sizes):
    """Products of these sizes, and 0 for a light op."""
    return [
        op_facts("aten::relu", [[((8,), "f32")]])
        if not size
        else op_facts("aten::mm", [[((size, 8), "f32")], [((8, 4), "f32")]])
        for size in sizes
    ]


@pytest.mark.parametrize(
    ("captured", "executed", "first"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4), 0),
        ((4, 1, 2, 3), (1, 2, 3, 4), 3),  # the last one comes first
        ((4, 1, 2, 3), (1, 0, 2, 0, 3, 0, 4), 6),  # light ops do not count
        ((2, 3, 4, 1), (1, 2, 3, 4), 0),  # most of the step
        ((1, 2, 3, 4), (1, 2, 3, 5), 0),
        ((4, 3, 2, 1), (1, 2, 3, 4), 0),  # another order
        ((4, 1, 2, 3), (1, 2, 3, 4, 4), 0),  # one more
    ],
)
def test_a_step_is_turned_only_if_all_heavy_ops_agree_then(captured, executed, first):
    rules = rules_for(ops(*executed), recorded=True, backend="cpu")
    assert turned_by(ops(*captured), ops(*executed), rules) == first
