"""A named algorithm without an effect is reported with the reason."""

from __future__ import annotations

import pytest

from flint.capturing.saved_files import convert
from tests.stablehlo.helpers import all_reduce

F = "tensor<1048576xf32>"
GATHERED = "tensor<8388608xf32>"


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    """An all-reduce and an all-gather of 4 MiB and an all-to-all, each over 8 ranks."""
    groups = "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>"
    channel = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
    file = tmp_path_factory.mktemp("algorithms") / "three.mlir"
    file.write_text(
        f"""module attributes {{mhlo.num_partitions = 8 : i32}} {{
        func.func @main(%x: {F}) -> ({F}, {GATHERED}, {F}) {{
          {all_reduce("%a", "%x", 1048576, (tuple(range(8)),))}
          %b = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = {groups},
            {channel}}} : ({F}) -> {GATHERED}
          %c = "stablehlo.all_to_all"(%x) {{split_dimension = 0 : i64, concat_dimension = 0 : i64,
            split_count = 8 : i64, replica_groups = {groups}, {channel}}} : ({F}) -> {F}
          return %a, %b, %c : {F}, {GATHERED}, {F}
        }} }}"""
    )
    return convert(file)


@pytest.mark.parametrize(
    ("system", "algorithm", "notes"),
    [
        ("dgx-h100", "direct", {"all-gather, all-reduce: it does not run on "
                                "NVLink 4 and NVSwitch"}),
        ("tpu-v5p-pod", "in-network", {"all-reduce: it does not run on ICI torus",
                                       "all-gather: only all-reduces run in switches"}),
        ("dgx-h100", "hierarchical", {"all-gather, all-reduce: the group is within one tier, "
                                      "NVLink 4 and NVSwitch"}),
        ("tpu-v5p-pod", "ring", {"all-gather, all-reduce: it is already the fastest"}),
        ("dgx-h100", "tree", {"all-gather: only all-reduces run on trees"}),
    ],
)  # fmt: skip
def test_what_an_algorithm_does_not_change_has_a_reason(workload, system, algorithm, notes) -> None:
    start = f"{algorithm} changes nothing for "
    said = workload.simulate(system, algorithm=algorithm).notes
    assert {note.removeprefix(start) for note in said if note.startswith(start)} == notes | {
        "all-to-all: it always runs as direct exchanges"
    }


def test_without_a_named_algorithm_nothing_is_reported(workload) -> None:
    assert not any("changes nothing" in note for note in workload.simulate("dgx-h100").notes)
