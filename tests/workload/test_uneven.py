"""Programs whose ranks move different amounts in one collective, matched by hand-made branches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import flint
from flint.converters.chakra.check.checker import check
from flint.cost.collectives import whole_bytes
from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.passes.what_if import transform

#: Rank 0 runs the first branch, the others the second.
BRANCHES = """module @m attributes {{mhlo.num_partitions = 4 : i32}} {{
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
    %id = stablehlo.partition_id : tensor<ui32>
    %zero = stablehlo.constant dense<0> : tensor<ui32>
    %first = stablehlo.compare EQ, %id, %zero : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %y = "stablehlo.if"(%first) ({{
      {one}
      stablehlo.return %x : tensor<8xf32>
    }}, {{
      {other}
      stablehlo.return %x : tensor<8xf32>
    }}) : (tensor<i1>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }}
}}"""
HANDLE = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
ALL = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"
NEIGHBOURS = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"


def rows(count: int) -> str:
    return f"%part = stablehlo.slice %x [0:{count}] : (tensor<8xf32>) -> tensor<{count}xf32>"


def exchange(count: int, groups: str = ALL) -> str:
    parts = 4 if groups == ALL else 2
    return f"""{rows(count)}
      %m = "stablehlo.all_to_all"(%part) <{{{HANDLE}, {groups}, concat_dimension = 0 : i64,
        split_dimension = 0 : i64, split_count = {parts} : i64}}>
        : (tensor<{count}xf32>) -> tensor<{count}xf32>"""


def gather(count: int) -> str:
    return f"""{rows(count)}
      %m = "stablehlo.all_gather"(%part) <{{{HANDLE}, {ALL}, all_gather_dim = 0 : i64,
        use_global_device_ids}}> : (tensor<{count}xf32>) -> tensor<{4 * count}xf32>"""


def reduce(count: int) -> str:
    return f"""{rows(count)}
      %m = "stablehlo.all_reduce"(%part) <{{{HANDLE}, {ALL}, use_global_device_ids}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }}) : (tensor<{count}xf32>) -> tensor<{count}xf32>"""


def convert(folder: Path, one: str, other: str) -> flint.Workload:
    path = folder / "branches.mlir"
    path.write_text(BRANCHES.format(one=one, other=other))
    return flint.convert(path)


def communications(workload: flint.Workload) -> dict[tuple[int, ...], list[Communication]]:
    """By the ranks that issue them."""
    return {
        tuple(program.ranks.array().tolist()): [
            n.communication for n in program.graph if n.communication
        ]
        for program in workload.programs
    }


def test_members_keep_their_bytes_and_know_the_largest(tmp_path: Path) -> None:
    workload = convert(tmp_path, exchange(8), exchange(4))
    found = communications(workload)
    assert {ranks: (c.bytes_in, c.largest_bytes) for ranks, (c,) in found.items()} == {
        (0,): (32, 32),
        (1, 2, 3): (16, 32),
    }
    assert [count for text, count in workload.warnings.items() if "different amounts" in text] == [
        2
    ]


def test_ranks_that_never_meet_the_largest_have_it_too(tmp_path: Path) -> None:
    """Ranks 2 and 3 run the program of rank 1, which meets rank 0: a program has one size."""
    found = communications(convert(tmp_path, exchange(8, NEIGHBOURS), exchange(4, NEIGHBOURS)))
    assert [(c.bytes_in, c.largest_bytes) for c in found[1, 2, 3]] == [(16, 32)]


def test_the_same_sizes_have_no_largest(tmp_path: Path) -> None:
    workload = convert(tmp_path, exchange(8), exchange(8))
    assert {c.largest_bytes for each in communications(workload).values() for c in each} == {0}


def test_only_the_uneven_one_of_two_that_look_alike_has_a_largest(tmp_path: Path) -> None:
    twice = exchange(4).replace("%part", "%q").replace("%m", "%n") + "\n" + exchange(4)
    mixed = exchange(4).replace("%part", "%q").replace("%m", "%n") + "\n" + exchange(8)
    found = communications(convert(tmp_path, twice, mixed))
    assert [(c.bytes_in, c.largest_bytes) for c in found[0,]] == [(16, 0), (16, 32)]
    assert [(c.bytes_in, c.largest_bytes) for c in found[1, 2, 3]] == [(16, 0), (32, 32)]


def test_it_is_saved_and_the_traces_are_clean(tmp_path: Path) -> None:
    workload = convert(tmp_path, exchange(8), exchange(4))
    workload.save(tmp_path / "out")
    assert communications(flint.load(tmp_path / "out")) == communications(workload)
    report = check(tmp_path / "out")
    assert not report.findings, json.dumps([str(item) for item in report.findings])


@pytest.mark.parametrize("collective", [reduce, gather])
def test_what_every_member_must_have_alike_is_refused(
    tmp_path: Path, collective: Callable[[int], str]
) -> None:
    """All members of an all-reduce, and of an all-gather's result, have the same bytes."""
    with pytest.raises(FlintError, match="share communicator"):
        convert(tmp_path, collective(8), collective(4))


def after(workload: flint.Workload, text: str) -> list[list[int]]:
    """Of each program the sizes of its collectives after a what-if pass."""
    graphs = [transform(program.graph, [text]) for program in workload.programs]
    return [[whole_bytes(n.communication) for n in graph if n.communication] for graph in graphs]


def test_what_if_passes_keep_one_size_on_all_members(tmp_path: Path) -> None:
    """Exchanges of 32 and 32 bytes on rank 0, of 16 and 32 on the others: 64 on all of them.

    A limit between their 48 bytes and the 64 of rank 0 must not give them buckets of their own.
    """
    twice, mixed = (
        exchange(8).replace("%part", "%q").replace("%m", "%n") + "\n" + exchange(count)
        for count in (8, 4)
    )
    workload = convert(tmp_path, twice, mixed)
    assert after(workload, "bucket:kind=all_to_all,bytes=64") == [[64], [64]]
    assert after(workload, "bucket:kind=all_to_all,bytes=50") == [[32, 32], [32, 32]]
    assert after(workload, "split:kind=all_to_all,chunks=2") == [[16] * 4, [16] * 4]
