"""Kernels of attention: scores that a mask hides by position are not computed."""

from __future__ import annotations

import pytest

from tests.walker.helpers import walked

HEADS, QUERIES, KEYS, SIZE = 3, 6, 4, 8
Q, K = f"tensor<{HEADS}x{QUERIES}x{SIZE}xf32>", f"tensor<{HEADS}x{KEYS}x{SIZE}xf32>"
S = f"tensor<{HEADS}x{QUERIES}x{KEYS}xf32>"


def attention(
    direction: str, chosen: str = "%scores, %low", low: str = "0xFF800000", rows: int = 1
) -> str:
    """Scores, mask, exponential, weighted sum of the keys, as one kernel."""
    index, mask = f"tensor<{HEADS}x{QUERIES}x{KEYS}xi32>", f"tensor<{HEADS}x{QUERIES}x{KEYS}xi1>"
    return f"""
module {{
  func.func @main(%q: {Q}, %k: {K}) -> {Q} {{
    %r = stablehlo.composite "my.flash" %q, %k {{decomposition = @f}} : ({Q}, {K}) -> {Q}
    return %r : {Q}
  }}
  func.func private @f(%q: {Q}, %k: {K}) -> {Q} {{
    %scores = stablehlo.dot_general %q, %k, batching_dims = [0] x [0],
      contracting_dims = [2] x [2] : ({Q}, {K}) -> {S}
    %i = stablehlo.iota dim = {rows} : {index}
    %j = stablehlo.iota dim = 2 : {index}
    %seen = stablehlo.compare {direction}, %i, %j : ({index}, {index}) -> {mask}
    %c = stablehlo.constant dense<{low}> : tensor<f32>
    %low = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> {S}
    %masked = stablehlo.select %seen, {chosen} : {mask}, {S}
    %e = stablehlo.exponential %masked : {S}
    %o = stablehlo.dot_general %e, %k, batching_dims = [0] x [0],
      contracting_dims = [2] x [1] : ({S}, {K}) -> {Q}
    return %o : {Q}
  }}
}}
"""


# Of each head's 6 x 4 scores, row by row i = 0 .. 5: columns j = 0 .. 3 for which it holds.
@pytest.mark.parametrize(
    ("direction", "seen"),
    [
        ("GE", 1 + 2 + 3 + 4 + 4 + 4),
        ("GT", 0 + 1 + 2 + 3 + 4 + 4),
        ("LE", 4 + 3 + 2 + 1 + 0 + 0),
        ("LT", 3 + 2 + 1 + 0 + 0 + 0),
    ],
)
def test_what_a_mask_by_position_leaves_is_counted(direction: str, seen: int) -> None:
    [node] = walked(attention(direction)).graph
    # Two products of 2 FLOPs per multiply-add, one exponential per score.
    assert sum(i.flops for i in node.work.items if i.dims) == 2 * 2 * HEADS * seen * SIZE
    assert node.work.transcendentals == HEADS * seen


def test_a_mask_may_say_what_is_hidden() -> None:
    """j > i hidden is i >= j seen."""
    [node] = walked(attention("LT", chosen="%low, %scores")).graph
    assert node.work.transcendentals == HEADS * (1 + 2 + 3 + 4 + 4 + 4)


@pytest.mark.parametrize(
    "text",
    [
        attention("GE", low="0.0"),  # such scores count in the sum
        attention("NE"),
        attention("GE", rows=2),  # everything is seen
        attention("LT", rows=2),  # nothing is: no such kernel runs
    ],
    ids=["zeros", "another comparison", "all seen", "none seen"],
)
def test_every_other_score_is_computed(text: str) -> None:
    [node] = walked(text).graph
    assert node.work.transcendentals == HEADS * QUERIES * KEYS
