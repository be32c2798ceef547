"""Structures: which ranks of a program run the same nodes with the same edges.

The idea: ranks are distinguished by columns, one for each property that can differ (whether the
rank sends or receives in a permutation, whether it is in a group, its depth in the broadcast
tree).  Ranks with equal rows are one *structure*, however many they are.

    structures(graph.tables.communications, used_communications(graph), np.arange(512))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flint.execution.forms import NO_NODES, RankForm, bytes_of, rank_form
from flint.execution.peers import children_in_tree, combine, shape_of_exchange
from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.mesh.groups import TableGroups


@dataclass(frozen=True, eq=False, slots=True)
class Structure:
    """Ranks that run the same nodes.

    Attributes:
        ranks: the ranks, ascending.
        parts: what they do, per entry of the program's communication table.
    """

    ranks: Ints
    parts: tuple[RankForm, ...]


def used_communications(graph: WorkloadGraph) -> list[int]:
    """Entries of the communication table that the program issues."""
    found: set[int] = set()
    for block, _ in graph.walk():
        found.update(block.detail[block.kind == NodeKind.COMMUNICATION].tolist())
    return sorted(found)


def structures(
    communications: Sequence[Communication], used: Sequence[int], ranks: Ints
) -> list[Structure]:
    """Partition ``ranks`` by what they do in the communications ``used``."""
    code, first = combine(_columns([communications[i] for i in used], ranks), len(ranks))
    members = rows_by_class(code, len(first))
    return [
        Structure(ranks[where], _parts(communications, used, int(ranks[one])))
        for where, one in zip(members, first.tolist(), strict=True)
    ]


def _columns(items: Iterable[Communication], ranks: Ints) -> Iterable[Ints]:
    seen: set[tuple[str, int]] = set()
    for item in items:
        groups = item.groups
        key = ("p", id(item.permutation)) if item.point_to_point else (
            "t" if item.kind == "collective_broadcast" else "g", id(groups))  # fmt: skip
        if key in seen:
            continue
        seen.add(key)
        if item.point_to_point and item.permutation is not None:
            yield shape_of_exchange(item.permutation, ranks)
        elif item.kind == "collective_broadcast" and groups is not None:
            yield children_in_tree(groups, ranks)
            yield (groups.position(ranks) == 0).astype(np.int64)
        elif isinstance(groups, TableGroups):
            yield np.minimum(groups.group_size(ranks), 2)


def _parts(
    communications: Sequence[Communication], used: Sequence[int], rank: int
) -> tuple[RankForm, ...]:
    """The parts of one rank; entries that are not used are absent."""
    nothing = RankForm(NO_NODES)
    parts = [nothing] * len(communications)
    known: dict[tuple[str, int, bool], RankForm] = {}
    for index in used:
        item = communications[index]
        key = (item.kind, id(item.permutation or item.groups), not bytes_of(item))
        if key not in known:
            known[key] = rank_form(item, rank)
        parts[index] = known[key]
    return tuple(parts)


def rows_by_class(code: Ints, count: int) -> list[Ints]:
    """Row numbers by class, ascending."""
    if count <= 1:
        return [np.arange(len(code), dtype=np.int64)] * count
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
