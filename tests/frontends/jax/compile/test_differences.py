"""Comparisons of two workloads: what is counted, and how it is described.

The numbers are worked out by hand from the modules in this file.
"""

from __future__ import annotations

import json

import pytest

import flint
from flint.cli import main
from flint.cli.diff import what_happened
from flint.workload.differences import Calls, differences

#: Two all-reduces of 64 and 32 floats over 4 devices, and a gather of 8 floats to 32.
APART = """\
module @apart attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%a: tensor<64xf32>, %b: tensor<32xf32>, %c: tensor<8xf32>)
      -> (tensor<64xf32>, tensor<32xf32>, tensor<32xf32>) {
    %0 = "stablehlo.all_reduce"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1,
        type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<64xf32>) -> tensor<64xf32>
    %1 = "stablehlo.all_reduce"(%b) <{channel_handle = #stablehlo.channel_handle<handle = 2,
        type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<32xf32>) -> tensor<32xf32>
    %2 = "stablehlo.all_gather"(%c) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}>
        : (tensor<8xf32>) -> tensor<32xf32>
    return %0, %1, %2 : tensor<64xf32>, tensor<32xf32>, tensor<32xf32>
  }
}
"""

#: The same with both all-reduces in one, started before the gather and awaited after it.
TOGETHER = """\
HloModule together, is_scheduled=true, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %main (a: f32[64], b: f32[32], c: f32[8]) -> (f32[64], f32[32], f32[32]) {
  %a = f32[64]{0} parameter(0)
  %b = f32[32]{0} parameter(1)
  %c = f32[8]{0} parameter(2)
  %start = (f32[64]{0}, f32[32]{0}) all-reduce-start(%a, %b), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add
  %gathered = f32[32]{0} all-gather(%c), channel_id=3, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  %done = (f32[64]{0}, f32[32]{0}) all-reduce-done(%start)
  %first = f32[64]{0} get-tuple-element(%done), index=0
  %second = f32[32]{0} get-tuple-element(%done), index=1
  ROOT %result = (f32[64]{0}, f32[32]{0}, f32[32]{0}) tuple(%first, %second, %gathered)
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def apart(folder):
    (folder / "apart.mlir").write_text(APART)
    return flint.convert(folder / "apart.mlir")


@pytest.fixture(scope="module")
def together(folder):
    (folder / "together.hlo").write_text(TOGETHER)
    return flint.convert(folder / "together.hlo")


def test_combined_and_asynchronous_calls_keep_their_payload(apart, together):
    """4 ranks; reduced are 64 + 32 floats, gathered 32 of which 8 are a rank's own."""
    found = {row.kind: row for row in differences(apart, together).collectives}
    assert found["all_reduce"].before == Calls(
        calls=8, tensors=8, asynchronous=0, payload=1536, operand_bytes=1536, result_bytes=1536
    )
    assert found["all_reduce"].after == Calls(
        calls=4, tensors=8, asynchronous=4, payload=1536, operand_bytes=1536, result_bytes=1536
    )
    gathered = Calls(
        calls=4, tensors=4, asynchronous=0, payload=512, operand_bytes=128, result_bytes=512
    )
    assert found["all_gather"].before == found["all_gather"].after == gathered


def test_a_workload_does_not_differ_from_itself(apart, together):
    for workload in (apart, together):
        found = differences(workload, workload)
        assert found.before == found.after
        assert all(row.before == row.after for row in (*found.collectives, *found.families))
        assert all(row.before == row.after for row in found.kernels)


def test_both_directions_say_the_same(apart, together):
    there, back = differences(apart, together), differences(together, apart)
    assert (there.before, there.after) == (back.after, back.before)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (Calls(4, 4, 0, 80), Calls(2, 4, 0, 80), "combined, same payload"),
        (Calls(4, 4, 0, 80), Calls(2, 2, 2, 80), "combined, asynchronous, same payload"),
        (Calls(4, 4, 0, 80), Calls(2, 2, 0, 40), "fewer calls, payload -50.0%"),
        (Calls(2, 2, 0, 80), Calls(4, 4, 2, 80), "split, partly asynchronous, same payload"),
        (Calls(2, 2, 0, 80), Calls(4, 4, 0, 120), "more calls, payload +50.0%"),
        (Calls(2, 2, 0, 80), Calls(), "removed"),
        (Calls(), Calls(2, 2, 0, 80), "new"),
        (Calls(2, 2, 0, 80), Calls(2, 2, 0, 80), "same payload"),
    ],
)
def test_the_result_is_reported(before, after, said):
    assert what_happened(before, after, 2, 2) == said


def test_meshes_of_different_size_are_compared_by_rank():
    assert what_happened(Calls(4, 4, 0, 80), Calls(16, 16, 0, 320), 2, 8) == "same payload"


def test_the_command_compares_folders(apart, together, tmp_path, capsys):
    apart.save_programs(tmp_path / "a")
    together.save_programs(tmp_path / "b")
    with pytest.raises(SystemExit) as left:
        main(["diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert not left.value.code
    row = next(
        r for r in capsys.readouterr().out.splitlines() if r.strip().startswith("all_reduce")
    )
    cells = ["all_reduce", "2", "1", "2", "2", "0", "1", "384", "B", "384", "B"]
    assert row.split() == [*cells, "combined,", "asynchronous,", "same", "payload"]
    with pytest.raises(SystemExit):
        main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["before"]["level"] == "partitioned"
    assert document["collectives"][1]["after"]["asynchronous"] == 4


def test_what_is_not_a_folder_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["diff", str(tmp_path), str(tmp_path)])
    assert left.value.code == 1
    assert "not a workload folder" in capsys.readouterr().err
