"""Replacing a collective by others with the same effect, on the same ranks.

The idea: a collective becomes two or three that pass on their results.  A group of n ranks has
parts of ``inner`` consecutive members ("inside"), and groups of one member of each part ("across"):

    all-reduce      reduce-scatter, all-gather (that name joined by +)
    hierarchical:
    all-reduce      reduce-scatter inside, all-reduce across, all-gather inside
    all-gather      all-gather across, all-gather inside
    reduce-scatter  reduce-scatter inside, reduce-scatter across
    all-to-all      all-to-all inside, all-to-all across

A reduce-scatter of e elements leaves ceil(e/n) on a rank, the size of the largest part on all of
them.  Hierarchical gathers, scatters and exchanges pass on the parts in another order, which
libraries undo when they write: this takes no time.  Each step is a separate kernel, which others
may overlap.  Groups whose size is not a multiple of ``inner`` stay as they are, and so do
collectives whose members move different amounts.

    graph = replace_algorithm(graph, kind="all_reduce", by="hierarchical", inner=8)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from flint.errors import UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import DTYPE_BITS, TensorType, tensor_type
from flint.graph.work import NO_WORK, Role, Work
from flint.mesh.groups import Groups, from_table
from flint.passes.columns import with_bodies
from flint.passes.copying import Edges, rebuilt


class Step(NamedTuple):
    """One of the collectives that replace another one, and its results."""

    item: Communication
    results: tuple[TensorType, ...]


class _Parts(NamedTuple):
    """Two partitions of ranks: inside parts, and across them."""

    inside: Groups
    size: int
    across: Groups
    number: int


def replace_algorithm(graph: WorkloadGraph, *, kind: str, by: str, inner: int) -> WorkloadGraph:
    """``graph`` with the collectives of a kind in steps.

    Args:
        graph: at any granularity.
        kind: kind of the collectives (a StableHLO op name).
        by: "reduce-scatter+all-gather" or "hierarchical", see above.
        inner: ranks of a part, for hierarchical ones.

    Raises:
        UsageError: this is not possible for the kind, or parts have a single rank.
    """
    if by == "hierarchical" and inner < 2:
        raise UsageError(f"pass replace: inner={inner}: a part has at least 2 ranks")
    if (kind, by) not in _STEPS:
        known = ", ".join(f"kind={k},by={b}" for k, b in _STEPS)
        raise UsageError(f"pass replace: kind={kind},by={by}: choose from {known}")
    tables = TableBuilder(graph.tables)
    parts: dict[Groups, _Parts | None] = {}

    def steps(item: Communication, results: tuple[TensorType, ...]) -> list[Step]:
        known = len(item.dtypes) == len(item.operand_bytes) == len(results)
        if item.kind != kind or not known or item.largest_bytes or not item.bytes_in:
            return []
        assert item.groups is not None
        if item.groups not in parts:
            parts[item.groups] = _parts(item.groups, inner if by == "hierarchical" else 1)
        found = parts[item.groups]
        return _STEPS[kind, by](item, results, found) if found is not None else []

    return with_tables(_replaced(graph, tables, steps), tables.finish())


_Steps = Callable[[Communication, tuple[TensorType, ...]], list[Step]]


def _replaced(graph: WorkloadGraph, tables: TableBuilder, steps: _Steps) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, _: _replaced(body, tables, steps))
    table = graph.tables.communications
    found: dict[int, list[Step]] = {}
    for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
        new = steps(table[int(graph.detail[node])], graph[node].result_types)
        if new:
            found[node] = new
    if not found:
        return graph
    return rebuilt(
        graph,
        tables,
        found,
        lambda builder, node, values, order: _chain(
            builder, graph, node, found[node], values, order
        ),
    )


def _chain(
    builder: GraphBuilder,
    graph: WorkloadGraph,
    node: int,
    steps: list[Step],
    values: Sequence[int],
    order: Edges,
) -> Sequence[int]:
    """Add the steps in place of a node; returns the last one's results."""
    work = graph[node].work
    for number, (item, results) in enumerate(steps):
        builder.tables.communications.append(item)
        # Reductions happen in the first step.
        mine = Work(() if number else work.items, item.bytes_in, item.bytes_out)
        values = builder.node(
            NodeKind.COMMUNICATION,
            builder.tables.op(item.kind),
            values,
            [builder.tables.type(kind) for kind in results],
            role=Role.COLLECTIVE,
            work=mine if work != NO_WORK else NO_WORK,
            detail=len(builder.tables.communications) - 1,
            source=int(graph.source[node]),
            ops_merged=0 if number else int(graph.ops_merged[node]),
            order=() if number else order,
        )
    return values


def _parts(groups: Groups, inner: int) -> _Parts | None:
    """The partition in parts of ``inner`` ranks; None if they do not divide evenly.

    With ``inner`` 1, "across" is the whole group.
    """
    table = groups.table()
    size = table.shape[1]
    if size < 2 or (inner > 1 and (size % inner or inner >= size)) or (table < 0).any():
        return None
    if inner == 1:
        return _Parts(groups, 1, groups, size)
    rows = table.reshape(len(table), size // inner, inner)
    across = rows.transpose(0, 2, 1).reshape(-1, size // inner)
    return _Parts(
        from_table(groups.world, rows.reshape(-1, inner)), inner,
        from_table(groups.world, across), size // inner,
    )  # fmt: skip


def _step(
    item: Communication, kind: str, groups: Groups, before: Sequence[int], after: Sequence[int]
) -> Communication:
    return replace(
        item,
        kind=kind,
        reduction=item.reduction if kind in ("all_reduce", "reduce_scatter") else None,
        groups=groups,
        operand_bytes=tuple(before),
        result_bytes=tuple(after),
        communicator=item.communicator if groups == item.groups else -1,
    )


def _flat(item: Communication, count: Callable[[int], int]) -> tuple[TensorType, ...]:
    """One row per operand, with that many elements."""
    return tuple(
        tensor_type((count(size * 8 // DTYPE_BITS[dtype]),), dtype)
        for size, dtype in zip(item.operand_bytes, item.dtypes, strict=True)
    )


def _sizes(types: Sequence[TensorType]) -> list[int]:
    return [kind.bytes for kind in types]


def _two_step(item: Communication, results: tuple[TensorType, ...], parts: _Parts) -> list[Step]:
    share = _flat(item, lambda elements: -(-elements // parts.number))
    scatter = _step(item, "reduce_scatter", parts.across, item.operand_bytes, _sizes(share))
    gather = _step(item, "all_gather", parts.across, _sizes(share), item.result_bytes)
    return [Step(scatter, share), Step(gather, results)]


def _all_reduce(item: Communication, results: tuple[TensorType, ...], parts: _Parts) -> list[Step]:
    share = _flat(item, lambda elements: -(-elements // parts.size))
    scatter = _step(item, "reduce_scatter", parts.inside, item.operand_bytes, _sizes(share))
    reduce = _step(item, "all_reduce", parts.across, _sizes(share), _sizes(share))
    gather = _step(item, "all_gather", parts.inside, _sizes(share), item.result_bytes)
    return [Step(scatter, share), Step(reduce, share), Step(gather, results)]


def _all_gather(item: Communication, results: tuple[TensorType, ...], parts: _Parts) -> list[Step]:
    ranks = parts.size * parts.number
    if tuple(size * ranks for size in item.operand_bytes) != item.result_bytes:
        return []
    some = _flat(item, lambda elements: elements * parts.number)
    across = _step(item, "all_gather", parts.across, item.operand_bytes, _sizes(some))
    inside = _step(item, "all_gather", parts.inside, _sizes(some), item.result_bytes)
    return [Step(across, some), Step(inside, results)]


def _reduce_scatter(
    item: Communication, results: tuple[TensorType, ...], parts: _Parts
) -> list[Step]:
    ranks = parts.size * parts.number
    if tuple(size * ranks for size in item.result_bytes) != item.operand_bytes:
        return []
    some = _flat(item, lambda elements: elements // parts.size)
    inside = _step(item, "reduce_scatter", parts.inside, item.operand_bytes, _sizes(some))
    across = _step(item, "reduce_scatter", parts.across, _sizes(some), item.result_bytes)
    return [Step(inside, some), Step(across, results)]


def _all_to_all(item: Communication, results: tuple[TensorType, ...], parts: _Parts) -> list[Step]:
    if item.operand_bytes != item.result_bytes:
        return []
    same = _flat(item, lambda elements: elements)
    inside = _step(item, "all_to_all", parts.inside, item.operand_bytes, _sizes(same))
    across = _step(item, "all_to_all", parts.across, _sizes(same), item.result_bytes)
    return [Step(inside, same), Step(across, results)]


_STEPS: Final[
    dict[
        tuple[str, str],
        Callable[[Communication, tuple[TensorType, ...], _Parts], list[Step]],
    ]
] = {
    ("all_reduce", "reduce-scatter+all-gather"): _two_step,
    ("all_reduce", "hierarchical"): _all_reduce,
    ("all_gather", "hierarchical"): _all_gather,
    ("reduce_scatter", "hierarchical"): _reduce_scatter,
    ("all_to_all", "hierarchical"): _all_to_all,
}
