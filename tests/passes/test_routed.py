"""Ragged exchanges and grouped products at a stated routing, by hand."""

from __future__ import annotations

import pytest

from flint.cost.kernels import product_seconds
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.graph.graph import WorkloadGraph
from flint.graph.routing import routing_of
from tests.stablehlo.helpers import walked
from tests.stablehlo.texts import main

#: 4 ranks of 2 experts each; every rank has 16 rows of 4 f32, room for 64, and 8 x 4 -> 6.
RANKS, EXPERTS, OWN, MOST, WIDTH, OUT = 4, 8, 16, 64, 4, 6


def exchange(result: str, source: str, buffer: str, rows: int, room: int) -> str:
    kinds = f"tensor<{rows}x4xf32>, tensor<{room}x4xf32>, " + ", ".join(["tensor<4xi32>"] * 4)
    return f"""%{result} = stablehlo.custom_call @ragged_all_to_all(%{source}, %{buffer}, %n, %n,
          %n, %n) {{api_version = 4 : i32, backend_config = {{channel_id = 1 : i64,
          replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}}}}
          : ({kinds}) -> tensor<{room}x4xf32>"""


def mixture(product: bool = True) -> str:
    grouped = f"""%y = "chlo.ragged_dot"(%there, %w, %g) {{
        ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [],
          rhs_batching_dimensions = [], lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
          rhs_group_dimensions = [0]>}}
        : (tensor<{MOST}x4xf32>, tensor<2x4x4xf32>, tensor<2xi32>) -> tensor<{MOST}x4xf32>"""
    body = [
        f"%big = stablehlo.constant dense<0.0> : tensor<{MOST}x4xf32>",
        f"%small = stablehlo.constant dense<0.0> : tensor<{OWN}x4xf32>",
        exchange("there", "x", "big", OWN, MOST),
        grouped if product else "",
        exchange("back", "y" if product else "there", "small", MOST, OWN),
        f"return %back : tensor<{OWN}x4xf32>",
    ]
    return main(
        "\n".join(body),
        results=f"tensor<{OWN}x4xf32>",
        arguments=f"%x: tensor<{OWN}x4xf32>, %n: tensor<4xi32>, %w: tensor<2x4x4xf32>, "
        "%g: tensor<2xi32>",
    )


def sizes(routing: object, product: bool = True) -> tuple[list[tuple[int, int]], list[int]]:
    """Rows that each exchange sends and receives, and FLOPs and bytes of the product."""
    found = walked(mixture(product), routing=routing_of(routing))
    table = found.graph.tables.communications
    assert all(item.exact for item in table)
    rows = [(item.bytes_in // 16, item.bytes_out // 16) for item in table]
    dots = [node.work for node in found.graph if "ragged_dot" in node.op]
    return rows, [number for work in dots for number in (work.flops, work.read, work.written)]


def test_balanced_routing_fills_as_many_rows_as_a_rank_sends():
    rows, (flops, read, written) = sizes("balanced")
    assert rows == [(OWN, OWN), (OWN, OWN)]
    assert flops == 2 * OWN * 4 * 4
    assert read == OWN * 16 + 2 * 4 * 4 * 4 + 2 * 4  # rows, matrices, sizes of groups
    assert written == OWN * 16


def test_the_busiest_rank_sets_the_size():
    """Loads 5 1 1 1 1 1 1 1: the first rank's two experts get 6 of 12, twice the mean."""
    rows, (_, read, _) = sizes((5, 1, 1, 1, 1, 1, 1, 1))
    assert rows == [(OWN, 2 * OWN), (2 * OWN, OWN)]
    assert read == 2 * OWN * 16 + 2 * 4 * 4 * 4 + 2 * 4
    assert sizes_of_product((5, 1, 1, 1, 1, 1, 1, 1)) == [(1, 2 * OWN, 4, 4)]


def test_flops_are_those_of_the_mean_rank_whatever_the_imbalance():
    """What all ranks compute together is as much as there are rows, wherever these go."""
    _, (flops, _, _) = sizes((5, 1, 1, 1, 1, 1, 1, 1))
    assert flops == sizes("balanced")[1][0] == 2 * OWN * 4 * 4


def sizes_of_product(routing: object) -> list[tuple[int, int, int, int]]:
    """Sizes (b, m, n, k) of the grouped products."""
    graph = walked(mixture(), routing=routing_of(routing)).graph
    return [graph.tables.gemms[place] for place in graph.work_gemm.tolist() if place >= 0]


def test_time_is_that_of_the_busiest_rank_and_mfu_falls_with_imbalance():
    system = load_system("dgx-h100")
    even, uneven = (
        walked(mixture(), routing=routing_of(loads)).graph
        for loads in ("balanced", (5, 1, 1, 1, 1, 1, 1, 1))
    )

    def products(graph: WorkloadGraph) -> float:
        return float(product_seconds(graph, system.accelerator).sum())

    assert products(uneven) >= products(even) > 0
    assert uneven.work_flops.sum() == even.work_flops.sum()


def test_no_more_comes_than_there_is_room_for():
    rows, _ = sizes((1, 0, 0, 0, 0, 0, 0, 0))
    assert rows == [(OWN, MOST), (MOST, OWN)]


def test_the_number_of_experts_follows_from_the_product():
    stated, found = sizes("zipf:1.5/8"), sizes("zipf:1.5")
    assert stated == found
    assert found[0][0][1] > OWN


def test_a_law_for_experts_that_nothing_states_is_refused():
    with pytest.raises(UsageError, match="does not state the number of experts"):
        sizes("zipf:1.5", product=False)


def test_without_a_routing_buffers_are_counted_full_and_that_is_reported():
    found = walked(mixture())
    assert [item.bytes_out // 16 for item in found.graph.tables.communications] == [MOST, OWN]
    assert any("data-dependent" in text for text in found.warnings)


def test_assumptions_are_reported():
    found = walked(mixture(), routing=routing_of("balanced"))
    assert found.warnings == {
        "balanced routing: ragged exchanges of 16 rows fill 16 of 64": 2,
    }


def test_a_routing_that_decides_nothing_is_reported():
    found = walked(main("return %x : tensor<8xf32>"), routing=routing_of("balanced"))
    assert found.warnings == {"balanced routing: no exchange has sizes that depend on it": 1}
