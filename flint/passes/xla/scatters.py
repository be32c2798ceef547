"""Sums with what is scattered, which XLA's compiler scatters into the other summand.

The idea: the gradient of a table that is looked up, or of slots that tokens are sent to, begins as
zeros of the table's size.  Where it is added to another gradient, as in a model whose embedding is
its head, too, nothing of that size has to be written (``AlgebraicSimplifier``):

    add x, scatter (broadcast 0), indices, updates        scatter x, indices, updates
    add x, scatter y, indices, updates                    scatter (add x, y), indices, updates

It does if the scatter adds and nothing else reads it, so that of several summands all others are
added first; a sum of two scatters stays if their updates are as many elements as the table has
(``update_concat_is_cheap``).  What is scattered into is copied first if it is read later or passed
in (``CopyInsertion``).

Source: ``algebraic_simplifier.cc`` of openxla/xla (2026), ``HandleAdd``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import ADDS, WORK_COLUMNS, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, lists
from flint.passes.permute import permuted
from flint.passes.xla.simplify import without_unread
from flint.passes.xla.transposes import Copy, Transpose, with_transposes

#: Operands of a scatter of one value.
_OPERANDS = 3
#: What a node does, which moves to another node.
_DOES = ("op", "role", "bytes_read", "bytes_written", "bytes_aliased")


def added_scatters(graph: WorkloadGraph) -> WorkloadGraph:
    """One block whose sums with scatters are scatters; its table of ops has ``Copy``'s entry."""
    while found := dict(_found(graph)):
        graph = _scattered(graph, found)
    return graph


def _scattered(graph: WorkloadGraph, found: dict[int, tuple[int, int]]) -> WorkloadGraph:
    """The block with these sums, each with its scatter and the other summand, as scatters."""
    place = np.arange(len(graph), dtype=np.float64)
    for node, (scatter, _) in found.items():
        place[scatter] = node - 0.5  # its only reader
    order = np.argsort(place, kind="stable")
    now = np.argsort(order)
    sums = {int(now[node]): int(now[scatter]) for node, (scatter, _) in found.items()}
    sides = {int(now[node]): graph.operands_of(node).tolist().index(other)
             for node, (_, other) in found.items()}  # fmt: skip
    graph = permuted(graph, order)
    operands = lists(graph.operand_ptr, graph.operand)
    columns = {name: getattr(graph, name).copy() for name in _DOES}
    owner = row_of_entry(graph.work_ptr)
    alone: dict[int, int] = {}  # what is scattered into is no sum
    for node, scatter in sums.items():
        other, [base, *rest] = operands[node][sides[node]], operands[scatter]
        for column in columns.values():
            column[[node, scatter]] = column[[scatter, node]]
        mine, its = owner == node, owner == scatter
        owner[mine], owner[its] = scatter, node
        made = graph.inputs + int(graph.result_ptr[scatter])
        operands[scatter], operands[node] = [base, other], [made, *rest]
        if _is_zero(graph, base):
            operands[node][0] = alone[node] = other
    items = np.argsort(owner, kind="stable")
    changed = replace(
        graph, **columns,
        operand=np.array([value for row in operands for value in row], dtype=np.int64),
        operand_ptr=pointer(np.array([len(row) for row in operands], dtype=np.int64)),
        work_ptr=pointer(np.bincount(owner, minlength=len(graph))),
        **gathered(graph, WORK_COLUMNS, items),
    )  # fmt: skip
    copies: dict[int, Transpose | Copy] = {}
    for node, other in alone.items():
        readers = np.flatnonzero(changed.operand == other)
        later = changed.consumer[readers].max() > node or (changed.outputs == other).any()
        if other < changed.inputs or later:
            entry = int(changed.operand_ptr[node])
            copies.setdefault(other, Copy([])).entries.append(entry)
    return without_unread(with_transposes(changed, copies))


def _found(graph: WorkloadGraph) -> list[tuple[int, tuple[int, int]]]:
    """Sums, each with the scatter and the other summand."""
    forms = [form for *_, form in graph.tables.entries()]
    names = graph.tables.ops
    scatters = np.array([name == "scatter" for name in names], dtype=bool)[graph.op]
    if not scatters.any():
        return []
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    free = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
    free[graph.order_node] = False
    free &= graph.kind == NodeKind.COMPUTE
    able = scatters & free & (np.diff(graph.operand_ptr) == _OPERANDS)
    able &= np.array([form[-1:] == (ADDS,) for form in forms], dtype=bool)[graph.op]
    found: list[tuple[int, tuple[int, int]]] = []
    taken: set[int] = set()
    sums = np.array([name == "add" for name in names], dtype=bool)[graph.op] & free

    def _scatters(value: int) -> bool:
        maker = int(graph.producer[value])
        return maker >= 0 and bool(able[maker]) and uses[value] == 1

    for node in np.flatnonzero(sums & (graph.role == Role.ELEMENTWISE)).tolist():
        one, two = graph.operands_of(node).tolist()
        for scattered, other in ((two, one), (one, two)):
            maker = int(graph.producer[scattered])
            met = {maker, node, int(graph.producer[other])}
            if not _scatters(scattered) or taken & met:
                continue
            if _scatters(other) and _updated(graph, maker, int(graph.producer[other])):
                continue
            found.append((node, (maker, other)))
            taken |= met - {-1}
            break
    return found


def _updated(graph: WorkloadGraph, *scatters: int) -> bool:
    """Whether scatters update as many elements as their table has, or more."""
    tables, updates = (
        [graph.type_of(int(graph.operands_of(node)[place])).elements for node in scatters]
        for place in (0, _OPERANDS - 1)
    )
    return sum(updates) >= max(tables)


def _is_zero(graph: WorkloadGraph, value: int) -> bool:
    """Whether a value is a broadcast of a zero."""
    forms = [form for *_, form in graph.tables.entries()]
    while (maker := int(graph.producer[value])) >= 0:
        name, form = graph.tables.ops[graph.op[maker]], forms[graph.op[maker]]
        if name == "constant":
            return bool(form == (0,))
        if name != "broadcast_in_dim":
            return False
        value = int(graph.operand[graph.operand_ptr[maker]])
    return False
