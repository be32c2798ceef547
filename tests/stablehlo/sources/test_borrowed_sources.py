"""Nodes without a line take that of what they are made for."""

from __future__ import annotations

import re

import pytest

from flint.graph.graph import NodeKind, Source
from tests.stablehlo.helpers import walked

TEXT = """
module @step {
  func.func @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>, tensor<8xf32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %start = stablehlo.constant dense<0> : tensor<i32>
    %never = stablehlo.constant dense<5.0> : tensor<f32>
    %a = stablehlo.maximum %x, %zeros : tensor<8xf32> loc("relu"("net.py":7:1))
    %b = stablehlo.add %a, %zeros : tensor<8xf32> loc("sum"("net.py":9:1))
    %last = stablehlo.negate %b : tensor<8xf32>
    %l:2 = stablehlo.while(%i = %start, %y = %last) : tensor<i32>, tensor<8xf32>
      cond {
        %n = stablehlo.constant dense<3> : tensor<i32>
        %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        %z = stablehlo.exponential %y : tensor<8xf32> loc("exp"("net.py":14:1))
        %w = stablehlo.negate %z : tensor<8xf32>
        stablehlo.return %next, %w : tensor<i32>, tensor<8xf32>
      } loc("jit(step)/jvp(net)/while"("net.py":12:1))
    return %l#1, %never, %b : tensor<8xf32>, tensor<f32>, tensor<8xf32>
  }
}
"""


def unplaced(text):
    """Text in which ops without a place have none; by default it would be their line here."""
    placed = re.compile(r"loc\(|stablehlo\.while")
    return "\n".join(
        f"{line} loc(unknown)" if "stablehlo." in line and not placed.search(line) else line
        for line in text.splitlines()
    )


@pytest.fixture(scope="module")
def graph():
    return walked(unplaced(TEXT)).graph


def lines(graph):
    return {(node.op, node.source.line) for node in graph}


def test_a_value_takes_the_line_of_its_first_user_through_those_that_have_none(graph):
    """The zero is broadcast for line 7 first; line 9 comes later."""
    assert {line for op, line in lines(graph) if op == "broadcast_in_dim"} == {7}
    constants = [node.source.line for node in graph if node.op == "constant"]
    assert constants.count(7) == 1


def test_what_a_loop_takes_is_the_loops(graph):
    assert ("negate", 12) in lines(graph)
    assert [node.source.line for node in graph if node.op == "constant"].count(12) == 1


def test_in_a_body_what_only_the_next_iteration_uses_has_its_operands_line_or_the_loops(graph):
    (loop,) = (node for node in graph if node.kind == NodeKind.LOOP)
    found = lines(loop.loop.body)
    assert ("negate", 14) in found
    assert {line for op, line in found if op in ("add", "constant")} == {12}


def test_what_is_only_returned_and_made_from_nothing_has_no_line(graph):
    unknown = [node for node in graph if not node.source.file]
    assert [node.op for node in unknown] == ["constant"]


def test_layer_and_phase_come_with_the_line(graph):
    (loop,) = (node for node in graph if node.kind == NodeKind.LOOP)
    for node in loop.loop.body:
        if node.op == "add":
            assert node.source == loop.source


def test_without_any_line_nothing_is_invented():
    text = re.sub(r'loc\(".*', "loc(unknown)", unplaced(TEXT))
    found = walked(text).graph
    assert {node.source for block, _ in found.walk() for node in block} == {Source()}
