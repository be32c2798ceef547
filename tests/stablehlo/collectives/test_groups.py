"""Replica groups in all their modes, against the specification's process grid written out.

The grid is replicas x partitions; a process (r, p) is rank r * partitions + p.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import FlintError
from tests.stablehlo.helpers import walked

CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
FLAGS = {
    "cross_replica": "",
    "with_channel": f", {CHANNEL}",
    "flattened": f", {CHANNEL}, use_global_device_ids",
}


def op(kind: str, groups: str, size: int, flags: str) -> str:
    if kind == "all_to_all":
        attributes = (
            f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {size} : i64"
        )
        types = f"(tensor<{size}xi64>) -> tensor<{size}xi64>"
    else:
        attributes = "all_gather_dim = 0 : i64"
        types = f"(tensor<1xi64>) -> tensor<{size}xi64>"
    return f'"stablehlo.{kind}"(%x) {{{attributes}, replica_groups = {groups}{flags}}} : {types}'


def by_specification(
    mode: str, rows: list[list[int]], replicas: int, partitions: int
) -> dict[int, list[int]]:
    """Rank -> its process group in member order, process by process as the specification does."""
    groups: list[list[tuple[int, int]]] = []
    for row in rows:
        if mode == "cross_replica":
            groups += [[(r, p) for r in row] for p in range(partitions)]
        elif mode == "cross_partition":
            groups += [[(r, p) for p in row] for r in range(replicas)]
        elif mode == "cross_replica_and_partition":
            groups.append([(r, p) for p in range(partitions) for r in row])
        else:
            groups.append([divmod(rank, partitions) for rank in row])
    ranked = [[r * partitions + p for r, p in group] for group in groups]
    return {rank: group for group in ranked for rank in group}


def ours(text: str, kind: str, replicas: int, partitions: int, size: int) -> list[list[int]]:
    length = size if kind == "all_to_all" else 1
    graph = walked(f"""module attributes {{
      mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = {replicas} : i32}} {{
      func.func @main(%x: tensor<{length}xi64>) -> tensor<{size}xi64> {{
        %y = {text}
        return %y : tensor<{size}xi64>
      }}
    }}""").graph
    (item,) = graph.tables.communications
    assert item.groups is not None
    return [item.groups.members(rank).tolist() for rank in range(replicas * partitions)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[list[int]], str, str, int, int, int]:
    """(op, rows, mode, its flags, replicas, partitions, members per group)."""
    replicas, partitions = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    kind = draw(st.sampled_from(["all_gather", "all_to_all"]))
    flags = draw(st.sampled_from([*FLAGS][: 3 if kind == "all_gather" else 2]))
    mode, ids = {
        "cross_replica": ("cross_replica", replicas),
        "flattened": ("flattened_ids", replicas * partitions),
        "with_channel": ("cross_replica_and_partition", replicas)
        if kind == "all_gather"
        else ("cross_partition", partitions),
    }[flags]
    size = draw(st.sampled_from([n for n in range(1, ids + 1) if ids % n == 0]))
    order = draw(st.permutations(range(ids)))
    rows = [list(order[i : i + size]) for i in range(0, ids, size)]
    members = size * (partitions if mode == "cross_replica_and_partition" else 1)
    return kind, rows, mode, flags, replicas, partitions, members


@given(cases())
def test_groups_are_those_of_the_specification(case: Any) -> None:
    kind, rows, mode, flags, replicas, partitions, members = case
    text = op(kind, table(rows), members, FLAGS[flags])
    expected = by_specification(mode, rows, replicas, partitions)
    mine = ours(text, kind, replicas, partitions, members)
    assert dict(enumerate(mine)) == expected


def table(rows: list[list[int]]) -> str:
    return f"dense<{rows}> : tensor<{len(rows)}x{len(rows[0])}xi64>"


def mesh_groups(axes: str, devices: str = "") -> str:
    sizes = (("a", 2), ("b", 4))
    shown = ", ".join(f'#stablehlo.mesh_axis<name = "{name}", size = {n}>' for name, n in sizes)
    return (
        f"#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [{shown}]{devices}>, "
        f"axes = [{axes}]>"
    )


@pytest.mark.parametrize(
    ("axes", "rows"),
    [
        # Rank = 4 a + b.
        ('#stablehlo.axis_ref<name = "a">', [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ('#stablehlo.axis_ref<name = "b">', [[0, 1, 2, 3], [4, 5, 6, 7]]),
        # b = 2 b0 + b1: (1)2 is b0, the outer half, and (2)2 is b1.
        (
            '#stablehlo.axis_ref<name = "b", sub_axis_info = (1)2>',
            [[0, 2], [1, 3], [4, 6], [5, 7]],
        ),
        (
            '#stablehlo.axis_ref<name = "b", sub_axis_info = (2)2>',
            [[0, 1], [2, 3], [4, 5], [6, 7]],
        ),
        # b before a: members count a fastest.
        (
            '#stablehlo.axis_ref<name = "b">, #stablehlo.axis_ref<name = "a">',
            [[0, 4, 1, 5, 2, 6, 3, 7]],
        ),
    ],
)
def test_mesh_axes_against_hand_derived_groups(axes: str, rows: list[list[int]]) -> None:
    size = len(rows[0])
    text = op("all_gather", mesh_groups(axes), size, f", {CHANNEL}, use_global_device_ids")
    mine = ours(text, "all_gather", 1, 8, size)
    assert mine == [next(row for row in rows if rank in row) for rank in range(8)]


def test_a_mesh_with_its_own_device_order() -> None:
    # Position p of the mesh is device order[p]; along a the positions are (p, p + 4).
    order = [7, 6, 5, 4, 3, 2, 1, 0]
    devices = f", device_ids = dense<{order}> : tensor<8xi64>"
    text = op(
        "all_gather",
        mesh_groups('#stablehlo.axis_ref<name = "a">', devices),
        2,
        FLAGS["flattened"],
    )
    mine = ours(text, "all_gather", 1, 8, 2)
    assert mine[7] == mine[3] == [7, 3]
    assert mine[0] == mine[4] == [4, 0]


@pytest.mark.parametrize(
    ("replicas", "partitions", "flags", "rows", "expected"),
    [
        # Replica ids, once per partition: replicas 0 and 1 of partition 1 are ranks 1 and 5.
        (2, 4, "cross_replica", [[0, 1]], {0: [0, 4], 1: [1, 5], 7: [3, 7]}),
        # Replica ids with a channel: all partitions of replica 0 are ranks 0 to 3.
        (2, 4, "with_channel", [[0], [1]], {0: [0, 1, 2, 3], 5: [4, 5, 6, 7]}),
        # Ranks.
        (2, 4, "flattened", [[0, 5], [1, 4], [2, 7], [3, 6]], {0: [0, 5], 6: [3, 6]}),
        # One replica: [[0]] with a channel means all of its partitions.
        (1, 4, "with_channel", [[0]], {2: [0, 1, 2, 3]}),
        # Without a channel it is every device alone.
        (1, 4, "cross_replica", [[0]], {2: [2]}),
        # Ids that fit no mode can only be ranks.
        (1, 4, "cross_replica", [[0, 1], [2, 3]], {2: [2, 3]}),
        (1, 4, "with_channel", [[0, 1], [2, 3]], {2: [2, 3]}),
    ],
)
def test_hand_derived_groups_of_an_all_gather(
    replicas: int,
    partitions: int,
    flags: str,
    rows: list[list[int]],
    expected: dict[int, list[int]],
) -> None:
    size = len(next(iter(expected.values())))
    text = op("all_gather", table(rows), size, FLAGS[flags])
    mine = ours(text, "all_gather", replicas, partitions, size)
    assert {rank: mine[rank] for rank in expected} == expected


def test_a_device_that_is_not_there_is_an_error_that_names_it() -> None:
    text = op("all_gather", table([list(range(10))]), 10, FLAGS["flattened"])
    with pytest.raises(FlintError, match="device 9 of 8"):
        ours(text, "all_gather", 1, 8, 10)


@pytest.mark.parametrize(
    ("channel", "target"),
    [
        # Partition ids, in each replica; replica ids, in each partition (rank = 3 replica + p).
        (True, [1, 2, 0, 4, 5, 3]),
        (False, [3, 4, 5, 0, 1, 2]),
    ],
)
def test_permutes_of_partition_ids_and_of_replica_ids(channel: bool, target: list[int]) -> None:
    pairs = [[0, 1], [1, 2], [2, 0]] if channel else [[0, 1], [1, 0]]
    flag = f", {CHANNEL}" if channel else ""
    text = f"""module attributes {{
      mhlo.num_partitions = 3 : i32, mhlo.num_replicas = 2 : i32}} {{
      func.func @main(%x: tensor<1xi64>) -> tensor<1xi64> {{
        %y = "stablehlo.collective_permute"(%x) {{
          source_target_pairs = dense<{pairs}> : tensor<{len(pairs)}x2xi64>{flag}}}
          : (tensor<1xi64>) -> tensor<1xi64>
        return %y : tensor<1xi64>
      }}
    }}"""
    (item,) = walked(text).graph.tables.communications
    assert item.permutation is not None
    assert item.permutation.target.tolist() == target
