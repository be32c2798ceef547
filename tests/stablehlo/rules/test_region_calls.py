"""Functions that a region calls count per application, as XLA counts them."""

import pytest

from flint.errors import FlintError
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.rules import work_of
from tests.stablehlo.rules.xla_cost import xla_cost

#: As jax 0.4 wrote ``cumlogsumexp``, with one more call inside the called function.
TEXT = """module {
  func.func @main(%0: tensor<8x9xf32>, %1: tensor<f32>) -> tensor<8x9xf32> {
    %r = "stablehlo.reduce_window"(%0, %1) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = func.call @both(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        %d = func.call @soft(%c) : (tensor<f32>) -> tensor<f32>
        stablehlo.return %d : tensor<f32>
    }) {window_dimensions = array<i64: 8, 1>, padding = dense<[[7, 0], [0, 0]]> : tensor<2x2xi64>}
      : (tensor<8x9xf32>, tensor<f32>) -> tensor<8x9xf32>
    return %r : tensor<8x9xf32>
  }
  func.func private @both(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %m = stablehlo.maximum %a, %b : tensor<f32>
    %s = stablehlo.subtract %a, %b : tensor<f32>
    %t = func.call @soft(%s) : (tensor<f32>) -> tensor<f32>
    %u = stablehlo.add %m, %t : tensor<f32>
    return %u : tensor<f32>
  }
  func.func private @soft(%a: tensor<f32>) -> tensor<f32> {
    %n = stablehlo.negate %a : tensor<f32>
    %e = stablehlo.exponential %n : tensor<f32>
    return %e : tensor<f32>
  }
}"""


def _window(text):
    module = read_mlir(text.encode())
    [op] = module.functions["main"].ops
    types = [[module.type_of(value) for value in values] for values in (op.operands, op.results)]
    return work_of(op, *types)


def test_a_function_that_a_region_calls_is_counted() -> None:
    work = _window(TEXT)
    theirs = xla_cost(TEXT)
    # 72 results, 7 applications each, of 3 ops of both and 2 x (negate, exponential) of soft
    assert work.flops == theirs.flops == 72 * 7 * 5
    assert work.transcendentals == theirs.transcendentals == 72 * 7 * 2


def test_values_of_two_calls_are_apart() -> None:
    module = read_mlir(TEXT.encode())
    [op] = module.functions["main"].ops
    results = [value for inner in op.regions[0].ops for value in inner.results]
    assert len(set(results)) == len(results) == 7
    assert op.regions[0].yields == (results[-1],)


def test_a_region_whose_function_calls_itself_is_refused() -> None:
    text = TEXT.replace("stablehlo.exponential %n", "func.call @soft(%n)").replace(
        "%e = func.call @soft(%n) : tensor<f32>",
        "%e = func.call @soft(%n) : (tensor<f32>) -> tensor<f32>",
    )
    with pytest.raises(FlintError, match="function @soft calls itself"):
        read_mlir(text.encode())
