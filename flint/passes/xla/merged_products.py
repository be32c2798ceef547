"""Products that share an operand, which XLA's GPU compiler merges into one (``DotMerger``).

The idea: queries, keys and values are products of the same tokens.  XLA multiplies the tokens once
by the matrices side by side, and other kernels cut the result into its parts:

    q = x wq;  k = x wk;  v = x wv        qkv = x [wq wk wv];  q, k, v = slices of qkv

Two products are merged if they contract the same dims of the shared operand, with the same types,
if at least one of them is small (operands and result ``MAX_BYTES``), and if neither depends on the
other.  An operand that one of them reads transposed counts as the same.

The product's kernel loads the matrices from where they are if each has a multiple of 64 rows;
otherwise a kernel writes them side by side, because a tile would belong to two of them.

Merging delays what only the first product is needed for.  Where that would issue communications in
another order, products are not merged: programs of one workload keep the order that they share.

Sources: ``dot_merger.cc``, ``triton_tiling_propagation.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WORK_COLUMNS, Ints, NodeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, lists, repeated
from flint.passes.contract import Columns, contract, issue_rank
from flint.passes.xla.mergeable import Product, groups

#: Names of the ops that cut and join; a part of a product that had the shared operand on the other
#: side is transposed.
SLICE: Final = "slice"
TRANSPOSE: Final = "transpose"
CONCATENATE: Final = "concatenate"
#: Rows of the smallest tile: operands of a multiple of it can be loaded side by side.
_TILE_ROWS: Final = 64
#: The most tensors that a kernel loads as one operand.
_LOADED: Final = 4

Gemm = tuple[int, int, int, int]


def merge_products(
    graph: WorkloadGraph, types: dict[TensorType, int], gemms: dict[Gemm, int]
) -> WorkloadGraph:
    """One block with its products merged.

    Args:
        graph: the block; its table of ops has ``SLICE`` and ``CONCATENATE``.
        types, gemms: all types and sizes of products of the program, by number; new ones are added.
    """
    found = groups(graph)
    if not found:
        return graph
    copies = np.ones(len(graph), dtype=np.int64)
    for group in found:
        copies[[each.node for each in group]] = 2
        copies[group[-1].node] += _written(group)
    copied, _, last = repeated(graph, copies)
    edited, dropped = _with_merged(copied, last, found, types, gemms)
    cluster = np.cumsum(~dropped) - 1
    cluster[dropped] = -1
    kept = np.flatnonzero(~dropped)
    # Programs of one workload keep the order of communications that they share.
    ordered = cluster[np.flatnonzero((edited.kind != NodeKind.COMPUTE) & ~dropped)]
    if (np.diff(issue_rank(edited, cluster, len(kept))[ordered]) < 0).any():
        return graph
    moved = (edited.bytes_read, edited.bytes_written, edited.bytes_aliased)
    return contract(edited, cluster, Columns(kept, *(column[kept] for column in moved)))


def _written(group: Sequence[Product]) -> bool:
    """Whether the operands must be written side by side before they can be loaded."""
    return len(group) > _LOADED or any(each.other % _TILE_ROWS for each in group)


def _with_merged(
    graph: WorkloadGraph,
    last: Ints,
    found: Iterable[Sequence[Product]],
    types: dict[TensorType, int],
    gemms: dict[Gemm, int],
) -> tuple[WorkloadGraph, NDArray[np.bool_]]:
    """The graph with merged products, and which nodes they replace, shape [nodes].

    Args:
        graph: with two copies of each product, the second for its part of the merged one; with
            three of the last one of a group if the first is to write its operands side by side.
        last: last copy of each former node.
        found: the groups.
        types, gemms: new ones are added.
    """
    operands = lists(graph.operand_ptr, graph.operand)
    columns = {name: getattr(graph, name).copy() for name in ("op", "role")}
    read, written = graph.bytes_read.copy(), graph.bytes_written.copy()
    result_type, flops, gemm = (
        graph.result_type.copy(),
        graph.work_flops.copy(),
        graph.work_gemm.copy(),
    )
    worked = np.ones(len(graph), dtype=bool)
    dropped = np.zeros(len(graph), dtype=bool)

    def moves(node: int, name: str, size: int) -> None:
        columns["role"][node], columns["op"][node] = Role.MOVEMENT, graph.tables.plain(name)
        read[node] = written[node] = size
        worked[node] = False

    def makes(node: int, shape: tuple[int, ...], kind: str) -> int:
        made = tensor_type(shape, kind)
        result_type[graph.result_ptr[node]] = types.setdefault(made, len(types))
        return made.bytes

    for group in found:
        parts = last[[each.node for each in group]].tolist()
        one, merged = group[0], parts[-1] - 1
        outer = (one.batch,) if one.batch > 1 else ()
        rows = sum(each.other for each in group)
        shared = operands[merged][group[-1].side]
        others = [operands[part][1 - each.side] for each, part in zip(group, parts, strict=True)]
        if _written(group):
            moves(merged - 1, CONCATENATE, sum(each.bytes[1] for each in group))
            makes(merged - 1, (*outer, rows, one.k), one.kinds[1])
            operands[merged - 1] = others
            others = [graph.inputs + int(graph.result_ptr[merged - 1])]
        for each, part in zip(group, parts, strict=True):
            moves(part, SLICE if each.side == one.side else TRANSPOSE, each.bytes[2])
            operands[part] = [graph.inputs + int(graph.result_ptr[merged])]
            dropped[part - 1] = part - 1 != merged
        operands[merged] = [shared, *others]
        read[merged] = one.bytes[0] + sum(each.bytes[1] for each in group)
        written[merged] = makes(merged, (*outer, one.shared, rows), one.kinds[2])
        item = int(graph.work_ptr[merged])
        flops[item] = sum(int(graph.work_flops[graph.work_ptr[part - 1]]) for part in parts)
        sizes = (one.batch, one.shared, rows, one.k)
        gemm[item] = gemms.setdefault(sizes, len(gemms))
    _drop_unread(graph, operands, dropped)
    owner = row_of_entry(graph.work_ptr)
    items = np.flatnonzero((worked & ~dropped)[owner])
    edited = replace(
        graph,
        **columns,
        tables=replace(graph.tables, types=tuple(types), gemms=tuple(gemms)),
        bytes_read=read,
        bytes_written=written,
        result_type=result_type,
        operand_ptr=pointer(np.array([len(row) for row in operands], dtype=np.int64)),
        operand=np.array([value for row in operands for value in row], dtype=np.int64),
        work_ptr=pointer(np.bincount(owner[items], minlength=len(graph))),
        **gathered(replace(graph, work_flops=flops, work_gemm=gemm), WORK_COLUMNS, items),
    )
    return edited, dropped


def _drop_unread(
    graph: WorkloadGraph, operands: list[list[int]], dropped: NDArray[np.bool_]
) -> None:
    """Drop transposes too that only dropped products read."""
    transposes = np.array([name == "transpose" for name in graph.tables.ops], dtype=bool)[graph.op]
    reads = np.zeros(graph.values, dtype=np.int64)
    for node in np.flatnonzero(~dropped).tolist():
        np.add.at(reads, operands[node], 1)
    reads[graph.outputs] += 1
    for node in np.flatnonzero(transposes)[::-1].tolist():
        if not reads[graph.inputs + graph.result_ptr[node]]:
            dropped[node] = True
            reads[operands[node]] -= 1
