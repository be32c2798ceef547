"""Composites, custom calls and unknown ops."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.graph.work import Unit
from tests.stablehlo.helpers import all_reduce, named, waits_for, walked
from tests.stablehlo.texts import F, main, ops


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


def test_a_known_custom_call_is_not_a_warning() -> None:
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
