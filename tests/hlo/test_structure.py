"""Tuples, control flow and asynchronous pairs, from HLO text that XLA itself has parsed.

Longer than 300 lines because each case is HLO text, with the records that are read of it.
"""

import pytest
from jaxlib import xla_client

from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text

ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def module(entry, others="", header="HloModule m, num_partitions=4"):
    return read_hlo(proto_of_text(f"{header}\n{others}\nENTRY e {{\n{entry}\n}}\n".encode()))


def ops(read, function="main"):
    return [(op.name, op.operands, op.results) for op in read.functions[function].ops]


def test_tuples_leave_no_record():
    read = module(
        """p = (f32[4], (s32[2], f32[4])) parameter(0)
      inner = (s32[2], f32[4]) get-tuple-element(p), index=1
      a = f32[4] get-tuple-element(inner), index=1
      b = f32[4] get-tuple-element(p), index=0
      s = f32[4] subtract(a, b)
      ROOT t = ((f32[4]), f32[4]) tuple(u, a)""".replace("ROOT t", "u = (f32[4]) tuple(s)\nROOT t")
    )
    main = read.functions["main"]
    assert len(main.args) == 3
    assert ops(read) == [("subtract", (main.args[2], main.args[0]), (3,))]
    assert main.yields == (3, main.args[2])
    assert [str(read.type_of(v)) for v in main.args] == ["4xf32", "2xi32", "4xf32"]


def test_while_over_a_tuple_carries_its_leaves():
    read = module(
        """p = f32[8] parameter(0)
      z = s32[] constant(0)
      t = (s32[], f32[8]) tuple(z, p)
      w = (s32[], f32[8]) while(t), condition=cond, body=body,
        backend_config={"known_trip_count":{"n":"7"}}
      ROOT r = f32[8] get-tuple-element(w), index=1""",
        """cond {
      c = (s32[], f32[8]) parameter(0)
      i = s32[] get-tuple-element(c), index=0
      n = s32[] constant(7)
      ROOT l = pred[] compare(i, n), direction=LT
    }
    body {
      c = (s32[], f32[8]) parameter(0)
      i = s32[] get-tuple-element(c), index=0
      one = s32[] constant(1)
      j = s32[] add(i, one)
      x = f32[8] get-tuple-element(c), index=1
      y = f32[8] exponential(x)
      ROOT r = (s32[], f32[8]) tuple(j, y)
    }""",
    )
    main = read.functions["main"]
    loop = main.ops[-1]
    assert (loop.name, loop.attr("trip_count")) == ("while", 7)
    assert loop.operands == (main.ops[0].results[0], main.args[0])
    condition, body = loop.regions
    assert len(condition.args) == len(body.args) == len(body.yields) == len(loop.results) == 2
    assert [op.name for op in body.ops] == ["constant", "add", "exponential"]
    assert body.ops[2].operands == (body.args[1],)
    assert main.yields == (loop.results[1],)


BRANCHES = """one {
  a = (f32[8], f32[8]) parameter(0)
  x = f32[8] get-tuple-element(a), index=0
  y = f32[8] get-tuple-element(a), index=1
  ROOT s = f32[8] multiply(x, y)
}
two {
  a = f32[8] parameter(0)
  ROOT s = f32[8] negate(a)
}"""


def test_branches_use_the_values_around_them():
    read = module(
        """i = pred[] parameter(0)
      p = f32[8] parameter(1)
      q = f32[8] parameter(2)
      t = (f32[8], f32[8]) tuple(p, q)
      ROOT c = f32[8] conditional(i, t, q), true_computation=one, false_computation=two""",
        BRANCHES,
    )
    index, p, q = read.functions["main"].args
    [choice] = read.functions["main"].ops
    assert (choice.name, choice.operands) == ("if", (index,))
    true, false = choice.regions
    assert true.args == false.args == ()
    assert [(op.name, op.operands) for op in true.ops] == [("multiply", (p, q))]
    assert [(op.name, op.operands) for op in false.ops] == [("negate", (q,))]


def test_a_branch_used_twice_becomes_a_call():
    read = module(
        """i = s32[] parameter(0)
      p = f32[8] parameter(1)
      a = f32[8] conditional(i, p, p), branch_computations={two, two}
      ROOT b = f32[8] conditional(i, a, a), branch_computations={two, two}""",
        BRANCHES,
    )
    names = [[op.name for op in r.ops] for op in read.functions["main"].ops for r in op.regions]
    assert names == [["negate"], ["call"], ["call"], ["call"]]
    assert [op.name for op in read.functions["two"].ops] == ["negate"]
    assert read.functions["main"].ops[0].name == "case"


def test_calls_name_their_function():
    read = module("p = f32[8] parameter(0)\nROOT c = f32[8] call(p), to_apply=two", BRANCHES)
    [call] = read.functions["main"].ops
    assert (call.name, call.attr("callee")) == ("call", "two")
    assert set(read.functions) == {"main", "two"}  # "one" is not reachable


def test_fusion_keeps_what_it_fuses():
    read = module(
        "p = f32[8] parameter(0)\nROOT c = f32[8] fusion(p), kind=kLoop, calls=two", BRANCHES
    )
    [fusion] = read.functions["main"].ops
    assert (fusion.name, fusion.attr("kind")) == ("fusion", "kLoop")
    [body] = fusion.regions
    assert [op.name for op in body.ops] == ["negate"]
    assert len(body.args) == 1


ASYNC = {
    "all_reduce": """s = f32[8] all-reduce-start(p), channel_id=1, replica_groups={{0,1,2,3}},
      use_global_device_ids=true, to_apply=add
      d = f32[8] all-reduce-done(s)""",
    "all_gather": """s = (f32[8], f32[32]) all-gather-start(p), channel_id=1, dimensions={0},
      replica_groups=[1,4]<=[4], use_global_device_ids=true
      d = f32[32] all-gather-done(s)""",
    "collective_permute": """s = (f32[8], f32[8], u32[], u32[]) collective-permute-start(p),
      channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}
      d = f32[8] collective-permute-done(s)""",
    "mhlo.copy": "s = (f32[8], f32[8], u32[]) copy-start(p)\nd = f32[8] copy-done(s)",
    "reduce_scatter": """s = ((f32[8]), f32[2]) reduce-scatter-start(p), channel_id=1,
      dimensions={0}, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
      u = ((f32[8]), f32[2]) reduce-scatter-update(s)
      d = f32[2] reduce-scatter-done(u)""",
    "custom_call": """s = ((f32[8]), f32[8], u32[]) custom-call-start(p), custom_call_target="x"
      d = f32[8] custom-call-done(s)""",
}


@pytest.mark.parametrize("name", ASYNC)
def test_asynchronous_pair_is_the_operation_and_its_end(name):
    read = module(f"p = f32[8] parameter(0)\n{ASYNC[name]}\nROOT r = () tuple()", ADD)
    main = read.functions["main"]
    start, done = main.ops
    assert (start.name, done.name) == (name, "async_done")
    assert start.operands == main.args
    assert done.operands == start.results
    types = [str(read.type_of(op.results[0])) for op in main.ops]
    assert types[0] == types[1]
    assert not read.warnings


def test_send_and_receive_are_one_record_each():
    read = module("""p = f32[8] parameter(0)
      t = token[] after-all()
      s = (f32[8], u32[], token[]) send(p, t), channel_id=3,
        frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{2,3}}}
      r = (f32[8], u32[], token[]) recv(t), channel_id=3
      sd = token[] send-done(s), channel_id=3
      rd = (f32[8], token[]) recv-done(r), channel_id=3
      x = f32[8] get-tuple-element(rd), index=0
      ROOT n = f32[8] negate(x)""")
    token, send, receive, negate = read.functions["main"].ops
    assert [op.name for op in (token, send, receive)] == ["create_token", "send", "recv"]
    assert send.operands == (read.functions["main"].args[0], token.results[0])
    assert [str(read.type_of(v)) for v in receive.results] == ["8xf32", "token"]
    assert negate.operands == receive.results[:1]
    assert send.attr("channel_id") == receive.attr("channel_id") == 3
    assert send.attr("pairs").tolist() == [[0, 1], [2, 3]]


def test_variadic_collective_is_one_record():
    read = module(
        """p = f32[8] parameter(0)
      q = f32[4] parameter(1)
      ROOT a = (f32[8], f32[4]) all-reduce(p, q), channel_id=1, replica_groups={{0,1},{2,3}},
        use_global_device_ids=true, to_apply=add""",
        ADD,
    )
    main = read.functions["main"]
    [reduce] = main.ops
    assert reduce.operands == main.args and reduce.results == main.yields
    assert reduce.attr("groups").table.tolist() == [[0, 1], [2, 3]]
    assert [op.name for op in reduce.regions[0].ops] == ["add"]


def test_ragged_groups_are_padded():
    read = module(
        """p = f32[8] parameter(0)
      ROOT a = f32[8] all-reduce(p), channel_id=1, replica_groups={{0,1,2},{3}},
        use_global_device_ids=true, to_apply=add""",
        ADD,
    )
    [op] = read.functions["main"].ops
    assert op.attr("groups").table.tolist() == [[0, 1, 2], [3, -1, -1]]


def test_no_groups_means_everybody():
    entry = "p = f32[8] parameter(0)\nROOT a = f32[8] all-reduce(p), to_apply=add"
    [op] = module(entry, ADD).functions["main"].ops
    groups = op.attr("groups")
    assert groups.table is groups.iota is groups.mesh is None
    assert op.attr("channel_id") == 0


def test_header_states_partitions_and_replicas():
    read = module(
        "ROOT p = f32[8] parameter(0)", header="HloModule m, replica_count=2, num_partitions=16"
    )
    assert (read.num_partitions, read.num_replicas) == (16, 2)


def test_schedule_decides_the_order():
    scheduled = """HloModule m, is_scheduled=true"""
    read = module(
        """p = f32[8] parameter(0)
      b = f32[8] negate(p)
      a = f32[8] exponential(p)
      ROOT t = (f32[8], f32[8]) tuple(a, b)""",
        header=scheduled,
    )
    assert read.scheduled
    assert [op.name for op in read.functions["main"].ops] == ["negate", "exponential"]


def test_donated_buffers_are_flattened_positions():
    read = module(
        """p = f32[4] parameter(0)
      t = (f32[8], f32[2]) parameter(1)
      a = f32[8] get-tuple-element(t), index=0
      b = f32[2] get-tuple-element(t), index=1
      ROOT r = (f32[4], f32[2], f32[8]) tuple(p, b, a)""",
        header="HloModule m, input_output_alias={ {1}: (1, {1}, may-alias), {0}: (0, {}) }",
    )
    assert read.donated == {2: 1, 0: 0}


def test_source_line_without_a_frame_table():
    read = module("""p = f32[8] parameter(0)
      ROOT n = f32[8] negate(p),
        metadata={op_name="jit(f)/neg" source_file="f.py" source_line=7}""")
    [op] = read.functions["main"].ops
    place = read.location(op.loc)
    assert (place.name, place.file, place.line) == ("jit(f)/neg", "f.py", 7)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("s32[] constant(7)", 7),
        ("s32[3] constant({1, 2, 3})", [1, 2, 3]),
        ("u8[2,2] constant({{1, 2}, {3, 4}})", [[1, 2], [3, 4]]),
        ("s16[4] constant({-5, -5, -5, -5})", -5),
        ("pred[2] constant({true, false})", [1, 0]),
        ("u64[] constant(9223372036854775807)", 2**63 - 1),
        ("f32[] constant(0.5)", 0.5),
        ("bf16[2] constant({1.5, 1.5})", 1.5),
        ("f16[] constant(-2)", -2.0),
        ("f32[2] constant({0.5, 1})", None),
    ],
)
def test_constants(literal, value):
    read = module(f"ROOT c = {literal}")
    [op] = read.functions["main"].ops
    found = op.attr("value")
    assert (None if found is None else found.tolist()) == value


TABLE = """p = f32[8,8] parameter(0)
  sum = f32[8,8] all-reduce(p), replica_groups={{0,1,2,3}}, channel_id=1,
    use_global_device_ids=true, to_apply=add
  table = s32[4]{0} constant({...})
  rank = u32[] partition-id()
  row = s32[1] dynamic-slice(table, rank), dynamic_slice_sizes={1}
  start = s32[] reshape(row)
  zero = s32[] constant(0)
  ROOT own = f32[2,8] dynamic-slice(sum, start, zero), dynamic_slice_sizes={2,8}"""


def test_constant_that_the_text_leaves_out_has_no_value_and_is_reported():
    """XLA's parser takes ``{...}`` for zeros: every rank would read row 0."""
    read = module(TABLE, ADD)
    values = [op.attr("value", None) for op in read.functions["main"].ops if op.name == "constant"]
    assert values == [None, 0]
    assert [text for text in read.warnings if "xla_dump_large_constants" in text]
    whole = module(TABLE.replace("{...}", "{0,2,4,6}"), ADD)
    values = [op.attr("value") for op in whole.functions["main"].ops if op.name == "constant"]
    assert values[0].tolist() == [0, 2, 4, 6] and not whole.warnings


def test_text_that_the_partitioner_wrote_is_partitioned(partitioned):
    """Its parameters keep their shardings, as before partitioning; only names tell."""
    for name, dump in partitioned.items():
        proto = parse_module(dump).SerializeToString()
        text = xla_client.XlaComputation(proto).get_hlo_module().to_string()
        assert read_hlo(proto_of_text(text.encode(), name)).partitioned, name
    text = """HloModule m, num_partitions=8
ENTRY main {
  ROOT p = f32[8] parameter(0), sharding={devices=[8]<=[8]}
}
"""
    assert not read_hlo(proto_of_text(text.encode())).partitioned


def test_a_custom_call_keeps_the_computations_that_it_is_handed():
    read = module(
        """p = f32[8] parameter(0)
      ROOT r = f32[8] custom-call(p), custom_call_target="runs", called_computations={inner}""",
        ADD
        + """inner {
      v = f32[8] parameter(0)
      ROOT s = f32[8] all-reduce(v), replica_groups={{0,1,2,3}}, to_apply=add
    }
    """,
    )
    (op,) = read.functions["main"].ops
    (inner,) = op.regions
    assert [item.name for item in inner.ops] == ["all_reduce"]
