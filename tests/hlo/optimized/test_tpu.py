"""TPU's fused collectives: one communication each; overlapping kernels keep their arithmetic."""

from __future__ import annotations

import collections

import pytest

from flint.graph.graph import EdgeKind
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.stablehlo.walker import walk
from tests.hlo.optimized.single import load
from tests.hlo.optimized.text import edges, graph_of, names

CHAIN = "f32[16], f32[64], s32[2], u32[]"
GATHER = """all-gather({}), dimensions={{0}}, replica_groups=[1,4]<=[4], channel_id=1,
    use_global_device_ids=true"""

ASYNC = f"""begin {{ p = f32[16] parameter(0)
  g = f32[64] {GATHER.format("p")}
  ROOT c = ({CHAIN}) custom-call(g), custom_call_target="AsyncCollectiveStart" }}
beside {{ p0 = f32[16] parameter(0)  p1 = f32[64] parameter(1)  p2 = s32[2] parameter(2)
  p3 = u32[] parameter(3)  p4 = f32[8] parameter(4)
  n = f32[8] negate(p4)
  g = f32[64] {GATHER.format("p0")}
  ROOT t = (f32[8], {CHAIN}) tuple(n, p0, g, p2, p3) }}
finish {{ p0 = f32[16] parameter(0)  p1 = f32[64] parameter(1)  p2 = s32[2] parameter(2)
  p3 = u32[] parameter(3)
  g = f32[64] {GATHER.format("p0")}
  ROOT c = f32[64] custom-call(p0, p1, g, p2, p3), custom_call_target="AsyncCollectiveDone" }}
ENTRY e {{ x = f32[16] parameter(0)  y = f32[8] parameter(1)
  s = ({CHAIN}) fusion(x), kind=kCustom, calls=begin,
    output_to_operand_aliasing={{{{0}}: (0, {{}})}}
  s_0 = f32[16] get-tuple-element(s), index=0  s_1 = f32[64] get-tuple-element(s), index=1
  s_2 = s32[2] get-tuple-element(s), index=2  s_3 = u32[] get-tuple-element(s), index=3
  b = (f32[8], {CHAIN}) fusion(s_0, s_1, s_2, s_3, y), kind=kOutput, calls=beside,
    output_to_operand_aliasing={{{{1}}: (0, {{}}), {{2}}: (1, {{}}), {{3}}: (2, {{}}),
      {{4}}: (3, {{}})}}
  b0 = f32[16] get-tuple-element(b), index=1  b1 = f32[64] get-tuple-element(b), index=2
  b2 = s32[2] get-tuple-element(b), index=3  b3 = u32[] get-tuple-element(b), index=4
  d = f32[64] fusion(b0, b1, b2, b3), kind=kCustom, calls=finish,
    output_to_operand_aliasing={{{{}}: (1, {{}})}}
  k = f32[8] get-tuple-element(b), index=0
  ROOT t = (f32[8], f32[64]) tuple(k, d) }}"""


def test_a_collective_carried_by_kernels_travels_once():
    graph = graph_of(ASYNC)
    assert names(graph) == ["all_gather", "b", "async_done"]
    item = graph[0].communication
    assert (item.operand_bytes, item.result_bytes) == ((64,), (256,))


def test_the_kernel_beside_it_keeps_what_it_computes():
    _, kernel, done = graph_of(ASYNC)
    assert (kernel.flops, kernel.work.read, kernel.work.written) == (8, 32, 32)
    assert [str(kind) for kind in kernel.operand_types] == ["8xf32"]
    assert [str(kind) for kind in kernel.result_types] == ["8xf32"]
    assert done.operands == kernel.graph[0].results


def test_the_kernel_does_not_wait_for_the_collective():
    assert edges(graph_of(ASYNC)) == {(2, 1, EdgeKind.STREAM)}


SCATTER = """scattered { a = f32[64] parameter(0)  b = f32[8,4] parameter(1)
  r = (f32[64], f32[8,4]) all-reduce(a, b), replica_groups=[1,4]<=[4], channel_id=1,
    use_global_device_ids=true, to_apply=add
  i = u32[] partition-id()  z = u32[] constant(0)
  k = u32[] constant(16)  o = u32[] multiply(i, k)
  ra = f32[64] get-tuple-element(r), index=0  rb = f32[8,4] get-tuple-element(r), index=1
  sa = f32[16] dynamic-slice(ra, o), dynamic_slice_sizes={16}
  sb = f32[8,1] dynamic-slice(rb, z, i), dynamic_slice_sizes={8,1}
  ROOT t = (f32[16], f32[8,1]) tuple(sa, sb) }
ENTRY e { x = f32[64] parameter(0)  y = f32[8,4] parameter(1)
  ROOT f = (f32[16], f32[8,1]) fusion(x, y), kind=kCustom, calls=scattered }"""


def test_an_all_reduce_fused_with_its_slices_is_a_reduce_scatter():
    [node] = graph_of(SCATTER)
    item = node.communication
    assert (item.kind, item.reduction) == ("reduce_scatter", "add")
    assert (item.operand_bytes, item.result_bytes) == ((256, 128), (64, 32))


def test_a_fused_collective_of_another_form_is_opened():
    body = SCATTER.replace("(f32[16], f32[8,1]) tuple(sa, sb)", "(f32[64], f32[8,1]) tuple(ra, sb)")
    graph = graph_of(body.replace("f = (f32[16], f32[8,1])", "f = (f32[64], f32[8,1])"))
    assert "all_reduce" in names(graph)
    assert "f" not in names(graph)


KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def written(data):
    """(kind, computations of the schedule that state it) of a TPU module, without its fusions'
    repetitions: what stands alone, what is started, and reductions fused with slices."""
    module = parse_module(data)
    computations = {c.id: c for c in module.computations}
    found = collections.Counter()
    for number in module.schedule.sequences:
        for instruction in computations[number].instructions:
            opcode = instruction.opcode.removesuffix("-start")
            if opcode in KINDS:
                found[opcode] += 1
            if instruction.opcode != "fusion":
                continue
            inner = computations[instruction.called_computation_ids[0]].instructions
            targets = [i.custom_call_target for i in inner]
            [*held] = [i.opcode for i in inner if i.opcode in KINDS]
            if "AsyncCollectiveStart" in targets:
                found[held[0]] += 1
            elif held and "dynamic-slice" in [i.opcode for i in inner] and held == ["all-reduce"]:
                found["reduce-scatter"] += 1
    return found


@pytest.mark.parametrize("name", ["tpu_llama", "tpu_moe", "tpu_pipeline"])
def test_every_collective_of_a_compiled_step_is_there_once(name):
    data = load(name)
    graph = walk(read_hlo(data)).graph
    found = collections.Counter(
        node.communication.kind.replace("_", "-")
        for body, _ in graph.walk()
        for node in body
        if node.communication is not None
    )
    assert found == written(data)
