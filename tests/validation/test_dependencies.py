"""Captured edges against the order of a run."""

from __future__ import annotations

import numpy as np
import pytest

import flint
from flint.validation.expected.dependencies import contradictions
from flint.validation.expected.ops import expected_of

HELD = """module @held attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %b:2 = stablehlo.optimization_barrier %x, %a : tensor<8x8xf32>, tensor<8x8xf32>
    %c = stablehlo.dot_general %b#0, %x, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %b#1, %c : tensor<8x8xf32>, tensor<8x8xf32>
  }
}"""


def test_what_a_barrier_orders_counts_where_the_backend_keeps_it(tmp_path) -> None:
    """The second product takes nothing from the first, and ran before it."""
    path = tmp_path / "held.mlir"
    path.write_text(HELD)
    expected = expected_of(flint.convert(path), 0)
    products = [i for i, facts in enumerate(expected.captured) if "dot" in facts.name]
    first, second = products
    began = np.full(len(expected), -1)
    began[[first, second]] = 2, 1
    assert contradictions(expected, began) == (1, [(first, second)])
    assert contradictions(expected, began, barriers=False) == (0, [])


def test_a_compiler_may_order_kernels_of_a_stream_but_not_against_their_data() -> None:
    """Two products of one operand, and one that takes the second one's result."""
    torch = pytest.importorskip("torch")

    def step(x):
        return x @ x, (x @ x) @ x

    workload = flint.capture(
        step, mesh=(2,), setup=lambda mesh: (torch.ones(8, 8, device=mesh.device_type),),
        framework="torch",
    ).capture()  # fmt: skip
    expected = expected_of(workload, 0)
    first, second, third = (i for i, f in enumerate(expected.captured) if "mm" in f.name)
    began = np.full(len(expected), -1)
    began[[first, second, third]] = 3, 1, 2
    assert contradictions(expected, began) == (2, [(first, second)])
    assert contradictions(expected, began, issued=False) == (1, [])
    began[[second, third]] = 2, 1
    assert contradictions(expected, began, issued=False) == (1, [(second, third)])
