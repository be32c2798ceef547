"""Programs for any mesh and any number of layers: a few ops per layer, groups along mesh axes.

program(data=131072, model=8, layers=32)      # StableHLO text for 1,048,576 devices
python benchmarks/growth.py 131072 8 32 growing.mlir
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

_HANDLE = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>"
_GROUPS = (
    "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, "
    'axes = [#stablehlo.axis_ref<name = "{}">]>, use_global_device_ids'
)
_ADD = """({{
      ^bb0(%a: tensor<{0}>, %b: tensor<{0}>):
        %s = stablehlo.add %a, %b : tensor<{0}>
        stablehlo.return %s : tensor<{0}>
    }})"""


def program(data: int, model: int, layers: int) -> str:
    """A loop of layers on a mesh of ``data`` x ``model``; a ring along ``model`` behind it.

    Each layer gathers a weight along the data axis, multiplies twice, reduces the activation along
    the model axis and reduce-scatters a gradient along the data axis.
    """
    shard = 1
    whole = shard * data
    ring = [(d * model + m, d * model + (m + 1) % model) for d in range(data) for m in range(model)]
    pairs = _pairs(ring)
    add = _ADD.format("bf16")
    along_data, along_model = _GROUPS.format("data"), _GROUPS.format("model")
    return f"""module @growing attributes {{mhlo.num_partitions = {data * model} : i32}} {{
  sdy.mesh @mesh = <["data"={data}, "model"={model}]>
  func.func @main(%x: tensor<64x128xbf16>, %w: tensor<{shard}x128xbf16>) -> tensor<64x128xbf16> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:3 = stablehlo.while(%i = %zero, %h = %x, %v = %w) :
        tensor<i32>, tensor<64x128xbf16>, tensor<{shard}x128xbf16>
    cond {{
      %n = stablehlo.constant dense<{layers}> : tensor<i32>
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %g = "stablehlo.all_gather"(%v) <{{all_gather_dim = 0 : i64, {_HANDLE.format(1)},
        {along_data}}}> : (tensor<{shard}x128xbf16>) -> tensor<{whole}x128xbf16>
      %q = stablehlo.dot_general %h, %g, contracting_dims = [1] x [1]
        : (tensor<64x128xbf16>, tensor<{whole}x128xbf16>) -> tensor<64x{whole}xbf16>
      %e = stablehlo.exponential %q : tensor<64x{whole}xbf16>
      %p = stablehlo.dot_general %e, %g, contracting_dims = [1] x [0]
        : (tensor<64x{whole}xbf16>, tensor<{whole}x128xbf16>) -> tensor<64x128xbf16>
      %m = "stablehlo.all_reduce"(%p) <{{{_HANDLE.format(2)}, {along_model}}}> {add}
        : (tensor<64x128xbf16>) -> tensor<64x128xbf16>
      %o = stablehlo.add %h, %m : tensor<64x128xbf16>
      %d = stablehlo.dot_general %q, %o, contracting_dims = [0] x [0]
        : (tensor<64x{whole}xbf16>, tensor<64x128xbf16>) -> tensor<{whole}x128xbf16>
      %t = "stablehlo.reduce_scatter"(%d) <{{scatter_dimension = 0 : i64, {_HANDLE.format(3)},
        {along_data}}}> {add}
        : (tensor<{whole}x128xbf16>) -> tensor<{shard}x128xbf16>
      %u = stablehlo.subtract %v, %t : tensor<{shard}x128xbf16>
      stablehlo.return %j, %o, %u : tensor<i32>, tensor<64x128xbf16>, tensor<{shard}x128xbf16>
    }}
    %k = "stablehlo.collective_permute"(%r#1) <{{{_HANDLE.format(4)},
      source_target_pairs = dense<"0x{pairs}"> : tensor<{len(ring)}x2xi64>}}>
      : (tensor<64x128xbf16>) -> tensor<64x128xbf16>
    return %k : tensor<64x128xbf16>
  }}
}}"""


def _pairs(pairs: list[tuple[int, int]]) -> str:
    """Pairs as MLIR's hexadecimal dense literal (little-endian i64)."""
    return np.array(pairs, dtype="<i8").tobytes().hex().upper()


if __name__ == "__main__":
    data, model, layers = map(int, sys.argv[1:4])
    Path(sys.argv[4]).write_text(program(data, model, layers))
