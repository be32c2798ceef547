"""The backend's schedule: kernels in one stream, and started operations overlap it."""

from __future__ import annotations

import pytest

import flint
from flint.graph.graph import EdgeKind, NodeKind
from flint.graph.work import Role
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.passes import apply
from flint.stablehlo.walker import walk
from flint.workload.programs import Level, Order
from tests.hlo.optimized.single import FOLDER, load
from tests.hlo.optimized.text import edges, graph_of, module_of, names
from tests.support.shared import quick

DATA, ORDER, STREAM = EdgeKind

ASYNC = """ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] negate(x)
  start = f32[64] all-reduce-start(a), replica_groups={{0,1,2,3}}, channel_id=1,
    use_global_device_ids=true, to_apply=add
  b = f32[64] exponential(x)
  done = f32[64] all-reduce-done(start)
  c = f32[64] tanh(b)
  ROOT d = f32[64] add(c, done)
}"""


def test_what_is_started_waits_for_the_stream_and_its_end_holds_the_stream():
    graph = graph_of(ASYNC)
    assert names(graph) == ["negate", "all_reduce", "exponential", "async_done", "tanh", "add"]
    assert edges(graph) == {
        (1, 0, ORDER),  # the start stands behind a
        (2, 0, STREAM),  # b does not wait for the all-reduce
        (3, 2, STREAM),
        (4, 3, STREAM),  # c stands behind the end, though it does not need it
        (5, 4, STREAM),
    }
    assert list(graph[3].operands) == list(graph[1].results)


def test_a_synchronous_collective_stands_in_the_stream():
    body = ASYNC.replace("start = f32[64] all-reduce-start", "done = f32[64] all-reduce")
    graph = graph_of(body.replace("  done = f32[64] all-reduce-done(start)\n", ""))
    assert names(graph) == ["negate", "all_reduce", "exponential", "tanh", "add"]
    assert edges(graph) == {(n + 1, n, STREAM) for n in range(4)}


def test_constants_and_bitcasts_are_not_kernels():
    graph = graph_of(
        """ENTRY e { x = f32[8,8] parameter(0)  b = f32[64] bitcast(x)  n = f32[64] negate(b)
          c = f32[] constant(2)  s = f32[64] broadcast(c), dimensions={}
          ROOT m = f32[64] multiply(n, s) }"""
    )
    assert names(graph) == ["reshape", "negate", "constant", "broadcast_in_dim", "multiply"]
    assert edges(graph) == {(3, 1, STREAM), (4, 3, STREAM)}
    assert [node.role for node in graph] == [
        Role.ALIAS, Role.OPAQUE, Role.GENERATE, Role.OPAQUE, Role.OPAQUE,
    ]  # fmt: skip


def test_copies_between_memory_spaces_overlap_the_stream():
    graph = graph_of(
        """ENTRY e { x = f32[64] parameter(0)
          s = (f32[64]{0:S(1)}, f32[64], u32[]) copy-start(x)
          n = f32[64] negate(x)  d = f32[64]{0:S(1)} copy-done(s)
          ROOT a = f32[64] add(n, d) }"""
    )
    assert names(graph) == ["mhlo.copy", "negate", "async_done", "add"]
    assert (graph[0].work.read, graph[0].work.written) == (256, 256)
    assert edges(graph) == {(2, 1, STREAM), (3, 2, STREAM)}


def test_a_combined_gather_is_one_node_with_all_its_values():
    graph = graph_of(
        """ENTRY e { x = f32[64] parameter(0)  y = bf16[8,2] parameter(1)
          s = ((f32[64], bf16[8,2]), (f32[256], bf16[32,2])) all-gather-start(x, y),
            dimensions={0}, replica_groups=[1,4]<=[4], channel_id=1, use_global_device_ids=true
          d = (f32[256], bf16[32,2]) all-gather-done(s)
          ROOT g = bf16[32,2] get-tuple-element(d), index=1 }"""
    )
    assert names(graph) == ["all_gather", "async_done"]
    item = graph[0].communication
    assert (item.operand_bytes, item.result_bytes) == ((256, 32), (1024, 128))


@pytest.mark.parametrize("updates", [0, 2])
def test_wrapped_computations_are_what_they_wrap(updates):
    kind = "((f32[64]), f32[16], s32[])"
    chain = [
        f"  step{i} = {kind} async-update({f'step{i - 1}' if i else 's'})" for i in range(updates)
    ]
    last = f"step{updates - 1}" if updates else "s"
    graph = graph_of(
        f"""wrapped {{ p = f32[64] parameter(0)
          ROOT r = f32[16] reduce-scatter(p), dimensions={{0}}, replica_groups=[1,4]<=[4],
            channel_id=3, use_global_device_ids=true, to_apply=add }}
        ENTRY e {{ x = f32[64] parameter(0)
          s = {kind} async-start(x), calls=wrapped
          n = f32[64] negate(x)
{chr(10).join(chain)}
          d = f32[16] async-done({last})
          ROOT t = (f32[64], f32[16]) tuple(n, d) }}"""
    )
    assert names(graph) == ["reduce_scatter", "negate", "async_done"]
    assert graph[0].communication.operand_bytes == (256,)


def test_a_pair_may_be_carried_around_a_loop():
    graph = graph_of(
        """ENTRY e { x = f32[64] parameter(0)
          s = (f32[64], f32[64], u32[], u32[]) collective-permute-start(x),
            source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, channel_id=1
          c = s32[] constant(0)
          t = (s32[], (f32[64], f32[64], u32[], u32[])) tuple(c, s)
          w = (s32[], (f32[64], f32[64], u32[], u32[])) while(t), condition=cond, body=body,
            backend_config={"known_trip_count":{"n":"3"}}
          g = (f32[64], f32[64], u32[], u32[]) get-tuple-element(w), index=1
          ROOT d = f32[64] collective-permute-done(g) }""".replace(
            "ENTRY",
            """body { p = (s32[], (f32[64], f32[64], u32[], u32[])) parameter(0)
          i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)
          j = s32[] add(i, one)
          q = (f32[64], f32[64], u32[], u32[]) get-tuple-element(p), index=1
          d = f32[64] collective-permute-done(q)
          n = f32[64] negate(d)
          s = (f32[64], f32[64], u32[], u32[]) collective-permute-start(n),
            source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, channel_id=2
          ROOT t = (s32[], (f32[64], f32[64], u32[], u32[])) tuple(j, s) }
        cond { p = (s32[], (f32[64], f32[64], u32[], u32[])) parameter(0)
          i = s32[] get-tuple-element(p), index=0  k = s32[] constant(3)
          ROOT l = pred[] compare(i, k), direction=LT }
        ENTRY""",
        )
    )
    [loop] = graph.loops
    assert loop.trip_count == 3
    assert [n.op for n in graph if n.kind == NodeKind.COMMUNICATION] == ["collective_permute"]
    inside = names(loop.body)
    assert inside.index("async_done") < inside.index("negate") < inside.index("collective_permute")


def test_sends_and_receives_are_awaited_where_their_ends_stand():
    graph = graph_of(
        """ENTRY e { x = f32[64] parameter(0)  t = token[] after-all()
          r = (f32[64], u32[], token[]) recv(t), channel_id=1,
            frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3}}"}
          s = (f32[64], u32[], token[]) send(x, t), channel_id=1,
            frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3}}"}
          n = f32[64] negate(x)
          rd = (f32[64], token[]) recv-done(r), channel_id=1
          sd = token[] send-done(s), channel_id=1
          g = f32[64] get-tuple-element(rd), index=0
          ROOT a = f32[64] add(n, g) }"""
    )
    kept = [name for name in names(graph) if name != "create_token"]
    assert kept == ["recv", "send", "negate", "async_done", "async_done", "add"]


def test_text_and_proto_say_the_same():
    module = module_of(ASYNC)
    assert (module.scheduled, module.optimized) == (True, True)


def test_fused_but_not_scheduled_is_optimized_in_a_modelled_order(tmp_path):
    path = tmp_path / "fused.hlo"
    path.write_text(
        """HloModule m, num_partitions=4
        fused { p = f32[64] parameter(0)  ROOT n = f32[64] negate(p) }
        ENTRY e { x = f32[64] parameter(0)  f = f32[64] fusion(x), kind=kLoop, calls=fused
          ROOT c = f32[64] copy(f) }"""
    )
    workload = flint.convert(path)
    assert (workload.level, workload.order) == (Level.OPTIMIZED, Order.MODELLED)
    assert [node.work.read for node in workload.programs[0].graph] == [256, 256]


MODULES = sorted(path.name.removesuffix(".hlo.pb.gz") for path in FOLDER.glob("*.hlo.pb.gz"))
#: The number of iterations of the loop depends on data.
OPTIONS = {"gpu_dynamic_loop": {"trip_count": 5}}


@pytest.mark.parametrize(
    "name", quick(MODULES, "gpu_dynamic_loop", "gpu_moe", "cpu_llama", "tpu_pipeline")
)
def test_every_module_is_converted_and_says_that_it_is_compiled(name):
    workload = flint.convert(FOLDER / f"{name}.hlo.pb.gz", **OPTIONS.get(name, {}))
    assert (workload.level, workload.order) == (Level.OPTIMIZED, Order.COMPILED)
    assert not any("opened into its ops" in text for text in workload.warnings)


#: Instructions that are not nodes, or (constants) nodes that the schedule puts anywhere.
UNSEEN = ("constant", "get-tuple-element", "parameter", "tuple")


def scheduled_names(data):
    """What the entry's schedule runs, in its order, by the names that nodes have."""
    module = parse_module(data)
    [entry] = [c for c in module.computations if c.id == module.entry_computation_id]
    by_id = {i.id: i for i in entry.instructions}
    order = [by_id[n] for n in module.schedule.sequences[entry.id].instruction_ids]
    names = {"bitcast": "reshape", "copy": "mhlo.copy", "dot": "dot_general"}
    names |= {"broadcast": "broadcast_in_dim"}
    found = []
    for instruction in order:
        opcode = instruction.opcode
        if opcode in UNSEEN:
            continue
        if opcode == "fusion":
            found.append(instruction.name.partition(".")[0])
        elif opcode == "custom-call":
            found.append(instruction.custom_call_target)
        elif opcode.endswith("-done"):
            found.append("async_done")
        else:
            found.append(names.get(opcode, opcode.removesuffix("-start").replace("-", "_")))
    return found


@pytest.mark.parametrize("name", ["cpu_resnet", "gpu_resnet"])
def test_nodes_stand_in_the_order_of_the_schedule(name):
    data = load(name)
    found = [op for op in names(walk(read_hlo(data)).graph) if op not in UNSEEN]
    assert found == scheduled_names(data)


def test_kernels_wait_for_ends_at_every_granularity():
    graph = apply(graph_of(ASYNC), "kernel")
    assert names(graph) == ["negate", "all_reduce", "exponential", "tanh", "add"]
    assert edges(graph) == {
        (1, 0, ORDER),
        (2, 0, STREAM),
        (3, 2, STREAM),
        (3, 1, STREAM),  # inherited from the end
        (4, 3, STREAM),
        (4, 2, STREAM),  # inherited with the end's value
    }


def pairs_of(data):
    """Of every computation with a schedule: the opcodes of asynchronous halves, in its order."""
    module = parse_module(data)
    found = []
    for computation in module.computations:
        if computation.id not in module.schedule.sequences:
            continue
        by_id = {i.id: i for i in computation.instructions}
        order = module.schedule.sequences[computation.id].instruction_ids
        halves = [by_id[number].opcode for number in order]
        found.append([o for o in halves if o.endswith(("-start", "-done"))])
    return sorted(filter(None, found))


def halves_of(graph):
    """The same of a graph: communications and ends, as they stand."""
    ends = [node for node in graph if node.op == "async_done"]
    awaited = {int(graph.producer[value]) for node in ends for value in node.operands}
    return [
        "done" if node.op == "async_done" else "start"
        for node in graph
        if node.op == "async_done" or node.index in awaited
    ]


#: Of these the schedule is a list of halves called "-start" and "-done".
PAIRED = [n for n in MODULES if n.startswith("gpu") and n not in OPTIONS and "send_recv" not in n]


@pytest.mark.parametrize("name", PAIRED)
def test_as_many_pairs_in_the_same_order_as_in_the_schedule(name):
    data = load(name)
    wanted = [[half.rpartition("-")[2] for half in halves] for halves in pairs_of(data)]
    graph = walk(read_hlo(data)).graph
    found = [halves_of(body) for body, _ in graph.walk()]
    assert sorted(filter(None, found)) == sorted(wanted)
