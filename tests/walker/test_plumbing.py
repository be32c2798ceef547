"""Calls, tuples, barriers, async pairs, composites, custom calls, point to point, file forms."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest

from flint.errors import FlintError, UsageError
from flint.frontends.saved import read_bytes
from flint.graph import WorkloadGraph
from flint.passes.aliases import resolve_aliases
from flint.stablehlo.bindings import ir, make_context, parse, stablehlo
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.reader import read_mlir
from flint.stablehlo.walker import walk
from flint.work import Role, Unit
from tests.walker.helpers import all_reduce, exchanged, executions, named, waits_for, walked

F = "tensor<8xf32>"


def main(body: str, results: str = F, arguments: str = f"%x: {F}, %y: {F}", extra: str = "") -> str:
    return f"""module attributes {{mhlo.num_partitions = 4 : i32}} {{
      {extra}
      func.func @main({arguments}) -> ({results}) {{
        {body}
      }}
    }}"""


def ops(graph: WorkloadGraph) -> list[str]:
    return [node.op for node in graph]


def test_a_function_called_twice_is_opened_twice_with_its_own_operands() -> None:
    helper = f"""func.func private @g(%v: {F}) -> {F} {{
      %w = stablehlo.sine %v : {F}
      return %w : {F}
    }}
    func.func private @f(%v: {F}) -> {F} {{
      %w = func.call @g(%v) : ({F}) -> {F}
      return %w : {F}
    }}"""
    text = main(
        f"""%a = func.call @f(%x) : ({F}) -> {F}
        %b = func.call @f(%y) : ({F}) -> {F}
        %c = stablehlo.subtract %a, %b : {F}
        return %c : {F}""",
        extra=helper,
    )
    graph = walked(text).graph
    assert ops(graph) == ["sine", "sine", "subtract"]
    assert [node.operands for node in graph][:2] == [(0,), (1,)]


def test_a_function_that_calls_itself_is_an_error_that_names_it() -> None:
    helper = f"""func.func private @f(%v: {F}) -> {F} {{
      %w = func.call @f(%v) : ({F}) -> {F}
      return %w : {F}
    }}"""
    text = main(f"%a = func.call @f(%x) : ({F}) -> {F}\n return %a : {F}", extra=helper)
    with pytest.raises(FlintError, match="@f call itself"):
        walked(text)


def test_what_nobody_calls_is_not_read() -> None:
    helper = f"""func.func private @unused(%v: {F}) -> {F} {{
      %w = "who.knows"(%v) : ({F}) -> {F}
      return %w : {F}
    }}"""
    walk_ = walked(main(f"return %x : {F}", extra=helper), strict=True)
    assert len(walk_.graph) == 0 and not walk_.warnings


def test_tuples_pass_their_elements_through_calls() -> None:
    kind = f"tuple<{F}, {F}>"
    helper = f"""func.func private @second(%t: {kind}) -> {F} {{
      %e = stablehlo.get_tuple_element %t[1] : ({kind}) -> {F}
      return %e : {F}
    }}"""
    text = main(
        f"""%a = stablehlo.sine %x : {F}
        %b = stablehlo.cosine %y : {F}
        %t = stablehlo.tuple %a, %b : {kind}
        %c = func.call @second(%t) : ({kind}) -> {F}
        %d = stablehlo.abs %c : {F}
        return %d : {F}""",
        extra=helper,
    )
    graph = walked(text).graph
    assert [node.op for node in named(graph, "abs").inputs] == ["cosine"]


BARRIER = main(
    f"""%a = stablehlo.sine %x : {F}
    %b = stablehlo.cosine %y : {F}
    %c:2 = stablehlo.optimization_barrier %a, %b : {F}, {F}
    %d = stablehlo.abs %c#0 : {F}
    return %d : {F}"""
)


def test_a_barrier_is_free_and_passes_values_through() -> None:
    graph = walked(BARRIER).graph
    assert {node.category for node in graph if node.op == "optimization_barrier"} == {"free"}
    resolved = resolve_aliases(graph)
    assert not waits_for(resolved, named(resolved, "abs"), named(resolved, "cosine"))


def test_a_kept_barrier_joins_its_operands() -> None:
    graph = walked(BARRIER, keep_barriers=True).graph
    (barrier,) = [node for node in graph if node.op == "optimization_barrier"]
    assert barrier.role == Role.OPAQUE
    assert waits_for(graph, named(graph, "abs"), named(graph, "cosine"))


def test_a_barrier_keeps_what_is_known_of_a_counter() -> None:
    text = main(
        f"""%n = stablehlo.constant dense<5> : tensor<i32>
        %z = stablehlo.constant dense<0> : tensor<i32>
        %k:2 = stablehlo.optimization_barrier %n, %x : tensor<i32>, {F}
        %r:2 = stablehlo.while(%i = %z, %v = %k#1) : tensor<i32>, {F}
        cond {{
          %p = stablehlo.compare LT, %i, %k#0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }} do {{
          %o = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %o : tensor<i32>
          %w = stablehlo.sine %v : {F}
          stablehlo.return %j, %w : tensor<i32>, {F}
        }}
        return %r#1 : {F}"""
    )
    assert executions(walked(text).graph, "sine") == 5


def test_an_async_pair_is_what_it_starts() -> None:
    text = main(
        f"""%f = "stablehlo.async_start"(%x) ({{
          ^bb0(%v: {F}):
            {all_reduce("%w", "%v")}
            "stablehlo.return"(%w) : ({F}) -> ()
        }}) : ({F}) -> !stablehlo.future<{F}>
        %a = stablehlo.sine %y : {F}
        %b = "stablehlo.async_done"(%f) : (!stablehlo.future<{F}>) -> {F}
        %c = stablehlo.add %a, %b : {F}
        return %c : {F}"""
    )
    graph = walked(text).graph
    assert ops(graph) == ["all_reduce", "sine", "add"]
    assert {node.op for node in graph[2].inputs} == {"all_reduce", "sine"}


def composite(inside: str, uses: int = 1) -> str:
    helper = f"""func.func private @impl(%v: {F}) -> {F} {{
      {inside}
      return %r : {F}
    }}"""
    calls = "\n".join(
        f'%c{i} = stablehlo.composite "my.op" {"%x" if i == 0 else f"%c{i - 1}"} '
        f"{{decomposition = @impl}} : ({F}) -> {F}"
        for i in range(uses)
    )
    return main(f"{calls}\n return %c{uses - 1} : {F}", extra=helper)


def test_a_composite_is_one_kernel_with_the_work_of_its_decomposition() -> None:
    graph = walked(
        composite(f"%a = stablehlo.sine %v : {F}\n %b = stablehlo.add %a, %v : {F}\n"
                  f"%r = stablehlo.multiply %b, %v : {F}", uses=3)
    ).graph  # fmt: skip
    assert ops(graph) == ["my.op"] * 3
    for node in graph:
        # 8 sines; 8 additions and 8 multiplications; 32 bytes in and 32 out.
        assert (node.work.transcendentals, node.work.flops) == (8, 16)
        assert (node.work.read, node.work.written) == (32, 32)
        assert {item.unit for item in node.work.items} == {Unit.VECTOR, Unit.TRANSCENDENTAL}


def test_a_composite_that_communicates_is_opened() -> None:
    inside = all_reduce("%a", "%v") + f"\n%r = stablehlo.sine %a : {F}"
    graph = walked(composite(inside)).graph
    assert ops(graph) == ["all_reduce", "sine"]


def test_an_unknown_op_inside_a_composite_is_counted_as_a_warning() -> None:
    text = composite(f'%r = "who.knows"(%v) : ({F}) -> {F}')
    assert list(walked(text).warnings) == [
        "unknown op who.knows: counted by the bytes of its operands and results"
    ]
    with pytest.raises(FlintError, match=r"who\.knows.*--strict"):
        walked(text, strict=True)


def test_unknown_ops_and_targets_are_nodes_and_are_counted_each_time() -> None:
    text = main(
        f"""%a = "who.knows"(%x) : ({F}) -> {F}
        %b = "who.knows"(%a) : ({F}) -> {F}
        %c = stablehlo.custom_call @mystery(%b) : ({F}) -> {F}
        %d = stablehlo.custom_call @mystery(%c) : ({F}) -> {F}
        return %d : {F}"""
    )
    walk_ = walked(text)
    assert ops(walk_.graph) == ["who.knows", "who.knows", "mystery", "mystery"]
    assert [(node.work.read, node.work.written) for node in walk_.graph] == [(32, 32)] * 4
    counted = {key.split(":")[0]: count for key, count in walk_.warnings.items()}
    assert counted == {"unknown op who.knows": 2, "unknown custom_call target mystery": 2}
    with pytest.raises(FlintError, match=r"unknown op who\.knows \(--strict\)"):
        walked(text, strict=True)


def test_a_known_custom_call_is_no_warning() -> None:
    text = main(
        f"""%a = stablehlo.custom_call @Sharding(%x) : ({F}) -> {F}
        return %a : {F}"""
    )
    walk_ = walked(text, strict=True)
    assert not walk_.warnings and walk_.graph[0].category == "free"


def test_a_communication_inside_an_unknown_op_does_not_vanish() -> None:
    text = main(
        f"""%a = "who.knows"(%x) ({{
          {all_reduce("%w", "%x")}
          "who.returns"(%w) : ({F}) -> ()
        }}) : ({F}) -> {F}
        return %a : {F}"""
    )
    with pytest.raises(FlintError, match=r"who\.knows.*communicat"):
        walked(text)


def test_what_a_region_of_an_unknown_op_uses_from_outside_is_an_edge() -> None:
    text = main(
        f"""%b = stablehlo.sine %y : {F}
        %a = "who.knows"(%x) ({{
          %w = stablehlo.add %b, %b : {F}
          "who.returns"(%w) : ({F}) -> ()
        }}) : ({F}) -> {F}
        return %a : {F}"""
    )
    graph = walked(text).graph
    assert waits_for(graph, named(graph, "who.knows"), named(graph, "sine"))


def test_send_and_recv_have_peers_and_bytes() -> None:
    pairs = "source_target_pairs = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
    channel = "channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>"
    text = main(
        f"""%t = stablehlo.create_token : !stablehlo.token
        %s = "stablehlo.send"(%x, %t) {{{channel}, {pairs}, is_host_transfer = false}}
          : ({F}, !stablehlo.token) -> !stablehlo.token
        %r:2 = "stablehlo.recv"(%s) {{{channel}, {pairs}, is_host_transfer = false}}
          : (!stablehlo.token) -> ({F}, !stablehlo.token)
        return %r#0 : {F}"""
    )
    graph = walked(text).graph
    send, recv = graph.tables.communications
    assert (send.kind, send.bytes_in, send.channel) == ("send", 32, 3)
    assert (recv.kind, recv.bytes_out, recv.channel) == ("recv", 32, 3)
    assert send.permutation is not None
    assert send.permutation.target.tolist() == [1, -1, 3, -1]


def test_send_to_the_host_is_no_communication_between_devices() -> None:
    text = main(
        f"""%t = stablehlo.create_token : !stablehlo.token
        %s = "stablehlo.send"(%x, %t) {{
          channel_handle = #stablehlo.channel_handle<handle = 3, type = 2>,
          is_host_transfer = true}}
          : ({F}, !stablehlo.token) -> !stablehlo.token
        return %x : {F}"""
    )
    walk_ = walked(text)
    assert not exchanged(walk_.graph)
    assert list(walk_.warnings) == ["send to the host: counted as data movement"]


def test_a_send_without_peers_is_an_error_that_says_what_is_missing() -> None:
    text = main(
        f"""%t = stablehlo.create_token : !stablehlo.token
        %s = "stablehlo.send"(%x, %t) {{
          channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>}}
          : ({F}, !stablehlo.token) -> !stablehlo.token
        return %x : {F}"""
    )
    with pytest.raises(FlintError, match="send without source_target_pairs"):
        walked(text)


def test_a_variadic_all_reduce_is_one_communication_with_all_its_bytes() -> None:
    text = main(
        f"""%r:2 = "stablehlo.all_reduce"(%x, %y) ({{
          ^bb0(%l: tensor<f32>, %s: tensor<f32>):
            %m = stablehlo.maximum %l, %s : tensor<f32>
            stablehlo.return %m : tensor<f32>
        }}) {{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}
          : ({F}, {F}) -> ({F}, {F})
        return %r#1 : {F}"""
    )
    (item,) = walked(text).graph.tables.communications
    assert (item.kind, item.reduction) == ("all_reduce", "maximum")
    assert item.operand_bytes == item.result_bytes == (32, 32)


@pytest.mark.parametrize(
    ("op", "attributes", "result", "size"),
    [
        ("all_gather", "all_gather_dim = 0 : i64", "tensor<32xf32>", 128),
        (
            "all_to_all",
            "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 4 : i64",
            F,
            32,
        ),
    ],
)
def test_other_variadic_collectives(op: str, attributes: str, result: str, size: int) -> None:
    text = main(
        f"""%r:2 = "stablehlo.{op}"(%x, %y) {{{attributes},
          replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}
          : ({F}, {F}) -> ({result}, {result})
        return %r#0 : {result}""",
        results=result,
    )
    (item,) = walked(text).graph.tables.communications
    assert (item.operand_bytes, item.result_bytes) == ((32, 32), (size, size))


def test_a_collective_broadcast_has_groups_and_bytes() -> None:
    text = main(
        f"""%r = "stablehlo.collective_broadcast"(%x) {{
          replica_groups = dense<[[2, 0, 1, 3]]> : tensor<1x4xi64>,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : ({F}) -> {F}
        return %r : {F}"""
    )
    (item,) = walked(text).graph.tables.communications
    assert (item.kind, item.bytes_in, item.bytes_out) == ("collective_broadcast", 32, 32)
    # The first member is the one that sends.
    assert item.groups is not None and item.groups.members(3).tolist() == [2, 0, 1, 3]


def test_a_constant_of_the_largest_unsigned_number_is_read() -> None:
    text = main(
        f"""%a = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
        %b = stablehlo.constant dense<[1, -3]> : tensor<2xi4>
        return %x : {F}"""
    )
    assert ops(walked(text).graph) == ["constant", "constant"]


FORMS = main(
    f"""%z = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, {F}
    cond {{
      %n = stablehlo.constant dense<3> : tensor<i32>
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }} do {{
      %o = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %o : tensor<i32>
      {all_reduce("%w", "%v")}
      stablehlo.return %j, %w : tensor<i32>, {F}
    }}
    return %r#1 : {F}"""
)


def columns(data: bytes) -> list[object]:
    graph = walk(read_bytes(data)).graph
    names = ("kind", "role", "operand", "operand_ptr", "result_type", "bytes_read", "outputs")
    inner = graph.loops[0].body
    return [
        *[getattr(part, name).tolist() for part in (graph, inner) for name in names],
        graph.tables.communications,
        graph.tables.ops,
    ]


def test_text_bytecode_gzip_and_portable_artifacts_give_the_same_graph() -> None:
    data = FORMS.encode()
    module = parse(data)
    stream = io.BytesIO()
    module.operation.write_bytecode(stream)
    # Portable artifacts know no attributes of other dialects than StableHLO's and MLIR's own.
    plain = data.replace(b"attributes {mhlo.num_partitions = 4 : i32}", b"")
    artifact = stablehlo.serialize_portable_artifact(parse(plain), stablehlo.get_current_version())
    expected = columns(data)
    assert columns(stream.getvalue()) == expected
    assert columns(gzip.compress(data)) == expected
    assert columns(bytes(artifact)) == expected


def test_arrays_of_complex_numbers_are_read() -> None:
    kind = "tensor<2xcomplex<f32>>"
    constant = f"%c = stablehlo.constant dense<[(1.0,2.0),(3.0,4.0)]> : {kind}"
    text = main(f"{constant}\n return %c : {kind}", results=kind)
    assert walked(text).graph.type_of(2).bytes == 16


def test_a_manual_computation_sees_its_shard_of_a_whole_tensor() -> None:
    shard = "tensor<2xf32>"
    text = main(
        f"""%r = sdy.manual_computation(%x) in_shardings=[<@m, [{{"a"}}]>]
          out_shardings=[<@m, [{{"a"}}]>] manual_axes={{"a"}} (%v: {shard}) {{
          %s = stablehlo.sine %v : {shard}
          %w = stablehlo.while(%u = %s) : {shard} cond {{
            %p = stablehlo.constant dense<false> : tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            stablehlo.return %v : {shard}
          }}
          sdy.return %w : {shard}
        }} : ({F}) -> {F}
        return %r : {F}""",
        extra='sdy.mesh @m = <["a"=4]>',
    )
    graph = walked(text).graph
    assert named(graph, "sine").work.read == 8
    assert graph.type_of(int(graph.outputs[0])).bytes == 32


def test_sizes_beyond_all_machines_are_an_error_that_names_the_op() -> None:
    kind = "tensor<1000000000x1000000000x1000xf32>"
    text = main(f"%c = stablehlo.add %z, %z : {kind}\n return %c : {kind}",
                results=kind, arguments=f"%z: {kind}")  # fmt: skip
    with pytest.raises(FlintError, match=r"add .*more than 2\*\*60"):
        walked(text)


def test_a_result_of_unknown_size_is_a_view_of_what_a_branch_gives() -> None:
    text = main(
        f"""%u = stablehlo.partition_id : tensor<ui32>
        %i = stablehlo.convert %u : (tensor<ui32>) -> tensor<i32>
        %r = "stablehlo.case"(%i) ({{
          "stablehlo.return"(%x) : ({F}) -> ()
        }}, {{
          %s = stablehlo.sine %x : {F}
          "stablehlo.return"(%s) : ({F}) -> ()
        }}) : (tensor<i32>) -> tensor<?xf32>
        return %r : tensor<?xf32>""",
        results="tensor<?xf32>",
    )
    assert len(walked(text).graph.conditionals) == 1


@pytest.mark.parametrize("op", ["call", "composite", "while"])
def test_cycles_through_any_op_are_errors(op: str) -> None:
    again = {
        "call": f"%r = func.call @f(%x) : ({F}) -> {F}",
        "composite": f'%r = stablehlo.composite "a.b" %x {{decomposition = @f}} : ({F}) -> {F}',
        "while": f"""%r = stablehlo.while(%v = %x) : {F} cond {{
            %y = func.call @f(%v) : ({F}) -> {F}
            %p = stablehlo.constant dense<false> : tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            stablehlo.return %v : {F}
          }}""",
    }[op]
    helper = f"func.func private @f(%x: {F}) -> {F} {{ {again}\n return %r : {F} }}"
    text = main(f"%r = func.call @f(%x) : ({F}) -> {F}\n return %r : {F}", extra=helper)
    with pytest.raises(FlintError, match=r"deep|itself"):
        walked(text)


def test_calls_that_double_at_each_level_are_not_followed_for_ever() -> None:
    chain = ["func.func private @f0(%x: tensor<i32>) -> tensor<i32> { return %x : tensor<i32> }"]
    for i in range(1, 40):
        once = f"func.call @f{i - 1}(%{{}}) : (tensor<i32>) -> tensor<i32>"
        chain.append(
            f"func.func private @f{i}(%x: tensor<i32>) -> tensor<i32> {{\n"
            f"%a = {once.format('x')}\n%b = {once.format('a')}\n return %b : tensor<i32> }}"
        )
    text = main(
        f"""%z = stablehlo.constant dense<0> : tensor<i32>
        %r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, {F}
        cond {{
          %n = func.call @f39(%i) : (tensor<i32>) -> tensor<i32>
          %p = stablehlo.compare LT, %n, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }} do {{
          %j = func.call @f39(%i) : (tensor<i32>) -> tensor<i32>
          stablehlo.return %j, %v : tensor<i32>, {F}
        }}
        return %r#1 : {F}""",
        extra="\n".join(chain),
    )
    with pytest.raises(FlintError, match="while_0"):
        walked(text)


TWO = f"""module {{
  func.func @first(%x: {F}) -> {F} {{
    %r = stablehlo.sine %x : {F}
    return %r : {F}
  }}
  func.func @second(%x: {F}) -> {F} {{
    %r = stablehlo.cosine %x : {F}
    return %r : {F}
  }}
}}"""


def test_a_module_without_main_needs_an_entry() -> None:
    with pytest.raises(FlintError, match=r"--entry: @first, @second"):
        read_mlir(TWO.encode(), "two.mlir")
    graph = walk(read_mlir(TWO.encode(), "two.mlir", "second")).graph
    assert ops(graph) == ["cosine"]
    with pytest.raises(UsageError, match=r"no function @third; there are @first, @second"):
        read_mlir(TWO.encode(), "two.mlir", "third")


def test_a_value_that_is_both_input_and_output_is_no_node() -> None:
    graph = walked(main(f"return %x, %x : {F}, {F}", results=f"{F}, {F}")).graph
    assert len(graph) == 0
    assert graph.outputs.tolist() == [0, 0]


def test_options_do_not_change_what_is_walked_silently() -> None:
    walk_ = walk(read_mlir(BARRIER.encode()), None, WalkOptions(branches={"case_3": 1}))
    assert list(walk_.warnings) == ["case_3: no such loop or conditional needed a value"]


def test_a_context_is_made_with_every_dialect() -> None:
    with make_context() as context:
        assert all(context.is_registered_operation(name) for name in (
            "stablehlo.add", "chlo.erf", "mhlo.copy", "sdy.mesh", "func.func",
        ))  # fmt: skip
        assert ir.IntegerAttr.parse("3 : i32").value == 3
    assert np.int64(3) == 3


def test_a_composite_reads_the_rows_that_it_takes_and_all_of_what_it_computes_with() -> None:
    text = """module {
    func.func private @rows(%table: tensor<1000x8xf32>, %at: tensor<4x1xi32>, %x: tensor<4x8xf32>,
                            %unused: tensor<64xf32>) -> tensor<4x8xf32> {
      %0 = "stablehlo.gather"(%table, %at) {
        dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
          start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1, 8>} : (tensor<1000x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
      %1 = stablehlo.add %0, %x : tensor<4x8xf32>
      return %1 : tensor<4x8xf32>
    }
    func.func @main(%table: tensor<1000x8xf32>, %at: tensor<4x1xi32>, %x: tensor<4x8xf32>,
                    %unused: tensor<64xf32>) -> tensor<4x8xf32> {
      %0 = stablehlo.composite "my.lookup" %table, %at, %x, %unused {decomposition = @rows}
        : (tensor<1000x8xf32>, tensor<4x1xi32>, tensor<4x8xf32>, tensor<64xf32>) -> tensor<4x8xf32>
      return %0 : tensor<4x8xf32>
    }}
    """
    [node] = [node for node in walked(text).graph if node.op == "my.lookup"]
    # 4 rows of 8, the places, and x; of what nobody uses nothing.
    assert (node.work.read, node.work.written) == (4 * 8 * 4 + 4 * 4 + 4 * 8 * 4, 4 * 8 * 4)
