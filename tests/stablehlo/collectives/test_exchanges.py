"""Messages and collectives as they are written: peers, operands, bytes."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from tests.stablehlo.helpers import all_reduce, exchanged, named, walked
from tests.stablehlo.texts import F, main


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


def test_send_to_the_host_is_not_a_communication_between_devices() -> None:
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
    # The module's parameter and result are 8 floats; each of 4 devices holds 2 of them.
    assert graph.type_of(0).bytes == graph.type_of(int(graph.outputs[0])).bytes == 8


def _ragged(sizes: str) -> str:
    """Rows of 16x4 float32 that go from each of 4 devices to each; ``sizes``: how many."""
    kinds = "tensor<16x4xf32>, tensor<24x4xf32>, " + ", ".join(["tensor<4xi32>"] * 4)
    return main(
        f"""{sizes}
        %o = stablehlo.constant dense<0> : tensor<4xi32>
        %b = stablehlo.constant dense<0.0> : tensor<24x4xf32>
        %r = stablehlo.custom_call @ragged_all_to_all(%x, %b, %o, %sent, %o, %got) {{
          api_version = 4 : i32, backend_config = {{channel_id = 1 : i64,
          replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}}}}
          : ({kinds}) -> tensor<24x4xf32>
        return %r : tensor<24x4xf32>""",
        results="tensor<24x4xf32>",
        arguments="%x: tensor<16x4xf32>, %n: tensor<4xi32>",
    )


def test_a_ragged_exchange_of_constant_sizes_moves_the_rows_that_they_name() -> None:
    sizes = """%sent = stablehlo.constant dense<[1, 0, 4, 2]> : tensor<4xi32>
        %got = stablehlo.constant dense<[1, 5, 2, 3]> : tensor<4xi32>"""
    walk_ = walked(_ragged(sizes))
    (item,) = walk_.graph.tables.communications
    # 7 rows of 4 x 4 bytes leave, 11 arrive.
    assert (item.bytes_in, item.bytes_out, item.exact) == (7 * 16, 11 * 16, True)
    assert not walk_.warnings


def test_a_ragged_exchange_of_sizes_that_are_data_is_counted_at_its_bound_and_reports_it() -> None:
    sizes = """%sent = stablehlo.constant dense<[1, 0, 4, 2]> : tensor<4xi32>
        %got = stablehlo.add %n, %n : tensor<4xi32>"""
    walk_ = walked(_ragged(sizes))
    (item,) = walk_.graph.tables.communications
    assert (item.bytes_in, item.bytes_out, item.exact) == (16 * 16, 24 * 16, False)
    assert any("data-dependent" in text for text in walk_.warnings)


def test_a_communication_in_a_computation_that_a_custom_call_is_handed_is_an_error() -> None:
    sums = all_reduce("%s", "%v")
    inner = f"func.func private @inner(%v: {F}) -> {F} {{ {sums} return %s : {F} }}"
    text = main(
        f"""%r = stablehlo.custom_call @runs(%x) {{called_computations = [@inner]}} : ({F}) -> {F}
        return %r : {F}""",
        extra=inner,
    )
    with pytest.raises(FlintError, match="custom_call @runs calls a computation with"):
        walked(text)


def test_other_computations_that_a_custom_call_is_handed_are_its_own_matter() -> None:
    inner = f"func.func private @inner(%v: {F}) -> {F} {{ return %v : {F} }}"
    text = main(
        f"""%r = stablehlo.custom_call @runs(%x) {{called_computations = [@inner]}} : ({F}) -> {F}
        return %r : {F}""",
        extra=inner,
    )
    assert named(walked(text).graph, "runs").work.read == 32
