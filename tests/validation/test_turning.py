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
        ((4, 1, 2, 3), (1, 2, 3, 4, 4), 4),  # one more
        ((4, 1, 2, 9, 3), (1, 2, 8, 3, 4), 4),  # one in another form
    ],
)
def test_a_step_is_turned_if_more_heavy_ops_agree_then(captured, executed, first):
    rules = rules_for(ops(*executed), recorded=True, backend="cpu")
    assert turned_by(ops(*captured), ops(*executed), rules) == first


def named(*names):
    """Light ops of these names, and products of these sizes."""
    return [
        ops(name)[0] if isinstance(name, int) else op_facts(f"aten::{name}", [[((8,), "f32")]])
        for name in names
    ]


@pytest.mark.parametrize(
    ("captured", "executed", "first"),
    [
        # An average of the weights after the update.
        (("lerp", "lerp", 1, 2, "add"), (1, 2, "add", "lerp", "lerp"), 3),
        # The same before a heavy op that moves.
        (("lerp", 4, 1, 2, 3, "add"), (1, 2, 3, "add", "lerp", 4), 4),
        # Others between them, such as of numbers on the host.
        (("lerp", "lerp", 1, "add"), (1, "add", "lerp", "mul", "lerp"), 2),
        # The trace's step begins with them, too.
        (("lerp", 1, "add", "lerp"), ("lerp", 1, "add", "lerp"), 0),
        # Nothing of the kind at the end.
        (("lerp", 1, "add"), (1, "add"), 0),
        # The update's own, far from the end.
        (("lerp", 1), (1, "lerp", *["add"] * 8), 0),
    ],
)
def test_light_ops_after_the_update_move_with_the_step(captured, executed, first):
    rules = rules_for(named(*executed), recorded=True, backend="cpu")
    assert turned_by(named(*captured), named(*executed), rules) == first
