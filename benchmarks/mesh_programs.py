"""Write a transformer-like training step for any mesh and any number of layers.

The idea: to see what grows with the ranks, everything else must stay as it is.  The mesh has axes
replica, shard and tensor (hybrid sharding); only ``replica`` grows, so that one rank's shapes, ops
and communications are the same from 64 ranks to a million.  The layers are one loop: weights of a
layer are all-gathered along ``shard``, activations all-reduced along ``tensor``, gradients
reduce-scattered along ``shard`` and all-reduced along ``replica``.  After the loop one
collective_permute passes the activations along a ring.  Groups are written as mesh axes; only the
permute has a dense table of all ranks, and can be left out.

    python benchmarks/mesh_programs.py --ranks 4096 --layers 32 step_4096.mlirbc
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

SHARD, TENSOR = 8, 8
TOKENS, MODEL, INNER = 1024, 4096, 512
#: Pairs of projections (up and down) in a layer.
PAIRS = 4

X = f"tensor<{TOKENS}x{MODEL}xbf16>"
H = f"tensor<{TOKENS}x{INNER}xbf16>"
INDEX = "tensor<i32>"
#: Projection -> (rows of a shard, columns).
WEIGHTS = {"up": (MODEL // SHARD, INNER), "down": (INNER // SHARD, MODEL)}


def tensor(*shape: int) -> str:
    """A bf16 tensor type."""
    return f"tensor<{'x'.join(map(str, shape))}xbf16>"


def _groups(axis: str, channel: int) -> str:
    return (
        f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>, "
        "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = "
        f'[#stablehlo.axis_ref<name = "{axis}">]>, use_global_device_ids'
    )


def _reducing(op: str, value: str, attributes: str, types: str) -> str:
    return (
        f'"stablehlo.{op}"({value}) <{{{attributes}}}> ({{ ^bb0(%l: tensor<bf16>, %r: '
        'tensor<bf16>): %c = "stablehlo.add"(%l, %r) : (tensor<bf16>, tensor<bf16>) -> '
        'tensor<bf16> "stablehlo.return"(%c) : (tensor<bf16>) -> () '
        f"}}) : {types}"
    )


def _dot(result: str, lhs: str, rhs: str, over: tuple[int, int], types: tuple[str, ...]) -> str:
    dims = (
        "lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = "
        f"[{over[0]}], rhs_contracting_dimensions = [{over[1]}]"
    )
    return (
        f'{result} = "stablehlo.dot_general"({lhs}, {rhs}) <{{dot_dimension_numbers = '
        f"#stablehlo.dot<{dims}>}}> : ({types[0]}, {types[1]}) -> {types[2]}"
    )


def _projection(name: str, kind: str, source: str, target: str, layers: int, channel: int) -> str:
    """A projection of ``source`` and its weight's gradient; all op by op."""
    rows, columns = WEIGHTS[kind]
    stack, one = tensor(layers, rows, columns), tensor(1, rows, columns)
    shard, whole = tensor(rows, columns), tensor(rows * SHARD, columns)
    before, after = (X, H) if kind == "up" else (H, X)
    gather = f"all_gather_dim = 0 : i64, {_groups('shard', channel)}"
    scatter = f"scatter_dimension = 0 : i64, {_groups('shard', channel + 1)}"
    lines = [
        f'%{name}_1 = "stablehlo.dynamic_slice"(%w_{name}, %i, %zero, %zero) <{{slice_sizes = '
        f"array<i64: 1, {rows}, {columns}>}}> : ({stack}, {INDEX}, {INDEX}, {INDEX}) -> {one}",
        f'%{name}_2 = "stablehlo.reshape"(%{name}_1) : ({one}) -> {shard}',
        f'%{name}_3 = "stablehlo.all_gather"(%{name}_2) <{{{gather}}}> : ({shard}) -> {whole}',
        _dot(f"%{name}_4", source, f"%{name}_3", (1, 0), (before, whole, after)),
        f'%{name}_5 = "stablehlo.tanh"(%{name}_4) : ({after}) -> {after}',
    ]
    if kind == "down":
        summed = _reducing(
            "all_reduce", f"%{name}_5", _groups("tensor", channel + 3), f"({after}) -> {after}"
        )
        lines += [
            f"%{name}_s = {summed}",
            f'{target} = "stablehlo.add"(%x{name[4:]}, %{name}_s) : ({after}, {after}) -> {after}',
        ]
    else:
        lines.append(
            f'{target} = "stablehlo.multiply"(%{name}_5, %{name}_5) : ({after}, {after}) -> {after}'
        )
    lines += [
        _dot(f"%{name}_6", source, f"%{name}_5", (0, 0), (before, after, whole)),
        f"%{name}_7 = "
        + _reducing("reduce_scatter", f"%{name}_6", scatter, f"({whole}) -> {shard}"),
        f"%{name}_8 = "
        + _reducing(
            "all_reduce", f"%{name}_7", _groups("replica", channel + 2), f"({shard}) -> {shard}"
        ),
        f'%{name}_9 = "stablehlo.reshape"(%{name}_8) : ({shard}) -> {one}',
        f'%g_{name}_new = "stablehlo.dynamic_update_slice"(%g_{name}, %{name}_9, %i, %zero, %zero)'
        f" : ({stack}, {one}, {INDEX}, {INDEX}, {INDEX}) -> {stack}",
    ]
    return "\n".join(f"      {line}" for line in lines)


def _ring(ranks: int) -> str:
    """Every rank to the next along ``shard``, as a dense table."""
    grid = np.arange(ranks).reshape(-1, SHARD, TENSOR)
    pairs = np.stack([grid, np.roll(grid, -1, 1)], axis=-1).reshape(-1, 2).astype("<i8")
    return f'dense<"0x{pairs.tobytes().hex()}"> : tensor<{ranks}x2xi64>'


def text(ranks: int, layers: int, permute: bool = True) -> str:
    """The step as MLIR text.

    Args:
        ranks: a multiple of 64.
        layers: trip count of the loop.
        permute: end with the collective_permute.
    """
    replicas, rest = divmod(ranks, SHARD * TENSOR)
    if rest or not replicas:
        raise ValueError(f"{ranks} ranks are no multiple of {SHARD * TENSOR}")
    names = [f"{kind}{pair}" for pair in range(PAIRS) for kind in ("up", "down")]
    stacks = [tensor(layers, *WEIGHTS[name[:-1]]) for name in names]
    weights = [f"%w_{name}" for name in names]
    carried = ["%i", "%x0", *weights, *(f"%g_{name}" for name in names)]
    types = [INDEX, X, *stacks, *stacks]
    body = []
    for pair in range(PAIRS):
        channel = 1 + 8 * pair
        body += [
            _projection(f"up{pair}", "up", f"%x{pair}", f"%h{pair}", layers, channel),
            _projection(f"down{pair}", "down", f"%h{pair}", f"%x{pair + 1}", layers, channel + 3),
        ]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(carried, types, strict=True))
    listed = ", ".join(types)
    given = ["%start", "%x", *(f"%in_{name}" for name in [*names, *(f"g_{n}" for n in names)])]
    inputs = ", ".join(f"{name}: {kind}" for name, kind in zip(given[1:], types[1:], strict=True))
    yielded = ", ".join(["%next", f"%x{PAIRS}", *weights, *(f"%g_{name}_new" for name in names)])
    handle = f"#stablehlo.channel_handle<handle = {8 * PAIRS + 9}, type = 1>"
    moved = (
        f'    %out = "stablehlo.collective_permute"(%r#1) <{{channel_handle = {handle}, '
        f"source_target_pairs = {_ring(ranks)}}}> : ({X}) -> {X}"
    )
    results = [moved if permute else f'    %out = "stablehlo.tanh"(%r#1) : ({X}) -> {X}']
    outputs = ", ".join(["%out", *(f"%r#{2 + len(names) + i}" for i in range(len(names)))])
    output_types = ", ".join([X, *stacks])
    return "\n".join(
        [
            f"module @step attributes {{mhlo.num_partitions = {ranks} : i32, "
            "mhlo.num_replicas = 1 : i32} {",
            f'  sdy.mesh @mesh = <["replica"={replicas}, "shard"={SHARD}, "tensor"={TENSOR}]>',
            f"  func.func public @main({inputs}) -> ({output_types}) {{",
            f'    %start = "stablehlo.constant"() <{{value = dense<0> : {INDEX}}}> : () -> {INDEX}',
            f'    %zero = "stablehlo.constant"() <{{value = dense<0> : {INDEX}}}> : () -> {INDEX}',
            f'    %r:{len(types)} = "stablehlo.while"({", ".join(given)}) ({{',
            f"    ^bb0({arguments}):",
            f'      %end = "stablehlo.constant"() <{{value = dense<{layers}> : {INDEX}}}> : () -> '
            f"{INDEX}",
            '      %more = "stablehlo.compare"(%i, %end) <{comparison_direction = '
            f"#stablehlo<comparison_direction LT>}}> : ({INDEX}, {INDEX}) -> tensor<i1>",
            '      "stablehlo.return"(%more) : (tensor<i1>) -> ()',
            "    }, {",
            f"    ^bb0({arguments}):",
            *body,
            f'      %one = "stablehlo.constant"() <{{value = dense<1> : {INDEX}}}> : () -> {INDEX}',
            f'      %next = "stablehlo.add"(%i, %one) : ({INDEX}, {INDEX}) -> {INDEX}',
            f'      "stablehlo.return"({yielded}) : ({listed}) -> ()',
            f"    }}) : ({listed}) -> ({listed})",
            *results,
            f"    return {outputs} : {output_types}",
            "  }",
            "}",
        ]
    )


def write(path: Path, *, ranks: int, layers: int, permute: bool = True) -> None:
    """Write the step to ``path`` as MLIR bytecode."""
    from modules import bytecode

    path.write_bytes(bytecode(text(ranks, layers, permute)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="write a training step for any mesh")
    parser.add_argument("path", type=Path)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--no-permute", action="store_true", help="no dense table of ranks")
    given = parser.parse_args()
    write(given.path, ranks=given.ranks, layers=given.layers, permute=not given.no_permute)


if __name__ == "__main__":
    main()
