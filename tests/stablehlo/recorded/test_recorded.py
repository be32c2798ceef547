"""Modules that a recorder wrote: streams, waits, views, phases and roles come from attributes."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.graph.graph import EdgeKind, Phase
from flint.graph.work import Role
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk

MODULE = """
module @step attributes {flint.recorded, mhlo.num_partitions = 4 : i32} {
  func.func private @aten.mm(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>) -> tensor<8x4xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
  func.func private @aten.relu(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<4x8xf32>
    %0 = stablehlo.maximum %a, %c : tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
  func.func @main(
      %x: tensor<8x16xf32> {flint.role = "batch", flint.name = "x"},
      %w: tensor<16x4xf32> {flint.role = "parameter", flint.name = "net.w"}
  ) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
    %0 = stablehlo.composite "aten.mm.default" %x, %w {decomposition = @aten.mm, flint.id = 0 : i64,
        flint.phase = "forward", flint.module = "net"}
        : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32> loc("train.py":7:1)
    %1 = "stablehlo.all_reduce"(%0) ({
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %s = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          flint.id = 1 : i64, flint.stream = 3 : i64, flint.after = array<i64: 0>}
        : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = stablehlo.transpose %0, dims = [1, 0] {flint.view}
        : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %3 = stablehlo.composite "aten.relu.default" %2 {decomposition = @aten.relu,
        flint.id = 2 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = stablehlo.composite "aten.relu.default" %3 {decomposition = @aten.relu,
        flint.id = 3 : i64, flint.after = array<i64: 1>, flint.phase = "optimizer"}
        : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %4, %1 : tensor<4x8xf32>, tensor<8x4xf32>
  }
}
"""


def walked(text=MODULE, **options):
    return walk(read_mlir(text.encode()), None, WalkOptions(**options)).graph


def waits(graph):
    """consumer -> {(earlier node, kind)} of order edges."""
    return {
        node: {
            (int(graph.order_node[i]), EdgeKind(graph.order_kind[i]))
            for i in range(graph.order_ptr[node], graph.order_ptr[node + 1])
        }
        for node in range(len(graph))
    }


def test_a_composite_is_one_node_with_the_work_inside():
    nodes = list(walked())
    assert [node.op for node in nodes] == [
        "aten.mm.default", "all_reduce", "transpose", "aten.relu.default", "aten.relu.default",
    ]  # fmt: skip
    assert nodes[0].flops == 2 * 8 * 16 * 4


def test_streams_and_waits_are_order_edges():
    assert waits(walked()) == {
        0: set(),
        1: {(0, EdgeKind.ORDER)},  # on a separate stream, waits for its inputs
        2: set(),
        3: {(0, EdgeKind.STREAM)},
        4: {(3, EdgeKind.STREAM), (1, EdgeKind.ORDER)},
    }


def test_a_view_takes_no_time():
    view = walked()[2]
    assert view.role == Role.ALIAS
    assert (view.work.read, view.work.written, view.flops) == (0, 0, 0)


def test_phase_module_and_line_are_the_stated_ones():
    sources = [node.source for node in walked()]
    assert (sources[0].phase, sources[0].layer) == (Phase.FORWARD, "net")
    assert (sources[0].file, sources[0].line) == ("train.py", 7)
    assert sources[4].phase == Phase.OPTIMIZER


def test_inputs_have_the_stated_roles_and_names():
    module = read_mlir(MODULE.encode())
    assert module.input_roles == ("batch", "parameter")
    assert module.input_names == ("x", "net.w")


def test_fused_composites_are_opened():
    assert [node.op for node in walked(fuse=True)] == [
        "dot_general", "all_reduce", "transpose", "constant", "maximum", "constant", "maximum",
    ]  # fmt: skip


def test_a_wait_for_what_comes_later_is_refused():
    with pytest.raises(FlintError, match="op 1 waits for op 2, which does not come before"):
        walked(MODULE.replace("array<i64: 0>", "array<i64: 2>"))


def test_a_wait_for_nothing_is_refused():
    with pytest.raises(FlintError, match="op 1 waits for op 9, which does not exist"):
        walked(MODULE.replace("array<i64: 0>", "array<i64: 9>"))
