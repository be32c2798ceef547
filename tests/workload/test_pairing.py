"""Programs that would wait for each other are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import flint
from flint.errors import FlintError

#: Rank 0 takes branch 1, the others branch 0.
BRANCHES = """module @m attributes {{mhlo.num_partitions = 4 : i32}} {{
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
    %id = stablehlo.partition_id : tensor<ui32>
    %zero = stablehlo.constant dense<0> : tensor<ui32>
    %first = stablehlo.compare EQ, %id, %zero : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %y = "stablehlo.if"(%first) ({{
      {one}
    }}, {{
      {other}
    }}) : (tensor<i1>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }}
}}"""
NOTHING = "stablehlo.return %x : tensor<8xf32>"


def permute(pairs: str, count: int) -> str:
    return f"""%p = "stablehlo.collective_permute"(%x) <{{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        source_target_pairs = dense<{pairs}> : tensor<{count}x2xi64>}}>
        : (tensor<8xf32>) -> tensor<8xf32>
      stablehlo.return %p : tensor<8xf32>"""


def gather(groups: str, shape: str) -> str:
    return f"""%g = "stablehlo.all_reduce"(%x) <{{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<{groups}> : tensor<{shape}xi64>, use_global_device_ids}}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }}) : (tensor<8xf32>) -> tensor<8xf32>
      stablehlo.return %g : tensor<8xf32>"""


def convert(tmp_path: Path, one: str, other: str) -> flint.Workload:
    path = tmp_path / "branches.mlir"
    path.write_text(BRANCHES.format(one=one, other=other))
    return flint.convert(path)


def test_a_message_without_a_receiver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlintError, match="wait forever"):
        convert(tmp_path, permute("[[0, 1]]", 1), NOTHING)


def test_a_message_that_both_branches_exchange_is_fine(tmp_path: Path) -> None:
    workload = convert(tmp_path, permute("[[0, 1]]", 1), permute("[[0, 1]]", 1))
    assert sorted(program.ranks.size for program in workload.programs) == [1, 3]


def test_messages_among_the_ranks_of_one_branch_are_fine(tmp_path: Path) -> None:
    assert len(convert(tmp_path, NOTHING, permute("[[1, 2], [2, 3]]", 2)).programs) == 2


def test_a_collective_that_one_member_leaves_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlintError, match="share communicator"):
        convert(tmp_path, NOTHING, gather("[[0, 1, 2, 3]]", "1x4"))


def test_collectives_of_groups_within_each_branch_are_fine(tmp_path: Path) -> None:
    both = gather("[[0, 1], [2, 3]]", "2x2")
    assert len(convert(tmp_path, both, both).programs) == 2
