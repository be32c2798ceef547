"""Attention kernels: pieces of scores become nodes with the operands and the work of one kernel.

The idea: a kernel reads queries, keys, values and gradients, never scores or masks; its work is
that of its parts, without hidden scores and with recomputed ones.

    fused = contracted(block, pieces, tables)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, NodeKind, Tables, WorkloadGraph
from flint.graph.joins import joins, narrowed
from flint.graph.work import Role, Unit
from flint.mesh.ragged import pointer, row_of_entry, total_by_row
from flint.passes.attention.scores import LIGHT, Again, Known, ScoreFinder, Scores
from flint.passes.contract import Columns, contract, surviving
from flint.passes.order_edges import with_more_edges

FORWARD: Final = "attention"
BACKWARD: Final = "attention_backward"


def contracted(block: ScoreFinder, pieces: Sequence[Scores], tables: Tables) -> WorkloadGraph:
    """The block with a node per kernel.

    Args:
        block: the block to fuse.
        pieces: pieces of its scores; members know their kernels.
        tables: tables of the new graph, with the kernels' names.

    Raises:
        FlintError: kernels would wait for each other.
    """
    graph = block.graph
    kernel_of: dict[int, tuple[int, int]] = {}
    for number, piece in enumerate(pieces):
        for node, kernel in piece.members.items():
            kernel_of.setdefault(node, (number, kernel))
    again, causal = _rewired(block, pieces, kernel_of)
    graph = replace(graph, operand=again.operand, operand_ptr=again.ptr)
    graph = with_more_edges(graph, list(dict.fromkeys(again.held)))
    dead, unread = _dead(block, graph)
    kernel_of = {node: key for node, key in kernel_of.items() if not dead[node]}
    graph = _with_work(graph, pieces, kernel_of, again.recomputed, causal)
    leaders: dict[tuple[int, int], int] = {}
    for node in sorted(kernel_of):
        chosen = leaders.setdefault(kernel_of[node], node)
        if block.role[node] == Role.CONTRACTION and block.role[chosen] != Role.CONTRACTION:
            leaders[kernel_of[node]] = node
    op, role = graph.op.copy(), graph.role.copy()
    # A backward pass comes later, or also makes a gradient of scores.
    for (number, kernel), leader in leaders.items():
        made = sum(pieces[number].members[maker] == kernel for maker in pieces[number].makers)
        later = kernel or pieces[number].rows or made > 1
        op[leader] = tables.ops.index(BACKWARD if later else FORWARD)
        role[leader] = Role.OPAQUE
    graph = narrowed(replace(graph, op=op, role=role, tables=tables), unread)
    cluster = np.full(len(graph), -1, np.int64)
    leader_of: list[int] = []
    numbers: dict[tuple[int, int], int] = {}
    for node in range(len(graph)):
        key = kernel_of.get(node)
        if key is not None:
            if key not in numbers:
                numbers[key] = len(leader_of)
                leader_of.append(leaders[key])
            cluster[node] = numbers[key]
        elif not dead[node]:
            cluster[node] = len(leader_of)
            leader_of.append(node)
    members = np.array(leader_of, np.int64)
    read, written, aliased = _bytes(graph, cluster, numbers)
    columns = Columns(members, read[members], written[members], aliased[members])
    return contract(graph, cluster, columns)


@dataclass(frozen=True, slots=True)
class _Rewired:
    """New operands.

    Attributes:
        ptr, operand: CSR columns.
        recomputed: kernels that recompute scores of an earlier one, and the products for that.
        held: nodes that wait for a join because they take scores from it.
    """

    ptr: Ints
    operand: Ints
    recomputed: Mapping[tuple[int, int], Again]
    held: list[tuple[int, int]]


def _rewired(
    block: ScoreFinder, pieces: Sequence[Scores], kernel_of: dict[int, tuple[int, int]]
) -> tuple[_Rewired, frozenset[int]]:
    """Make members read only what their kernel needs: no masks, no broadcasts, no earlier scores.

    Returns:
        The operands, and which pieces hide scores by position.
    """
    counts: list[int] = []
    operands: list[int] = []
    recomputed: dict[tuple[int, int], Again] = {}
    held: list[tuple[int, int]] = []
    causal: set[int] = set()
    for node in range(len(block.kind)):
        key = kernel_of.get(node)
        mine = block.operands(node)
        if key is None:
            counts.append(len(mine))
            operands += mine
            continue
        piece = pieces[key[0]]
        new: dict[int, None] = {}
        for value in mine:
            value = _looked_through(block, value, piece.elements, kernel_of)
            if block.known[value]:
                if block.known[value] == Known.BY_POSITION and piece.square:
                    causal.add(key[0])
                continue
            maker = block.producer[block.named[value]]
            if block.named[value] != value:
                held.append((node, block.producer[value]))
            if maker in piece.rows:
                _add(recomputed, key, piece.rows[maker])
                if piece.rows[maker].hidden:
                    causal.add(key[0])
                continue
            other = kernel_of.get(maker)
            crosses = other is not None and other[0] == key[0] and other[1] < key[1]
            if crosses and block.elements[value] == piece.elements:
                _add(recomputed, key, block.again(piece, maker, key[1]))
                for maker in piece.makers:
                    if piece.members[maker] < key[1]:
                        new.update(dict.fromkeys(block.operands(maker)))
            else:
                new[value] = None
        counts.append(len(new))
        operands += new
    rewired = _Rewired(
        pointer(np.array(counts, np.int64)), np.array(operands, np.int64), recomputed, held
    )
    return rewired, frozenset(causal)


def _add(found: dict[tuple[int, int], Again], key: tuple[int, int], more: Again) -> None:
    known = found.get(key, Again())
    found[key] = Again(
        tuple(dict.fromkeys(known.products + more.products)),
        known.exponential or more.exponential,
        known.hidden or more.hidden,
    )


def _looked_through(
    block: ScoreFinder, value: int, elements: int, kernel_of: dict[int, tuple[int, int]]
) -> int:
    """The value that a broadcast to scores is made of."""
    while True:
        node = block.producer[value]
        if node < 0 or node in kernel_of or block.role[node] != Role.MOVEMENT:
            return value
        operands = block.operands(node)
        if len(operands) != 1 or block.elements[operands[0]] >= block.elements[value]:
            return value
        if block.elements[value] < elements:
            return value
        value = operands[0]


def _with_work(
    graph: WorkloadGraph,
    pieces: Sequence[Scores],
    kernel_of: dict[int, tuple[int, int]],
    recomputed: Mapping[tuple[int, int], Again],
    causal: frozenset[int],
) -> WorkloadGraph:
    """Work of members, without hidden scores and with recomputed ones."""
    flops, dtype = graph.work_flops.copy(), graph.work_dtype.copy()
    extra: dict[int, list[tuple[int, int, int, int]]] = {}
    for node, (number, _) in kernel_of.items():
        piece = pieces[number]
        items = slice(int(graph.work_ptr[node]), int(graph.work_ptr[node + 1]))
        # Kernels multiply in the type of queries and keys.
        first = int(graph.work_ptr[piece.makers[0]])
        matmul = graph.work_unit[items] == Unit.MATMUL
        dtype[items] = np.where(matmul, graph.work_dtype[first], dtype[items])
        if number in causal:
            flops[items] = _visible(flops[items], piece.square)
    left = set(kernel_of.values())
    for key, (products, exponential, _) in recomputed.items():
        if key not in left:
            continue
        piece = pieces[key[0]]
        kind = int(dtype[graph.work_ptr[piece.makers[0]]])
        # Work of the recomputed products, and of the exponentials of their results.
        sizes = np.array([[work, piece.elements] for _, work, _ in products], np.int64)
        if key[0] in causal:
            sizes = _visible(sizes, piece.square)
        home = next(node for node, other in kernel_of.items() if other == key)
        rows = extra.setdefault(home, [])
        for (_, _, gemm), (work, count) in zip(products, sizes.tolist(), strict=True):
            rows.append((Unit.MATMUL, kind, work, gemm))
            if exponential:
                rows.append((Unit.TRANSCENDENTAL, kind, count, -1))
    counts = np.diff(graph.work_ptr)
    at = {node: int(graph.work_ptr[node + 1]) for node in extra}
    where = [at[node] for node in sorted(extra) for _ in extra[node]]
    rows = [row for node in sorted(extra) for row in extra[node]]
    for node in extra:
        counts[node] += len(extra[node])

    def put(column: NDArray[np.signedinteger], index: int) -> NDArray[np.signedinteger]:
        return np.insert(column, where, [row[index] for row in rows]).astype(column.dtype)

    return replace(
        graph,
        work_ptr=pointer(counts),
        work_unit=put(graph.work_unit, 0),
        work_dtype=put(dtype, 1),
        work_flops=put(flops, 2),
        work_gemm=put(graph.work_gemm, 3),
    )


def _visible(flops: Ints, positions: int) -> Ints:
    """The part of the work on scores that a causal mask leaves, (T + 1) / 2T of it."""
    visible: Ints = flops // (2 * positions) * (positions + 1)
    return visible


def _dead(block: ScoreFinder, graph: WorkloadGraph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Nodes that only made what kernels now make themselves, shape [nodes], and the values that
    joins pass on only for these, shape [values].
    """
    was = np.bincount(block.graph.operand, minlength=graph.values)
    users = np.bincount(graph.operand, minlength=graph.values)
    users[graph.outputs] += 1
    lost = was > users
    ordered = np.zeros(len(graph), np.bool_)
    ordered[graph.order_node] = True
    dead = np.zeros(len(graph), np.bool_)
    unread = np.zeros(graph.values, np.bool_)
    joining = joins(graph)
    for node in range(len(graph) - 1, -1, -1):
        results = slice(block.first[node], block.first[node + 1])
        if joining[node]:
            unread[results] = lost[results] & (users[results] == 0)
            low, high = graph.operand_ptr[node : node + 2]
            given_up = graph.operand[low:high][unread[results]]
            np.subtract.at(users, given_up, 1)
            lost[given_up] = True
            continue
        light = block.kind[node] == NodeKind.COMPUTE and block.role[node] in LIGHT
        if not light or ordered[node]:
            continue
        if lost[results].any() and not users[results].any():
            dead[node] = True
            low, high = graph.operand_ptr[node], graph.operand_ptr[node + 1]
            np.subtract.at(users, graph.operand[low:high], 1)
            lost[graph.operand[low:high]] = True
    return dead, unread


def _bytes(
    graph: WorkloadGraph, cluster: Ints, kernels: dict[tuple[int, int], int]
) -> tuple[Ints, Ints, Ints]:
    """Bytes read, written and aliased by node; kernels read each outside value once."""
    read, written = graph.bytes_read.copy(), graph.bytes_written.copy()
    aliased = graph.bytes_aliased.copy()
    fused = np.isin(cluster, list(kernels.values()))
    home = np.where(graph.producer >= 0, cluster[graph.producer], -2)
    reader = cluster[graph.consumer]
    outside = fused[graph.consumer] & (home[graph.operand] != reader)
    pairs = np.unique(np.stack([reader[outside], graph.operand[outside]], axis=1), axis=0)
    size = int(cluster.max(initial=-1)) + 1
    taken = total_by_row(graph.value_bytes[pairs[:, 1]], pairs[:, 0], size)
    owner = row_of_entry(graph.result_ptr)
    leaving = graph.value_bytes[graph.inputs :] * surviving(graph, cluster)
    made = total_by_row(leaving[fused[owner]], cluster[owner[fused[owner]]], size)
    read[fused], written[fused] = taken[cluster[fused]], made[cluster[fused]]
    aliased[fused] = 0
    return read, written, aliased
