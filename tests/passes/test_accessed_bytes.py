"""What a kernel reads of the buffer that it takes a part of: the part, to the byte."""

from __future__ import annotations

from flint.passes import apply
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk

SLICES = b"""module @m {
  func.func @main(%x: tensor<32x64x128xbf16>, %u: tensor<1x64x128xbf16>, %i: tensor<i32>)
      -> (tensor<1x64x128xbf16>, tensor<32x64x128xbf16>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %s = stablehlo.dynamic_slice %x, %i, %c, %c, sizes = [1, 64, 128]
      : (tensor<32x64x128xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x64x128xbf16>
    %y = stablehlo.dynamic_update_slice %x, %u, %i, %c, %c
      : (tensor<32x64x128xbf16>, tensor<1x64x128xbf16>, tensor<i32>, tensor<i32>, tensor<i32>)
      -> tensor<32x64x128xbf16>
    return %s, %y : tensor<1x64x128xbf16>, tensor<32x64x128xbf16>
  }
}"""
#: 1 x 64 x 128 of 2 bytes, and the one index that is not a constant.
PART, INDEX = 64 * 128 * 2, 4


def test_a_slice_and_an_update_read_their_part_and_their_index() -> None:
    graph = apply(walk(read_mlir(SLICES)).graph, "kernel")
    read = {node.op: node.work.read for node in graph}
    assert read == {"dynamic_slice": PART + INDEX, "dynamic_update_slice": PART + INDEX}
