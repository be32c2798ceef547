"""Loops of any length from a file to its figures: exact numbers, a cost that stays, one clear line.

The numbers are worked out by hand from the modules in this file.
"""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest

import flint
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.workload.differences import differences
from flint.workload.inspection import summarise
from flint.workload.pairing import verify_pairing
from tests.support.command_line import flint_here

ALL_REDUCE = """"stablehlo.all_reduce"({}) <{{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
    use_global_device_ids}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %t = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }}) : (tensor<64x64xf32>) -> tensor<64x64xf32>"""
PERMUTE = """"stablehlo.collective_permute"(%s) <{channel_handle =
    #stablehlo.channel_handle<handle = 2, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>}>
    : (tensor<64x64xf32>) -> tensor<64x64xf32>"""
#: A product, an all-reduce and a permute, as often as its first argument says.
LOOP = f"""module @loop attributes {{mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main(%n: tensor<i64>, %x: tensor<64x64xf32>) -> tensor<64x64xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %one = stablehlo.constant dense<1> : tensor<i64>
    %r:3 = stablehlo.while(%i = %zero, %limit = %n, %y = %x)
        : tensor<i64>, tensor<i64>, tensor<64x64xf32>
    cond {{
      %c = stablehlo.compare LT, %i, %limit : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %j = stablehlo.add %i, %one : tensor<i64>
      %p = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
          : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %s = {ALL_REDUCE.format("%p")}
      %q = {PERMUTE}
      stablehlo.return %j, %limit, %q : tensor<i64>, tensor<i64>, tensor<64x64xf32>
    }}
    return %r#2 : tensor<64x64xf32>
  }}
}}
"""
PRODUCT = 2 * 64**3
LONGEST = 10**18


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "loop.mlir"
    path.write_text(LOOP)
    return path


@pytest.fixture(scope="module")
def longest(module):
    return flint.convert(module, trip_count=LONGEST)


def test_inspection_is_exact(longest):
    [program] = summarise(longest).programs
    assert program.matmul_flops == PRODUCT * LONGEST
    assert {row.kind: row.count for row in program.collectives} == {
        "all_reduce": LONGEST, "collective_permute": LONGEST,
    }  # fmt: skip
    assert program.communication_bytes == 2 * 64 * 64 * 4 * LONGEST
    [gemm] = program.gemms
    assert (gemm.count, gemm.flops) == (LONGEST, PRODUCT * LONGEST)
    [loop] = program.loops
    assert (loop.trip_count, loop.known_by, loop.communications) == (LONGEST, "given", 2)
    written = json.dumps(summarise(longest).to_json())
    assert str(PRODUCT * LONGEST) in written
    found = differences(longest, longest).to_json()
    assert found["before"]["matmul_flops"] == 4 * PRODUCT * LONGEST


def test_a_folder_without_traces_keeps_the_count(longest, tmp_path):
    longest.save_programs(tmp_path / "out")
    loaded = flint.load(tmp_path / "out")
    assert loaded.graph.loops[0].trip_count == LONGEST
    assert summarise(loaded).programs[0].flops == summarise(longest).programs[0].flops


def work(function):
    """Calls of Python functions, and the most bytes allocated at once."""
    seen = 0

    def traced(_frame, event, _argument):
        nonlocal seen
        seen += event == "call"

    tracemalloc.start()
    sys.setprofile(traced)
    try:
        function()
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return seen, peak


def test_conversion_pairing_and_inspection_do_not_grow(module):
    """From a thousand iterations to 10^18: a few more digits, and nothing else."""

    def looked_at(trips):
        workload = flint.convert(module, trip_count=trips)
        workload.verify()
        summarise(workload)

    looked_at(10)
    few, many = work(lambda: looked_at(10**3)), work(lambda: looked_at(LONGEST))
    assert many[0] <= 1.5 * few[0]
    assert many[1] <= 1.1 * few[1] + 2**16


def test_pairing_grows_with_the_digits(longest, module):
    short = flint.convert(module, trip_count=2**10)
    few, many = (work(lambda w=w: verify_pairing(w))[0] for w in (short, longest))
    assert many - few <= 4 * 2 * 2 * 60  # two additions a digit of two; four words


def test_traces_are_refused_at_once_and_nothing_is_left(module, tmp_path):
    run = flint_here("convert", module, "--trip-count", LONGEST, "-o", "out", cwd=tmp_path)
    assert run.returncode == 1
    [line] = run.stderr.strip().splitlines()
    assert f"runs {LONGEST:,} times" in line
    assert "smaller trip count" in line
    assert not list(tmp_path.iterdir())


def test_a_simulation_that_needs_every_iteration_says_how_many(longest):
    """The loop's counter runs ahead of its communication: no iteration is like another."""
    with pytest.raises(FlintError, match=rf"runs {LONGEST:,} times and reaches no steady state"):
        longest.simulate(without(load_system("dgx-h100"), ("contention",)))


@pytest.mark.parametrize("count", [2**63, 10**30])
def test_a_count_beyond_64_bits_is_a_usage_error(module, count):
    with pytest.raises(UsageError, match="at most 64 bits"):
        flint.convert(module, trip_count=count)
