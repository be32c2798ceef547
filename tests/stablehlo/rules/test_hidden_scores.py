"""Kernels of attention: scores that a mask hides by position are not computed."""

from __future__ import annotations

import pytest

from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text
from flint.stablehlo.walker import walk
from tests.stablehlo.helpers import walked

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


INDEX, SEEN = S.replace("xf32", "xi32"), S.replace("xf32", "xi1")
DOT = 2 * HEADS * QUERIES * KEYS * SIZE
#: Of 6 x 4 scores, those of keys 0 to i.
CAUSAL = 1 + 2 + 3 + 4 + 4 + 4


def kernel(body: str, result: str, inputs: str = f"%q: {Q}, %k: {K}") -> str:
    """A kernel of ops of one type each, ``name = op operands : type``, with positions at hand."""
    types = ", ".join(part.split(": ")[1] for part in inputs.split(", "))
    given = inputs.replace(":", "").split()[::2]
    kind = {"%q": Q, "%k": K}.get(result, S)
    return f"""
module {{
  func.func @main({inputs}) -> {kind} {{
    %r = stablehlo.composite "my.flash" {", ".join(given)} {{decomposition = @f}}
      : ({types}) -> {kind}
    return %r : {kind}
  }}
  func.func private @f({inputs}) -> {kind} {{
    %h = stablehlo.iota dim = 0 : {INDEX}
    %i = stablehlo.iota dim = 1 : {INDEX}
    %j = stablehlo.iota dim = 2 : {INDEX}
    %two = stablehlo.constant dense<2> : {INDEX}
    %seen = stablehlo.compare GE, %i, %j : ({INDEX}, {INDEX}) -> {SEEN}
    %low = stablehlo.constant dense<0xFF800000> : {S}
    {body}
    return %out : {kind}
  }}
}}
"""


def product(name: str, left: str = "%q", right: str = "%k") -> str:
    return f"""{name} = stablehlo.dot_general {left}, {right}, batching_dims = [0] x [0],
      contracting_dims = [2] x [2] : ({Q}, {K}) -> {S}"""


def select(name: str, mask: str, chosen: str, other: str) -> str:
    return f"{name} = stablehlo.select {mask}, {chosen}, {other} : {SEEN}, {S}"


def exponential(name: str, of: str) -> str:
    return f"{name} = stablehlo.exponential {of} : {S}"


def both(name: str, op: str, left: str, right: str) -> str:
    return f"{name} = stablehlo.{op} {left}, {right} : {S}"


def matmul_flops(text: str) -> int:
    [node] = walked(text).graph
    return sum(item.flops for item in node.work.items if item.dims)


def test_a_prefix_that_everybody_sees_is_computed() -> None:
    """The scores that one select hides are chosen by another: none is left out."""
    body = [
        product("%s", "%q", "%k"),
        f"%first = stablehlo.compare LT, %j, %two : ({INDEX}, {INDEX}) -> {SEEN}",
        select("%causal", "%seen", "%s", "%low"),
        select("%prefix", "%first", "%s", "%causal"),
        exponential("%out", "%prefix"),
    ]
    text = kernel("\n".join(body), "%out")
    assert matmul_flops(text) == DOT
    [node] = walked(text).graph
    assert node.work.transcendentals == HEADS * QUERIES * KEYS


def test_of_two_products_of_one_size_the_masked_one_is_left_out() -> None:
    body = [
        product("%s"),
        product("%other", "%q", "%k"),
        select("%causal", "%seen", "%s", "%low"),
        exponential("%e", "%causal"),
        exponential("%f", "%other"),
        both("%out", "add", "%e", "%f"),
    ]
    text = kernel("\n".join(body), "%out")
    assert matmul_flops(text) == DOT + DOT * CAUSAL // (QUERIES * KEYS)
    [node] = walked(text).graph
    assert node.work.transcendentals == HEADS * (QUERIES * KEYS + CAUSAL)


def test_a_mask_among_heads_is_none_of_queries_and_keys() -> None:
    """No kernel leaves out keys by head."""
    body = [
        product("%s"),
        f"%heads = stablehlo.compare GE, %h, %j : ({INDEX}, {INDEX}) -> {SEEN}",
        select("%masked", "%heads", "%s", "%low"),
        exponential("%out", "%masked"),
    ]
    assert matmul_flops(kernel("\n".join(body), "%out")) == DOT


def test_scores_that_are_a_result_are_computed() -> None:
    body = [
        product("%out"),
        select("%causal", "%seen", "%out", "%low"),
        exponential("%e", "%causal"),
    ]
    assert matmul_flops(kernel("\n".join(body), "%out")) == DOT


def test_the_backward_pass_leaves_out_what_the_probabilities_hide() -> None:
    """Q K^T again, dP and dQ: dP is needed only where it meets a probability that is not 0."""
    body = [
        product("%s"),
        select("%causal", "%seen", "%s", "%low"),
        exponential("%p", "%causal"),
        product("%dp", "%g", "%k"),
        both("%shifted", "subtract", "%dp", "%two_"),
        both("%ds", "multiply", "%p", "%shifted"),
        f"%dq = stablehlo.dot_general %ds, %k, batching_dims = [0] x [0],"
        f" contracting_dims = [2] x [1] : ({S}, {K}) -> {Q}",
        product("%out", "%dq", "%k"),
    ]
    body.insert(0, f"%two_ = stablehlo.constant dense<2.0> : {S}")
    text = kernel("\n".join(body), "%out", f"%q: {Q}, %k: {K}, %g: {Q}")
    visible = DOT * CAUSAL // (QUERIES * KEYS)
    assert matmul_flops(text) == 3 * visible + DOT


@pytest.mark.parametrize("size", [SIZE, KEYS])
def test_what_is_as_large_as_scores_but_none_is_computed(size: int) -> None:
    """Queries of as many elements as there are keys are scaled in full."""
    q, k = f"tensor<{HEADS}x{QUERIES}x{size}xf32>", f"tensor<{HEADS}x{KEYS}x{size}xf32>"
    text = attention("GE").replace(Q, q).replace(K, k)
    text = text.replace(
        "%scores = stablehlo.dot_general %q",
        f"""%t = stablehlo.tanh %q : {q}
    %scores = stablehlo.dot_general %t""",
    )
    [node] = walked(text).graph
    assert node.work.transcendentals == HEADS * (QUERIES * size + CAUSAL)


def test_a_fusion_of_a_backend_computes_what_it_says() -> None:
    """XLA's GEMM fusions take a mask in and compute every score."""
    text = f"""
HloModule m
f {{
  q = f32[{HEADS},{QUERIES},{SIZE}] parameter(0)
  k = f32[{HEADS},{KEYS},{SIZE}] parameter(1)
  s = f32[{HEADS},{QUERIES},{KEYS}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  i = s32[{HEADS},{QUERIES},{KEYS}] iota(), iota_dimension=1
  j = s32[{HEADS},{QUERIES},{KEYS}] iota(), iota_dimension=2
  seen = pred[{HEADS},{QUERIES},{KEYS}] compare(i, j), direction=GE
  c = f32[] constant(-inf)
  low = f32[{HEADS},{QUERIES},{KEYS}] broadcast(c), dimensions={{}}
  masked = f32[{HEADS},{QUERIES},{KEYS}] select(seen, s, low)
  ROOT e = f32[{HEADS},{QUERIES},{KEYS}] exponential(masked)
}}
ENTRY main {{
  q = f32[{HEADS},{QUERIES},{SIZE}] parameter(0)
  k = f32[{HEADS},{KEYS},{SIZE}] parameter(1)
  ROOT r = f32[{HEADS},{QUERIES},{KEYS}] fusion(q, k), kind=kCustom, calls=f
}}
"""
    [node] = walk(read_hlo(proto_of_text(text.encode(), "m.hlo"), "m.hlo")).graph
    assert sum(item.flops for item in node.work.items if item.dims) == DOT
    assert node.work.transcendentals == HEADS * QUERIES * KEYS


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
