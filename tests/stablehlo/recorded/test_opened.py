"""Recorded modules whose composites are opened: order, streams, origins of the ops inside."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flint.capturing.saved_files import convert
from flint.errors import FlintError
from flint.execution.node_types import NodeType
from flint.graph.graph import EdgeKind, NodeKind, Phase
from flint.passes import apply
from flint.passes.order import predecessors
from flint.simulation.actor_columns import Actor
from flint.simulation.machine import run
from flint.validation.validating import validate
from flint.workload.programs import Order

T = "tensor<8x8xf32>"
FLASH = "aten._scaled_dot_product_flash_attention_backward.default"

FUNCTIONS = f"""
  func.func private @mm(%a: {T}, %b: {T}) -> {T} {{
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}
    return %0 : {T}
  }}
  func.func private @gelu(%a: {T}) -> {T} {{
    %c = stablehlo.constant dense<1.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> {T}
    %0 = stablehlo.add %a, %b : {T}
    %1 = stablehlo.tanh %0 : {T}
    return %1 : {T}
  }}
  func.func private @add(%a: {T}, %b: {T}) -> {T} {{
    %0 = stablehlo.add %a, %b : {T}
    return %0 : {T}
  }}
"""


def module(lines, results, kind=T):
    given = ", ".join(f"%{name}: {T}" for name in "xyzw")
    types = ", ".join([kind] * len(results))
    return f"""
module @step attributes {{flint.recorded, mhlo.num_partitions = 2 : i32}} {{
  {FUNCTIONS}
  func.func @main({given}) -> ({types}) {{
    {chr(10).join(lines)}
    return {", ".join(results)} : {types}
  }}
}}
"""


def issue(number, stream=0, after=()):
    waits = f", flint.after = array<i64: {', '.join(map(str, after))}>" if after else ""
    return f"flint.id = {number} : i64, flint.stream = {stream} : i64{waits}"


def op(result, name, operands, number, stream=0, after=(), more=""):
    types = ", ".join([T] * len(operands))
    return (
        f'{result} = stablehlo.composite "aten.{name}" {", ".join(operands)} '
        f"{{decomposition = @{name}, {issue(number, stream, after)}{more}}} : ({types}) -> {T} "
        f'loc("train.py":{number + 1}:1)'
    )


def all_reduce(result, operand, number, stream=1, after=()):
    return f"""{result} = "stablehlo.all_reduce"({operand}) ({{
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %s = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids,
          channel_handle = #stablehlo.channel_handle<handle = {number + 1}, type = 1>,
          {issue(number, stream, after)}}} : ({T}) -> {T}"""


def converted(tmp_path, text, **options):
    file = tmp_path / "step.mlir"
    file.write_text(text)
    return convert(file, fuse=True, **options)


def opened(tmp_path, text):
    return converted(tmp_path, text).programs[0].graph


def seconds(graph, ticks):
    """When the last op is over on a device with one slot for kernels and one for the rest."""
    before = [sorted({other for other in found if other >= 0}) for found in predecessors(graph)]
    communicates = graph.kind == NodeKind.COMMUNICATION
    actor = Actor(
        types=np.where(communicates, NodeType.COLL, NodeType.COMP).astype(np.int8),
        ptr=np.cumsum([0, *map(len, before)]),
        deps=np.array([other for found in before for other in found], np.int64),
        ticks=np.array([ticks.get(node.op, 0) for node in graph], np.int64),
        channel=np.where(communicates, 0, -1),
    )
    return run([actor], members=[1]).ticks


def two_batches():
    """A row-parallel product, its all-reduce and an activation, for one batch after another."""
    return module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            all_reduce("%1", "%0", 1, after=(0,)),
            op("%2", "gelu", ["%1"], 2, after=(1,)),
            op("%3", "mm", ["%y", "%w"], 3),
            all_reduce("%4", "%3", 4, after=(3,)),
            op("%5", "gelu", ["%4"], 5, after=(4,)),
        ],
        ["%2", "%5"],
    )


def test_the_all_reduce_of_a_batch_does_not_hide_behind_the_next_one(tmp_path):
    """The first gelu waits on the compute stream for the all-reduce, and the second product stands
    behind it: 10 + 100 + 1, twice.  Beside the all-reduce the product would make it 211."""
    ticks = {"dot_general": 10, "all_reduce": 100, "tanh": 1, "add": 1}
    kernels = apply(opened(tmp_path, two_batches()), "kernel")
    assert [node.op for node in kernels] == ["dot_general", "all_reduce", "tanh"] * 2
    assert seconds(kernels, ticks) == 222


def test_the_order_is_the_recorded_one(tmp_path):
    workload = converted(tmp_path, two_batches())
    assert workload.order is Order.RECORDED
    assert [node.op for node in workload.programs[0].graph] == [
        "dot_general", "all_reduce", "constant", "broadcast_in_dim", "add", "tanh",
    ] * 2  # fmt: skip


def test_a_communication_without_a_wait_overlaps(tmp_path):
    """A gradient's all-reduce overlaps what is issued after it: 10 + max(100, 10 + 1) = 110."""
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            all_reduce("%1", "%0", 1, after=(0,)),
            op("%2", "mm", ["%y", "%w"], 2),
            op("%3", "gelu", ["%2"], 3),
        ],
        ["%1", "%3"],
    )
    kernels = apply(opened(tmp_path, text), "kernel")
    assert seconds(kernels, {"dot_general": 10, "all_reduce": 100, "tanh": 1}) == 110


def test_neighbours_of_a_stream_are_fused(tmp_path):
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            op("%1", "mm", ["%y", "%w"], 1),
            op("%2", "gelu", ["%0"], 2),
            op("%3", "add", ["%2", "%1"], 3),
            op("%4", "gelu", ["%3"], 4),
        ],
        ["%4"],
    )
    kernels = list(apply(opened(tmp_path, text), "kernel"))
    # One product takes the whole of the rest as its epilogue; constants and adds are inside.
    assert [node.op for node in kernels] == ["dot_general", "dot_general"]
    assert len(kernels[1].inputs) == 1


def test_nothing_is_fused_across_a_communication_that_meets_the_stream(tmp_path):
    """A gelu that is only used behind an all-reduce that was issued after it, for another op."""
    text = module(
        [
            op("%0", "gelu", ["%x"], 0),
            op("%1", "mm", ["%x", "%w"], 1),
            all_reduce("%2", "%1", 2, after=(1,)),
            op("%3", "mm", ["%y", "%w"], 3),
            op("%4", "add", ["%0", "%3"], 4),
        ],
        ["%2", "%4"],
    )
    names = [node.op for node in apply(opened(tmp_path, text), "kernel")]
    assert names == ["tanh", "dot_general", "all_reduce", "dot_general"]


def test_nothing_is_fused_into_a_kernel_of_another_stream(tmp_path):
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            op("%1", "gelu", ["%0"], 1),
            op("%2", "mm", ["%y", "%w"], 2),
            op("%3", "add", ["%1", "%x"], 3, stream=2, after=(1,)),
        ],
        ["%2", "%3"],
    )
    graph = opened(tmp_path, text)
    (waits,) = [node for node in graph if node.op == "dot_general" and node.index > 1]
    assert [(graph[e.producer].op, e.kind) for e in waits.edges if e.kind != EdgeKind.DATA] == [
        ("tanh", EdgeKind.STREAM)
    ]
    names = [node.op for node in apply(graph, "kernel")]
    assert names == ["dot_general", "dot_general", "add"]


def test_a_communication_on_the_compute_stream_holds_it_up(tmp_path):
    """10, then 100 on the same stream, then 10, though no data leads from one to the other."""
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            all_reduce("%1", "%y", 1, stream=0),
            op("%2", "mm", ["%z", "%w"], 2),
        ],
        ["%0", "%1", "%2"],
    )
    graph = opened(tmp_path, text)
    assert seconds(graph, {"dot_general": 10, "all_reduce": 100}) == 120


def test_a_wait_of_an_op_that_launches_nothing_holds_for_the_next_one(tmp_path):
    """A composite that hands its operand on waits for the all-reduce; the stream does too."""
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            all_reduce("%1", "%0", 1, after=(0,)),
            op("%2", "same", ["%y"], 2, after=(1,)),
            op("%3", "mm", ["%2", "%w"], 3),
        ],
        ["%1", "%3"],
    ).replace(
        "func.func private @mm",
        f"func.func private @same(%a: {T}) -> {T} {{ return %a : {T} }}\n func.func private @mm",
    )
    graph = opened(tmp_path, text)
    assert seconds(graph, {"dot_general": 10, "all_reduce": 100}) == 120


def test_memory_that_was_only_allocated_is_not_copied_when_it_is_written(tmp_path):
    """Of 64 x 8 numbers of 4 bytes a product writes its own 8 x 8."""
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0),
            "%c = stablehlo.constant dense<0.0> : tensor<64x8xf32>",
            "%i = stablehlo.constant dense<8> : tensor<i32>",
            f"%1 = stablehlo.dynamic_update_slice %c, %0, %i, %i {{flint.view}} : "
            f"(tensor<64x8xf32>, {T}, tensor<i32>, tensor<i32>) -> tensor<64x8xf32>",
        ],
        ["%1"],
        "tensor<64x8xf32>",
    )
    update = list(apply(opened(tmp_path, text), "kernel"))[-1]
    assert update.op == "dynamic_update_slice"
    assert update.work.written == 8 * 8 * 4
    assert update.work.read <= 8 * 8 * 4 + 2 * 4


def test_opened_ops_come_from_where_their_composite_does(tmp_path):
    text = module(
        [
            op("%0", "mm", ["%x", "%w"], 0, more=', flint.phase = "recompute"'),
            op("%1", "gelu", ["%0"], 1, more=', flint.module = "mlp", flint.phase = "backward"'),
        ],
        ["%1"],
    )
    product, *rest = opened(tmp_path, text)
    assert (product.source.phase, product.source.line) == (Phase.RECOMPUTE, 1)
    assert {(s.source.phase, s.source.layer, s.source.line) for s in rest} == {
        (Phase.BACKWARD, "mlp", 2)
    }


@pytest.mark.parametrize(
    "name",
    ["aten._foreach_add_.List", "aten._fused_adamw_.default", "fsdp.chunk_cat.default", FLASH],
)
def test_kernels_outside_of_what_is_compiled_stay_whole(tmp_path, name):
    """PyTorch itself launches optimizers, FSDP's copies and fused attention, compiled or not."""
    lines = [op("%0", "gelu", ["%x"], 0), op("%1", "gelu", ["%0"], 1)]
    lines[1] = lines[1].replace("aten.gelu", name)
    found = [node.op for node in opened(tmp_path, module(lines, ["%1"]))]
    assert "add" in found
    assert found.count(name) == 1
    assert found.count("add") == 1


@pytest.mark.parametrize(
    ("number", "text"), [(5, "which does not come before it"), (9, "which does not exist")]
)
def test_a_wait_for_what_does_not_come_before_is_refused(tmp_path, number, text):
    wrong = two_batches().replace("array<i64: 0>", f"array<i64: {number}>")
    with pytest.raises(FlintError, match=f"op 1 waits for op {number}, {text}"):
        opened(tmp_path, wrong)


def test_opened_kernels_are_not_compared_with_those_of_a_profiler(tmp_path):
    trace = tmp_path / "rank0.json"
    event = {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": 0, "tid": 0}
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    with pytest.raises(FlintError, match=r"opened \(--fuse\).*capture it without"):
        validate(converted(tmp_path, two_batches()), [trace])
