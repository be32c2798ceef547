"""Workloads to look at: the saved modules, and one whose numbers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import flint
from flint.mesh.ranks import RankSet
from flint.workload.workload import Workload

ROOT = Path(__file__).parents[1]

#: Rank r of a 2 x 4 mesh holds a shard; iteration: one dot, one tanh, one all-reduce over "model".
LOOP = """
module @hand attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x8xf32>) -> tensor<4x8xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%i = %zero, %x = %a, %w = %b)
        : tensor<i32>, tensor<4x8xf32>, tensor<8x8xf32>
      cond {
        %five = stablehlo.constant dense<5> : tensor<i32>
        %more = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
        %s = "stablehlo.all_reduce"(%y) <{
            replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            use_global_device_ids}> ({
          ^bb0(%l: tensor<f32>, %r: tensor<f32>):
            %sum = stablehlo.add %l, %r : tensor<f32>
            stablehlo.return %sum : tensor<f32>
        }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
        %t = stablehlo.tanh %s : tensor<4x8xf32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %next, %t, %w : tensor<i32>, tensor<4x8xf32>, tensor<8x8xf32>
      }
    return %0#1 : tensor<4x8xf32>
  }
}
"""


@cache
def _saved(name: str, reduce_scatter: bool) -> Workload:
    folders = (ROOT / "tests" / "data" / "stablehlo", ROOT / "models" / "saved")
    path = next(p for p in (folder / f"{name}.mlirbc" for folder in folders) if p.is_file())
    return flint.convert(path, reduce_scatter=reduce_scatter)


@pytest.fixture
def saved() -> Callable[..., Workload]:
    """A saved module by name, with all-reduces as written unless told otherwise."""
    return lambda name, reduce_scatter=False: _saved(name, reduce_scatter)


@pytest.fixture
def loop_file(tmp_path: Path) -> Path:
    """The program ``LOOP`` as a file."""
    path = tmp_path / "hand.mlir"
    path.write_text(LOOP)
    return path


@pytest.fixture(scope="session")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """The program ``LOOP``, on a 2 x 4 mesh of data and model."""
    path = tmp_path_factory.mktemp("loop") / "hand.mlir"
    path.write_text(LOOP)
    return flint.convert(path, mesh=(2, 4), axes=("data", "model"))


@pytest.fixture
def two_programs(loop: Workload) -> Workload:
    """``LOOP`` as two programs: one for the ranks of each group of its all-reduce."""
    [program] = loop.programs
    halves = tuple(
        replace(program, name=name, ranks=RankSet(8, 8, (run,)))
        for name, run in (("low", (0, 4)), ("high", (4, 8)))
    )
    return replace(loop, programs=halves)
