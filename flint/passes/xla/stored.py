"""Broadcasts that XLA's GPU compiler keeps in memory, because an update overwrites them.

The idea: a kernel is computed in all of its readers or in none (``PriorityFusion``), and no update
computes the buffer that it writes into.  So zeros that a scatter adds to are written, and if the
rectified activations of the same shape compare with the same zeros (equal ops are one,
``flint.passes.xla.simplify``), each of them reads these:

    zeros = broadcast_in_dim 0;  maximum x, zeros;  scatter zeros, ...;  select ..., zeros

What is read after an update, too, is copied for it (``CopyInsertion``), by a kernel that fuses with
nothing; the update then works in place.

Source: ``priority_fusion.cc``, ``copy_insertion.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import IMMEDIATE_BYTES, can_make_itself, transparent_nodes
from flint.passes.xla.transposes import Copy, with_transposes

_SLICE: Final = "dynamic_update_slice"


def stored_splats(graph: WorkloadGraph) -> WorkloadGraph:
    """One block whose broadcasts are kernels if an update and something else read them; its table
    of ops has the entry of ``Copy``.
    """
    makers = graph.producer[graph.operand]
    overwritten = (makers >= 0) & ~can_make_itself(graph)
    overwritten &= (graph.role == Role.UPDATE)[graph.consumer]
    overwritten &= (transparent_nodes(graph) & (np.diff(graph.result_ptr) == 1))[makers]
    overwritten &= graph.value_bytes[graph.operand] > IMMEDIATE_BYTES
    if not overwritten.any():
        return graph
    role, copies = graph.role.copy(), {}
    names = [graph.tables.ops[op] for op in graph.op.tolist()]
    read, written, aliased = (
        column.copy() for column in (graph.bytes_read, graph.bytes_written, graph.bytes_aliased)
    )
    for value in np.unique(graph.operand[overwritten]).tolist():
        entries = np.flatnonzero(graph.operand == value)
        if len(entries) == 1:
            continue
        # Its readers must not look through it.
        role[graph.producer[value]] = Role.ELEMENTWISE
        last = int(graph.consumer[entries].max())
        written_over = [int(entry) for entry in entries if overwritten[entry]]
        early = [entry for entry in written_over if int(graph.consumer[entry]) < last]
        if early:
            copies[value] = Copy(early)
        for node in graph.consumer[early].tolist():
            if not aliased[node]:  # it was to copy the rest of the buffer itself
                operands = graph.operands_of(node).tolist()
                updates = operands[1] if names[node] == _SLICE else operands[-1]
                rest = max(int(graph.value_bytes[value] - graph.value_bytes[updates]), 0)
                aliased[node] = rest
                read[node], written[node] = read[node] - rest, written[node] - rest
    changed = replace(
        graph, role=role, bytes_read=read, bytes_written=written, bytes_aliased=aliased
    )
    return with_transposes(changed, copies)
